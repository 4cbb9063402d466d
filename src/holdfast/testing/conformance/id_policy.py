"""Rules of id policies: the start of an id that is taken, in one commit (G3)."""

from holdfast.core.admission import IdPolicy
from holdfast.core.history import InstanceTerminated, decode_events
from holdfast.core.lifecycle import InstanceState
from holdfast.storage.members.instances import ClaimInstances, Release, Start, Terminate
from holdfast.storage.members.outcomes import ClaimedInstances, Rejected, StartedInstance, TerminatedInstance
from holdfast.storage.records import InstanceId, InstanceRecord, TimerRow
from holdfast.testing.conformance.bench import (
    ANNA,
    BERT,
    Bench,
    Rules,
    applied,
    check,
    closing,
    completion,
    first_turn,
    new_attempt,
    start,
    turn,
)

REUSE = IdPolicy.REUSE
TERMINATE = IdPolicy.TERMINATE_EXISTING


async def begun(bench: Bench, member: Start) -> StartedInstance:
    outcome = await bench.one(member)
    check(isinstance(outcome, StartedInstance), f"it was not started: {outcome}")
    return outcome  # type: ignore[return-value]  # checked above


async def closed(bench: Bench, instance_id: str) -> InstanceRecord:
    """An instance that has completed."""
    record = await bench.started(instance_id)
    check(applied(await bench.one(closing(record))))
    return await bench.instance(instance_id)


async def read(bench: Bench, record: InstanceRecord) -> InstanceRecord:
    found = await bench.store.read_instance(record.number)
    check(found is not None, f"instance {record.number} is gone")
    return found  # type: ignore[return-value]  # checked above


