"""Wake-ups of commits: every process that a commit concerns is woken (C15). A store may wake more processes."""

from collections.abc import Callable
from functools import reduce
from typing import cast
from unittest import SkipTest

from holdfast.compose import capabilities_of
from holdfast.core.admission import IdPolicy
from holdfast.core.attributes import AttributeChange, store_value
from holdfast.core.checks import require
from holdfast.core.deadlines import Deadline
from holdfast.core.updates import UpdateState
from holdfast.storage.contract import OPEN_CONTRACT, SEARCH, OpenContractStore
from holdfast.storage.instance_endings import MOST_CHILDREN_PER_COMMIT
from holdfast.storage.members.contract_rows import InsertRequest
from holdfast.storage.members.instances import (
    Block,
    ClaimInstances,
    CloseChildren,
    Expire,
    Release,
    RetryBlocked,
    SetAttributes,
    Terminate,
    Watch,
)
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import AnswerQuery, AskQuery, ClaimQueries, Deliver, QueryRow
from holdfast.storage.members.outcomes import Rejected
from holdfast.storage.members.row_handling import HandleRequest
from holdfast.storage.members.workers import MarkWorkerLost
from holdfast.storage.records import InstanceRecord
from holdfast.storage.wakeups import EVERY_CHANGE, NOTHING, Wakeup, Wakeups
from holdfast.testing.conformance.bench import (
    ANNA,
    BERT,
    Bench,
    Rules,
    applied,
    check,
    closing,
    completion,
    new_attempt,
    start,
    turn,
)
from holdfast.testing.conformance.children import new_child
from holdfast.testing.conformance.deadlines import LIMIT, LIMIT_MS, limited
from holdfast.testing.conformance.instances import continuing
from holdfast.testing.conformance.messages import cancel, event
from holdfast.testing.conformance.updates import answer, update

ELSEWHERE = "elsewhere"
"""The name of a process that waits."""


async def wakeups_of(bench: Bench, *members: Member) -> Wakeups:
    """The wake-ups of one group, whose members all have to be applied."""
    sent: list[Wakeups] = []
    outcomes = await bench.commit(*members, notify=sent.append)
    require(not any(isinstance(outcome, Rejected) for outcome in outcomes), f"a member was rejected: {outcomes}")
    return reduce(Wakeups.__or__, sent, Wakeups())


def received(wakeups: Wakeups, name: str = ELSEWHERE) -> Wakeup:
    """The wake-up that the process of this name gets."""
    return wakeups.to_all | wakeups.to_each.get(name, NOTHING)


async def check_wakes(bench: Bench, expected: Callable[[Wakeup], bool], *members: Member) -> None:
    """Checks that a group wakes a process as expected, or for everything."""
    wakeup = received(await wakeups_of(bench, *members))
    check(wakeup.everything or expected(wakeup), f"it wakes for {wakeup}")


async def watched(bench: Bench, instance_id: str, watcher: str = ELSEWHERE) -> InstanceRecord:
    """An owned instance that another process waits for."""
    record = await bench.started(instance_id)
    check(applied(await bench.one(Watch(number=record.number, watcher=watcher))))
    return record


def has_instance(record: InstanceRecord) -> Callable[[Wakeup], bool]:
    """Whether a wake-up names an instance."""
    return lambda wakeup: record.number in wakeup.instances


