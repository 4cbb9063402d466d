"""Deadlines of instances: acted upon by anyone, once, and not before their time (A9, C1)."""

from holdfast.core.deadlines import Deadline, DeadlineVerdict
from holdfast.core.history import CancelRequested, ChildFailed, DeadlinePassed, Started, decode_event, decode_events
from holdfast.core.lifecycle import InstanceState
from holdfast.storage.members.instances import Block, Expire, SetDeadline
from holdfast.storage.members.outcomes import Expired, Outcome, Rejected, StartedInstance
from holdfast.storage.records import InstanceNumber, InstanceRecord
from holdfast.testing.conformance.bench import ANNA, Bench, Rules, applied, check, closing, first_turn, start, turn
from holdfast.testing.conformance.children import new_child, with_children
from holdfast.testing.conformance.messages import cancel, claimable

LIMIT_MS = 1_000
GRACE_MS = 500
LIMIT = Deadline(LIMIT_MS, GRACE_MS)


async def limited(bench: Bench, instance_id: str = "a", deadline: Deadline = LIMIT) -> InstanceRecord:
    """An instance that runs with its owner and has a deadline."""
    outcome = await bench.one(start(instance_id, first=first_turn(ANNA), deadline=deadline))
    check(isinstance(outcome, StartedInstance))
    return await bench.instance(instance_id)


async def expire(bench: Bench, record: InstanceRecord) -> DeadlineVerdict | None:
    """Act upon the deadline; None if it was refused."""
    outcome: Outcome = await bench.one(Expire(number=record.number))
    check(isinstance(outcome, Expired | Rejected), f"unexpected: {outcome}")
    return outcome.verdict if isinstance(outcome, Expired) else None


async def due(bench: Bench) -> list[InstanceNumber]:
    return await bench.store.expired_instances(10)