class IdPolicyRules(Rules):
    """G3 beyond the default policy, and G1: numbers are never used again."""

    def test_G3_reuse_makes_a_new_instance_of_a_closed_id_and_keeps_the_old_one(self) -> None:
        async def case(bench: Bench) -> None:
            old = await closed(bench, "a")
            before = await bench.store.load(old.number, 1)
            bench.clock.now_ms += 5
            again = await begun(bench, start("a", given=b"2", policy=REUSE, first=first_turn(BERT)))
            check(again.created and again.replaced is None)
            check(again.instance.number > old.number)
            newest = await bench.instance("a")
            check((newest.number, newest.state) == (again.instance.number, InstanceState.RUNNING))
            kept = await read(bench, old)
            check(kept.superseded_at_ms == bench.clock.now_ms)
            check((kept.state, kept.outcome, kept.turn) == (old.state, old.outcome, old.turn))
            check(await bench.store.load(old.number, 1) == before, "rows of the old one were changed")
            check(len(await bench.store.read_attempts(newest.number, 1)) == 1)
            check(await bench.store.count_earlier(InstanceId("a")) == 1)
            everyone = await bench.store.list_instances(before=2**62, limit=10)
            check([each.number for each in everyone] == [newest.number, old.number])

        self.on_bench(case)

    def test_G3_reuse_of_an_open_id_is_the_default_policy(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            same = await begun(bench, start("a", policy=REUSE))
            check(not same.created and same.instance.number == record.number)
            for other in (start("a", given=b"2", policy=REUSE), start("a", workflow="other", policy=REUSE)):
                check(isinstance(await bench.one(other), Rejected))
            check(await bench.instance("a") == record)
            check(await bench.store.count_earlier(InstanceId("a")) == 0)

        self.on_bench(case)

    def test_G3_the_default_policy_finds_the_newest_instance_of_an_id(self) -> None:
        async def case(bench: Bench) -> None:
            await closed(bench, "a")
            newest = await begun(bench, start("a", given=b"2", policy=REUSE))
            same = await begun(bench, start("a", given=b"2"))
            check(not same.created and same.instance.number == newest.instance.number)
            check(isinstance(await bench.one(start("a")), Rejected), "the input of the old one is another input now")

        self.on_bench(case)

    def test_G3_terminate_existing_ends_the_open_one_and_starts_the_new_one_in_one_commit(self) -> None:
        async def case(bench: Bench) -> None:
            old = await bench.started("a", activities=2)
            timer = TimerRow(timer=1, due_at_ms=5)
            check(applied(await bench.one(turn(old, attempts=(new_attempt(2),), timers_started=(timer,)))))
            check(applied(await bench.one(completion(old, 1))))
            again = await begun(bench, start("a", policy=TERMINATE, first=first_turn(BERT)))
            check(again.created and again.replaced == old.number)
            ended = await read(bench, old)
            check((ended.state, ended.owner) == (InstanceState.TERMINATED, None))
            check(ended.superseded_at_ms is not None and ended.closed_at_ms is not None)
            loaded = await bench.store.load(old.number, 1)
            last = [event for row in loaded.history for event in decode_events(row.events)][-1]
            check(isinstance(last, InstanceTerminated) and "terminate_existing" in last.reason)
            check(not loaded.inbox and not loaded.timers)
            states = [attempt.state for attempt in loaded.attempts]
            check(states == ["CANCELLED_RUNNING", "COMPLETED", "CANCELLED"])
            newest = await bench.instance("a")
            check((newest.number, newest.owner, newest.turn) == (again.instance.number, BERT, 1))

        self.on_bench(case)

    def test_G1_the_owner_of_the_replaced_instance_changes_nothing_of_the_new_one(self) -> None:
        async def case(bench: Bench) -> None:
            old = await bench.started("a")
            await begun(bench, start("a", policy=TERMINATE, first=first_turn(ANNA)))
            newest = await bench.instance("a")
            check(newest.fence == old.fence and newest.owner == old.owner, "only the numbers tell the two apart")
            late = await bench.commit(
                turn(old, attempts=(new_attempt(7),)),
                closing(old),
                Release(number=old.number, owner=ANNA, fence=old.fence),
            )
            check(all(isinstance(outcome, Rejected) for outcome in late))
            check(applied(await bench.one(completion(old))), "its body had ended before the cancel")
            check(await bench.instance("a") == newest)
            loaded = await bench.store.load(newest.number, 1)
            check(not loaded.inbox, "an answer of the old one reached the new one")
            check([attempt.state for attempt in loaded.attempts] == ["RUNNING"])

        self.on_bench(case)

    def test_G3_terminate_existing_of_a_closed_id_is_reuse(self) -> None:
        async def case(bench: Bench) -> None:
            old = await closed(bench, "a")
            again = await begun(bench, start("a", policy=TERMINATE))
            check(again.created and again.replaced is None)
            kept = await read(bench, old)
            check((kept.state, kept.turn) == (InstanceState.COMPLETED, old.turn))

        self.on_bench(case)

    def test_G3_terminate_existing_of_a_free_id_creates(self) -> None:
        async def case(bench: Bench) -> None:
            outcomes = [
                await begun(bench, start(name, policy=policy)) for name, policy in (("a", TERMINATE), ("b", REUSE))
            ]
            check(all(outcome.created and outcome.replaced is None for outcome in outcomes))

        self.on_bench(case)

    def test_G3_of_many_replacements_in_one_group_the_last_one_stays_open(self) -> None:
        async def case(bench: Bench) -> None:
            members = [start("a", given=b"%d" % number, policy=TERMINATE) for number in range(5)]
            outcomes = await bench.commit(*members)
            numbers = [outcome.instance.number for outcome in outcomes if isinstance(outcome, StartedInstance)]
            check(len(set(numbers)) == len(members))
            everyone = await bench.store.list_instances(before=2**62, limit=10)
            states = [each.state for each in everyone]
            check(states == [InstanceState.REQUESTED, *[InstanceState.TERMINATED] * 4])
            check((await bench.instance("a")).number == numbers[-1])
            check(await bench.store.count_earlier(InstanceId("a")) == 4)
            claimed = await bench.one(ClaimInstances(owner=ANNA, workflows=("flow",), limit=10))
            check(isinstance(claimed, ClaimedInstances) and [each.number for each in claimed.instances] == numbers[-1:])

        self.on_bench(case)

    def test_G3_a_first_turn_that_releases_its_instance_may_replace_one(self) -> None:
        async def case(bench: Bench) -> None:
            old = await bench.started("a")
            released = first_turn(ANNA, activities=0, release=True)
            again = await begun(bench, start("a", policy=TERMINATE, first=released))
            check(again.created and again.replaced == old.number and again.instance.owner is None)

        self.on_bench(case)

    def test_A9_a_termination_can_name_one_instance_of_an_id(self) -> None:
        async def case(bench: Bench) -> None:
            old = await closed(bench, "a")
            newest = (await begun(bench, start("a", policy=REUSE))).instance
            late = await bench.one(Terminate(id=InstanceId("a"), number=old.number))
            check(isinstance(late, TerminatedInstance) and not late.was_open)
            check((await bench.instance("a")).state is InstanceState.REQUESTED)
            done = await bench.one(Terminate(id=InstanceId("a")))
            check(isinstance(done, TerminatedInstance) and done.was_open and done.instance.number == newest.number)

        self.on_bench(case)