class WakeupRules(Rules):
    """C15, for each member that may concern another process."""

    def test_C15_an_end_wakes_the_process_that_waits_for_it(self) -> None:
        async def case(bench: Bench) -> None:
            record = await watched(bench, "a")
            await check_wakes(bench, has_instance(record), closing(record))
            refused = await bench.one(Watch(number=record.number, watcher="late"))
            check(isinstance(refused, Rejected), "a process that comes late reads the end")

        self.on_bench(case)

    def test_C15_all_processes_that_wait_are_woken_once(self) -> None:
        async def case(bench: Bench) -> None:
            record = await watched(bench, "a")
            for name in ("second", ELSEWHERE, "second"):
                check(applied(await bench.one(Watch(number=record.number, watcher=name))))
            sent = await wakeups_of(bench, closing(record))
            for name in (ELSEWHERE, "second"):
                wakeup = received(sent, name)
                check(wakeup.everything or record.number in wakeup.instances)

        self.on_bench(case)

    def test_C15_a_start_names_the_process_that_waits_for_its_end(self) -> None:
        async def case(bench: Bench) -> None:
            bench.beat(ANNA)
            await check_wakes(bench, lambda wakeup: "flow" in wakeup.workflows, start("a", watcher=ELSEWHERE))
            await bench.one(ClaimInstances(owner=ANNA, workflows=("flow",), limit=1))
            record = await bench.instance("a")
            await check_wakes(bench, has_instance(record), closing(record))

        self.on_bench(case)

    def test_C15_every_path_that_ends_or_blocks_wakes_the_process_that_waits(self) -> None:
        async def case(bench: Bench) -> None:
            record = await watched(bench, "terminated")
            await check_wakes(bench, has_instance(record), Terminate(id=record.id, reason="over"))
            record = await watched(bench, "blocked")
            block = Block(number=record.number, owner=ANNA, fence=record.fence, reason="code", build="1")
            await check_wakes(bench, has_instance(record), block)
            await check_wakes(bench, lambda wakeup: "flow" in wakeup.workflows, RetryBlocked(id=record.id))
            await bench.one(start("unstarted", watcher=ELSEWHERE))
            record = await bench.instance("unstarted")
            await check_wakes(bench, has_instance(record), cancel("unstarted"))

        self.on_bench(case)

    def test_C15_the_ends_of_a_group_that_was_divided_wake_the_processes_that_wait(self) -> None:
        """The database refuses one member, so the others are written in several transactions."""

        async def case(bench: Bench) -> None:
            records = [await watched(bench, f"i{number}") for number in range(6)]
            members: list[Member] = [closing(record) for record in records]
            members[2] = turn(records[2], attempts=(new_attempt(0),))  # opens an attempt that is there already
            sent: list[Wakeups] = []
            outcomes = await bench.commit(*members, notify=sent.append)
            check([applied(outcome) for outcome in outcomes] == [at != 2 for at in range(6)])
            wakeup = received(reduce(Wakeups.__or__, sent, Wakeups()))
            ended = frozenset(record.number for at, record in enumerate(records) if at != 2)
            check(wakeup.everything or wakeup.instances == ended, f"it wakes for {wakeup}")

        self.on_bench(case)

    def test_C15_a_change_of_attributes_wakes_the_owner(self) -> None:
        async def case(bench: Bench) -> None:
            if SEARCH not in capabilities_of(bench.store):
                raise SkipTest(f"the store does not declare {SEARCH!r}")
            record = await bench.started("a", activities=0)
            change = AttributeChange("n", store_value("n", 1))
            member = SetAttributes(id=record.id, changes=(change,))
            await check_wakes(bench, lambda wakeup: ANNA in wakeup.owners, member)

        self.on_bench(case)

    def test_C15_a_deadline_wakes_the_process_that_waits(self) -> None:
        async def case(bench: Bench) -> None:
            record = await limited(bench, "hasty", Deadline(LIMIT_MS, 0))
            check(applied(await bench.one(Watch(number=record.number, watcher=ELSEWHERE))))
            await bench.one(start("unbegun", deadline=LIMIT, watcher=ELSEWHERE))
            bench.clock.now_ms += LIMIT_MS
            await check_wakes(bench, has_instance(record), Expire(number=record.number))
            record = await bench.instance("unbegun")
            await check_wakes(bench, has_instance(record), Expire(number=record.number))

        self.on_bench(case)

    def test_C15_the_end_of_a_parent_wakes_the_processes_that_wait_for_its_children(self) -> None:
        async def case(bench: Bench) -> None:
            for end in ("turn", "terminate"):
                parent = await bench.started(end, activities=0)
                check(applied(await bench.one(turn(parent, children=(new_child(0, f"{end}/child"),)))))
                child = await bench.instance(f"{end}/child")
                check(applied(await bench.one(Watch(number=child.number, watcher=ELSEWHERE))))
                parent = await bench.instance(end)
                member = (
                    closing(parent, has_relatives=True) if end == "turn" else Terminate(id=parent.id, reason="over")
                )
                await check_wakes(bench, has_instance(child), member)

        self.on_bench(case)

    def test_C15_children_that_are_closed_later_wake_the_processes_that_wait_for_them(self) -> None:
        async def case(bench: Bench) -> None:
            parent = await bench.started("p", activities=0)
            many = tuple(new_child(at, f"p/{at}") for at in range(MOST_CHILDREN_PER_COMMIT + 10))
            check(applied(await bench.one(turn(parent, children=many))))
            last = [await bench.instance(each.id) for each in many[-3:]]
            for child in last:
                check(applied(await bench.one(Watch(number=child.number, watcher=ELSEWHERE))))
            check(applied(await bench.one(closing(await bench.instance("p"), has_relatives=True))))
            check((await bench.instance(last[0].id)).closed_at_ms is None, "one commit is bounded")
            rest = CloseChildren(number=parent.number, execution=1, limit=100)
            await check_wakes(bench, lambda wakeup: wakeup.instances >= {child.number for child in last}, rest)

        self.on_bench(case)

    def test_C15_a_start_that_replaces_an_instance_wakes_the_process_that_waits_for_the_old_one(self) -> None:
        async def case(bench: Bench) -> None:
            record = await watched(bench, "a")
            await check_wakes(bench, has_instance(record), start("a", policy=IdPolicy.TERMINATE_EXISTING))

        self.on_bench(case)

    def test_C15_rows_of_clients_wake_the_process_that_waits_for_the_instance_they_end(self) -> None:
        async def case(bench: Bench) -> None:
            if OPEN_CONTRACT not in capabilities_of(bench.store):
                raise SkipTest(f"the store does not declare {OPEN_CONTRACT!r}")
            store = cast("OpenContractStore", bench.store)
            replaced = await watched(bench, "replaced")
            await bench.one(start("unstarted", watcher=ELSEWHERE))
            unstarted = await bench.instance("unstarted")
            replacing = start("replaced", policy=IdPolicy.TERMINATE_EXISTING)
            for record, action in ((replaced, replacing), (unstarted, cancel("unstarted"))):
                check(applied(await bench.one(InsertRequest(request_id=record.id, workflow="flow"))))
                row = await store.read_request(record.id)
                check(row is not None)
                handle = HandleRequest(row=0 if row is None else row.row, request_id=record.id, action=action)
                await check_wakes(bench, has_instance(record), handle)

        self.on_bench(case)

    def test_C15_the_next_execution_keeps_the_processes_that_wait(self) -> None:
        async def case(bench: Bench) -> None:
            record = await watched(bench, "a")
            check(applied(await bench.one(continuing(record))))
            record = await bench.instance("a")
            check(applied(await bench.one(turn(record))))
            await check_wakes(bench, has_instance(record), closing(await bench.instance("a")))

        self.on_bench(case)

    def test_C15_a_released_instance_with_work_wakes_workers_that_have_its_code(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(completion(record))))
            release = Release(number=record.number, owner=ANNA, fence=record.fence)
            await check_wakes(bench, lambda wakeup: "flow" in wakeup.workflows, release)
            record = await bench.started("b")
            released = turn(record, release=True)
            check(applied(await bench.one(released)))
            await check_wakes(bench, lambda wakeup: "flow" in wakeup.workflows, completion(record))

        self.on_bench(case)

    def test_C15_a_message_wakes_the_owner_of_its_instance(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            for message in (event("a"), cancel("a")):
                await check_wakes(bench, lambda wakeup: ANNA in wakeup.owners, message)
            record = await bench.started("b")
            bench.beat(BERT)
            check(applied(await bench.one(turn(record, attempts=(new_attempt(7),)))))
            await check_wakes(bench, lambda wakeup: ANNA in wakeup.owners, completion(record))

        self.on_bench(case)

    def test_C15_an_attempt_without_owner_wakes_workers_that_serve_its_queue(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            ready = turn(record, attempts=(new_attempt(7, queue="letters"),))
            await check_wakes(bench, lambda wakeup: "letters" in wakeup.queues, ready)

        self.on_bench(case)

    def test_C15_the_rows_of_a_lost_worker_wake_all_workers(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.started("a")
            bench.clock.now_ms += 60_000
            bench.beat(BERT)
            lost = MarkWorkerLost(key=ANNA, at_deadline=True, limit=10)
            await check_wakes(bench, lambda wakeup: bool(wakeup.workflows and wakeup.queues), lost)

        self.on_bench(case)

    def test_C15_an_answer_wakes_the_process_that_asks(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            query = QueryRow(id=f"{ELSEWHERE}:1", number=record.number, name="status", input=b"{}")
            ask = AskQuery(query=query, expires_at_ms=bench.clock.now_ms + 60_000)
            await check_wakes(bench, lambda wakeup: ANNA in wakeup.queries, ask)
            await bench.one(ClaimQueries(owner=ANNA, workflows=("flow",), limit=10))
            await check_wakes(bench, lambda wakeup: wakeup.replies, AnswerQuery(id=query.id, owner=ANNA, answer=b"1"))

        self.on_bench(case)

    def test_C15_a_query_about_an_instance_without_an_owner_wakes_workers_that_have_its_code(self) -> None:
        """It waits for an event, is blocked, or has ended, and no process waits for it."""

        async def case(bench: Bench) -> None:
            ended = await bench.started("ended")
            blocked = await bench.started("blocked")
            waiting = await bench.started("waiting")
            block = Block(number=blocked.number, owner=ANNA, fence=blocked.fence, reason="code", build="1")
            release = Release(number=waiting.number, owner=ANNA, fence=waiting.fence)
            for member in (closing(ended), block, release):
                check(applied(await bench.one(member)))
            for at, record in enumerate((ended, blocked, waiting)):
                query = QueryRow(id=f"{ELSEWHERE}:{at}", number=record.number, name="status", input=b"{}")
                ask = AskQuery(query=query, expires_at_ms=bench.clock.now_ms + 60_000)
                await check_wakes(bench, lambda wakeup: "flow" in wakeup.queries, ask)

        self.on_bench(case)

    def test_C15_an_answer_to_an_update_wakes_the_process_that_sent_it(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            sent = update("a", "set")
            await bench.one(Deliver(id=sent.id, event=sent.event, watcher=EVERY_CHANGE + ELSEWHERE))
            rows = tuple(row.row for row in await bench.store.peek_inbox(record.number, 10))
            answering = turn(await bench.instance("a"), consumed=rows, answers=answer(UpdateState.DONE, "set"))
            await check_wakes(bench, has_instance(record), answering)

        self.on_bench(case)