class DeadlineRules(Rules):
    """What a store does about deadlines."""

    def test_C1_a_deadline_counts_from_the_start_and_can_be_read(self) -> None:
        async def case(bench: Bench) -> None:
            began_ms = bench.clock.now_ms
            record, free = await limited(bench), await bench.started("free")
            deadline = await bench.store.read_deadline(record.number)
            check(deadline is not None and deadline.at_ms == began_ms + LIMIT_MS and deadline.grace_ms == GRACE_MS)
            check(await bench.store.read_deadline(free.number) is None)
            wake = (await bench.store.next_due(workflows=(), queues=(), names=())).earliest_ms
            check(wake == began_ms + LIMIT_MS, "every worker wakes for it, whatever it can run")
            bench.clock.now_ms += LIMIT_MS - 1
            check(await due(bench) == [] and await expire(bench, record) is None, "it is acted upon too early")
            bench.clock.now_ms += 1
            check(await due(bench) == [record.number])
            check(await expire(bench, free) is None, "one without a deadline is never overdue")

        self.on_bench(case)

    def test_A9_the_code_is_cancelled_once_at_the_deadline_and_ended_after_the_grace(self) -> None:
        async def case(bench: Bench) -> None:
            record = await limited(bench)
            bench.clock.now_ms += LIMIT_MS + 70  # maintenance runs later
            check(await expire(bench, record) is DeadlineVerdict.ASK)
            check(await expire(bench, record) is None and await due(bench) == [], "once is enough")
            check((await bench.instance("a")).state is InstanceState.CANCEL_REQUESTED)
            inbox = [decode_event(row.event) for row in (await bench.store.load(record.number, 1)).inbox]
            check(len(inbox) == 1)
            asked = inbox[0]
            check(isinstance(asked, CancelRequested) and asked.by_deadline and "1 s" in asked.reason)
            check(isinstance(asked, CancelRequested) and asked.time_ms == bench.clock.now_ms)
            bench.clock.now_ms += GRACE_MS - 1
            check(await expire(bench, record) is None, "the grace counts from the moment it was asked")
            bench.clock.now_ms += 1
            check(await expire(bench, record) is DeadlineVerdict.END)
            await check_failed(bench, "a")
            check(isinstance(await bench.one(turn(record)), Rejected), "a turn after the end was taken")

        self.on_bench(case)

    def test_A9_an_instance_without_running_code_fails_at_its_deadline(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("unbegun", deadline=LIMIT))
            parked = await limited(bench, "parked")
            block = Block(number=parked.number, owner=ANNA, fence=parked.fence, reason="no", build="one")
            check(applied(await bench.one(block)))
            hasty = await limited(bench, "hasty", Deadline(LIMIT_MS, 0))
            check(hasty.owner == ANNA)
            bench.clock.now_ms += LIMIT_MS
            for instance_id in ("unbegun", "parked", "hasty"):
                check(await expire(bench, await bench.instance(instance_id)) is DeadlineVerdict.END)
                await check_failed(bench, instance_id)
            unbegun = await bench.instance("unbegun")
            history = await bench.store.read_history(unbegun.number, 1)
            check([type(each) for each in decode_events(history[0].events)] == [Started, DeadlinePassed])

        self.on_bench(case)

    def test_A9_an_instance_that_was_cancelled_before_its_deadline_gets_its_grace(self) -> None:
        async def case(bench: Bench) -> None:
            record = await limited(bench)
            await bench.one(cancel("a", "enough"))
            bench.clock.now_ms += LIMIT_MS
            check(await expire(bench, record) is DeadlineVerdict.WAIT)
            check(len((await bench.store.load(record.number, 1)).inbox) == 1)
            bench.clock.now_ms += GRACE_MS
            check(await expire(bench, record) is DeadlineVerdict.END)

        self.on_bench(case)

    def test_G5_the_request_of_a_deadline_makes_an_instance_claimable(self) -> None:
        async def case(bench: Bench) -> None:
            first = start("a", first=first_turn(ANNA, activities=0, release=True), deadline=LIMIT)
            check(isinstance(await bench.one(first), StartedInstance))
            check(await claimable(bench) == [])
            bench.clock.now_ms += LIMIT_MS
            check(await expire(bench, await bench.instance("a")) is DeadlineVerdict.ASK)
            check(await claimable(bench) == ["a"])

        self.on_bench(case)

    def test_an_instance_that_has_ended_does_not_expire(self) -> None:
        async def case(bench: Bench) -> None:
            record = await limited(bench)
            check(applied(await bench.one(closing(record))))
            bench.clock.now_ms += LIMIT_MS
            check(await due(bench) == [] and await expire(bench, record) is None)
            check((await bench.store.next_due(workflows=(), queues=(), names=())).earliest_ms is None)
            check((await bench.instance("a")).state is InstanceState.COMPLETED)
            check(await bench.store.read_deadline(record.number) is not None, "it can still be read")

        self.on_bench(case)

    def test_a_deadline_is_set_once_by_the_start_or_before_the_first_turn(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("unset"))
            await bench.one(start("none", deadline=Deadline(None)))
            limited_start = await limited(bench, "set")
            bench.clock.now_ms += 10
            for instance_id, is_news in (("unset", True), ("unset", False), ("none", False), ("set", False)):
                number = (await bench.instance(instance_id)).number
                member = SetDeadline(number=number, owner=ANNA, deadline=Deadline(7, 7))
                check(applied(await bench.one(member)) is is_news)
            unset = await bench.instance("unset")
            deadline = await bench.store.read_deadline(unset.number)
            check(deadline is not None and deadline.at_ms == unset.created_at_ms + 7, "it counts from the start")
            kept = await bench.store.read_deadline(limited_start.number)
            check(kept is not None and kept.at_ms == limited_start.created_at_ms + LIMIT_MS)
            check(await bench.store.read_deadline((await bench.instance("none")).number) is None)

        self.on_bench(case)

    def test_A9_a_deadline_of_a_child_counts_from_its_creation_and_an_expired_parent_ends_it(self) -> None:
        async def case(bench: Bench) -> None:
            parent = await limited(bench, "p", Deadline(LIMIT_MS, 0))
            children = (new_child(0, "p/1/0", deadline=Deadline(7)), new_child(1, "p/1/1"))
            check(applied(await bench.one(with_children(parent, *children))))
            child = await bench.instance("p/1/0")
            deadline = await bench.store.read_deadline(child.number)
            check(deadline is not None and deadline.at_ms == child.created_at_ms + 7)
            bench.clock.now_ms += 7
            check(await expire(bench, child) is DeadlineVerdict.END)
            inbox = [decode_event(row.event) for row in (await bench.store.load(parent.number, 1)).inbox]
            check([type(event) for event in inbox] == [ChildFailed], "its parent gets the answer")
            bench.clock.now_ms += LIMIT_MS
            outcome = await bench.one(Expire(number=parent.number))
            check(isinstance(outcome, Expired) and [each.id for each in outcome.ended] == ["p/1/1"])
            check((await bench.instance("p/1/1")).state is InstanceState.TERMINATED)

        self.on_bench(case)


async def check_failed(bench: Bench, instance_id: str) -> None:
    """It is FAILED, its history ends with the deadline, and nothing of it waits."""
    closed = await bench.instance(instance_id)
    check(closed.state is InstanceState.FAILED and closed.closed_at_ms == bench.clock.now_ms and closed.owner is None)
    check(closed.outcome is not None and b"DeadlineExceeded" in closed.outcome)
    loaded = await bench.store.load(closed.number, 1)
    check(loaded.inbox == [] and loaded.timers == [])
    last = decode_events(loaded.history[-1].events)[-1]
    check(isinstance(last, DeadlinePassed) and last.time_ms == bench.clock.now_ms)
    check(isinstance(await bench.one(Expire(number=closed.number)), Rejected))
