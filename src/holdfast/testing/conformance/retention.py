"""Rules of deletions (R31-R34), for a store with the capability `RETENTION`."""

from collections.abc import Awaitable, Callable
from typing import cast
from unittest import SkipTest

import msgspec

from holdfast.compose import capabilities_of
from holdfast.core.activity_events import ReportKind
from holdfast.core.activity_options import ActivityOptions, ExternalOptions
from holdfast.core.history import (
    ContinuedAsNew,
    EventReceived,
    Payload,
    Started,
    UpdateAccepted,
    encode_event,
    encode_events,
)
from holdfast.core.lifecycle import InstanceState
from holdfast.core.retention import FamilyDecision, FamilyVerdict
from holdfast.storage.contract import OPEN_CONTRACT, RETENTION, OpenContractStore, RetentionStore
from holdfast.storage.members.contract_rows import InsertReport, InsertRequest
from holdfast.storage.members.instances import ClaimInstances, Terminate
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import DeletedExecutions, DeletedFamilies, Rejected
from holdfast.storage.members.retention import DeleteExecutions, DeleteFamilies
from holdfast.storage.members.row_handling import HandleRequest
from holdfast.storage.members.turns import NextExecution
from holdfast.storage.records import InstanceNumber, InstanceRecord, LargePayload, StateValue
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
from holdfast.testing.conformance.children import new_child, with_children
from holdfast.testing.conformance.queries import ask
from holdfast.testing.conformance.search import changes

REFERENCES = tuple(f"{digit}" * 64 for digit in "abc")


async def delete(bench: Bench, *roots: int, **more: int) -> tuple[FamilyDecision, ...]:
    outcome = await bench.one(DeleteFamilies(roots=tuple(map(InstanceNumber, roots)), **more))
    check(isinstance(outcome, DeletedFamilies), f"the deletion had the outcome {outcome}")
    return cast("DeletedFamilies", outcome).decisions


async def verdict(bench: Bench, root: int, **more: int) -> FamilyVerdict:
    [decision] = await delete(bench, root, **more)
    return decision.verdict


async def closed(bench: Bench, instance_id: str) -> InstanceRecord:
    """A closed instance without children."""
    await bench.one(closing(await bench.started(instance_id, activities=0)))
    return await bench.instance(instance_id)


async def family(bench: Bench) -> tuple[InstanceRecord, InstanceRecord, InstanceRecord]:
    """A parent, its child and its grandchild, all open."""
    parent = await bench.started("p", activities=0)
    check(applied(await bench.one(with_children(parent, new_child(0, "c")))))
    child = await _claimed(bench, "c")
    check(applied(await bench.one(with_children(child, new_child(0, "g")))))
    return await bench.instance("p"), await bench.instance("c"), await _claimed(bench, "g")


async def _claimed(bench: Bench, instance_id: str) -> InstanceRecord:
    await bench.one(ClaimInstances(owner=BERT, workflows=("flow",), limit=99))
    return await bench.instance(instance_id)


async def end(bench: Bench, instance_id: str) -> None:
    await bench.one(Terminate(id=(await bench.instance(instance_id)).id))


class RetentionRules(Rules):
    """What a deletion removes, and what it leaves."""

    def on_deletable(self, case: Callable[[Bench, RetentionStore], Awaitable[None]]) -> None:
        """As `on_bench`, for a store that can delete."""

        async def capable(bench: Bench) -> None:
            if RETENTION not in capabilities_of(bench.store):
                raise SkipTest(f"the store does not declare {RETENTION!r}")
            await case(bench, cast("RetentionStore", bench.store))

        self.on_bench(capable)

    def test_R31_a_family_is_deleted_as_a_whole_when_every_member_is_closed(self) -> None:
        async def case(bench: Bench, store: RetentionStore) -> None:
            parent, child, grandchild = await family(bench)
            other = await closed(bench, "other")
            check(await verdict(bench, parent.number) is FamilyVerdict.OPEN)
            for record in (parent, child):
                await bench.one(closing(await bench.instance(record.id)))
            open_again = await store.read_instances([parent.number, child.number, grandchild.number])
            if any(each.closed_at_ms is None for each in open_again):
                [decision] = await delete(bench, parent.number)
                check(decision.verdict is FamilyVerdict.OPEN and decision.instances == 0)
                check(len(await store.read_instances([parent.number, child.number, grandchild.number])) == 3)
                for record in open_again:
                    if record.closed_at_ms is None:
                        await end(bench, record.id)
            members = await store.read_families([parent.number])
            check([each.number for each in members] == [parent.number, child.number, grandchild.number])
            check({each.root for each in members} == {parent.number})
            check([each.parent_id for each in members] == [None, "p", "c"])
            check(await delete(bench, parent.number) == (FamilyDecision(parent.number, FamilyVerdict.DELETED, 3),))
            check(await store.read_instances([parent.number, child.number, grandchild.number]) == [])
            check(await store.read_families([parent.number]) == [])
            check((await bench.instance("other")).number == other.number, "another family is not concerned")
            check(await verdict(bench, parent.number) is FamilyVerdict.UNKNOWN, "a second deletion finds nothing")

        self.on_deletable(case)

    def test_R31_a_child_is_not_deleted_without_its_root(self) -> None:
        async def case(bench: Bench, store: RetentionStore) -> None:
            _, child, _ = await family(bench)
            await end(bench, "p")
            for instance_id in ("c", "g"):
                await end(bench, instance_id)
            [decision] = await delete(bench, child.number)
            check(decision == FamilyDecision(child.number, FamilyVerdict.CHILD, witness="p"))
            check(len(await store.read_families([(await bench.instance("p")).number])) == 3)

        self.on_deletable(case)

    def test_R31_the_youngest_end_of_a_family_decides(self) -> None:
        async def case(bench: Bench, store: RetentionStore) -> None:
            parent = await bench.started("p", activities=0)
            check(applied(await bench.one(with_children(parent, new_child(0, "c")))))
            await end(bench, "c")
            bench.clock.now_ms += 1_000
            await end(bench, "p")
            record = await bench.instance("p")
            ended_ms = record.closed_at_ms or 0
            [early] = await delete(bench, record.number, ended_by_ms=ended_ms - 1)
            check(early == FamilyDecision(record.number, FamilyVerdict.TOO_YOUNG, witness="p"))
            check(len(await store.read_families([record.number])) == 2, "nothing was deleted")
            check(await verdict(bench, record.number, ended_by_ms=ended_ms) is FamilyVerdict.DELETED)

        self.on_deletable(case)

    def test_R33_the_attribute_keep_of_any_member_keeps_the_family(self) -> None:
        async def case(bench: Bench, _: RetentionStore) -> None:
            for instance_id, value, expected in (
                ("kept", True, FamilyVerdict.HELD),
                ("not kept", False, FamilyVerdict.DELETED),
                ("text", "True", FamilyVerdict.DELETED),
            ):
                await bench.one(start(instance_id, first=first_turn(activities=0), attributes=changes(keep=value)))
                await end(bench, instance_id)
                check(await verdict(bench, (await bench.instance(instance_id)).number) is expected, instance_id)

        self.on_deletable(case)

    def test_R32_no_row_of_a_deleted_instance_is_left(self) -> None:
        async def case(bench: Bench, store: RetentionStore) -> None:
            event = EventReceived(time_ms=0, name="e", id="e-1", value=Payload(msgspec.Raw(b"1")))
            update = UpdateAccepted(time_ms=0, id="u", name="n", input=Payload(msgspec.Raw(b"[]")))
            await bench.one(
                start("a", first=first_turn(), attributes=changes(customer="acme"), given=b'"' + b"x" * 50_000 + b'"')
            )
            record = await bench.instance("a")
            values = (StateValue(key="k", value=b"1"),)
            large = (LargePayload(reference=REFERENCES[0], data=b"1"),)
            check(applied(await bench.one(turn(record, state_values=values, payloads=large))))
            await bench.one(Deliver(id=record.id, event=event, message_id="e-1"))
            await bench.one(Deliver(id=record.id, event=update, message_id="u"))
            await bench.one(ask(record))
            await end(bench, "a")
            check(await verdict(bench, record.number) is FamilyVerdict.DELETED)
            loaded = await store.load(record.number, 1)
            check(not (loaded.history or loaded.inbox or loaded.timers or loaded.attempts))
            check(await store.read_payloads(record.number) == {})
            check(await store.read_state_values(record.number) == {})
            check(await store.read_attributes(record.number) == {})
            check(await store.read_updates(record.number, 9) == [])
            check(not (await store.pending_queries()).has_queries)
            check(await store.find_instance(record.id) is None)

        self.on_deletable(case)

    def test_R32_a_late_completion_of_a_deleted_instance_changes_nothing(self) -> None:
        async def case(bench: Bench, store: RetentionStore) -> None:
            old = await bench.started("a")
            await end(bench, "a")
            check(await verdict(bench, old.number) is FamilyVerdict.DELETED)
            new = await bench.started("a")
            check(new.number > old.number, "numbers are not used again")
            before = await store.load(new.number, 1)
            check(isinstance(await bench.one(completion(old)), Rejected))
            check(isinstance(await bench.one(turn(old)), Rejected))
            event = EventReceived(time_ms=0, name="e", id="e-1", value=Payload(msgspec.Raw(b"1")))
            late = Deliver(id=old.id, number=old.number, event=event, message_id="e-1")
            check(isinstance(await bench.one(late), Rejected))
            check(isinstance(await bench.one(Terminate(id=old.id, number=old.number)), Rejected))
            check(await bench.instance("a") == new and await store.load(new.number, 1) == before)
            check(await store.read_attempts(old.number, 1) == [])

        self.on_deletable(case)

    def test_R37_a_slice_is_bounded_and_only_its_first_family_may_be_larger(self) -> None:
        async def case(bench: Bench, store: RetentionStore) -> None:
            parent, _, _ = await family(bench)
            for instance_id in ("p", "c", "g"):
                await end(bench, instance_id)
            singles = [(await closed(bench, f"s{number}")).number for number in range(3)]
            decisions = await delete(bench, *singles, parent.number, limit=2)
            verdicts = [each.verdict for each in decisions]
            check(verdicts == [FamilyVerdict.DELETED, FamilyVerdict.DELETED, FamilyVerdict.LATER, FamilyVerdict.LATER])
            check(len(await store.read_families([parent.number])) == 3)
            decisions = await delete(bench, parent.number, singles[2], limit=2)
            check([each.verdict for each in decisions] == [FamilyVerdict.DELETED, FamilyVerdict.LATER])
            check(decisions[0].instances == 3, "a family is never divided")

        self.on_deletable(case)

    def test_R32_two_stores_that_delete_the_same_families_delete_each_once(self) -> None:
        async def case(bench: Bench, _: RetentionStore) -> None:
            other = self.make_another(bench.clock)
            if other is None:
                raise SkipTest("only one store object can have the data")
            await other.open()
            try:
                second = Bench(other, bench.clock, first_id=10_000)
                roots = [(await closed(bench, f"s{number}")).number for number in range(6)]
                mine = await delete(bench, *roots[:4])
                theirs = await delete(second, *roots[2:])
                check([each.verdict for each in mine] == [FamilyVerdict.DELETED] * 4)
                check([each.verdict for each in theirs] == [FamilyVerdict.UNKNOWN] * 2 + [FamilyVerdict.DELETED] * 2)
            finally:
                await other.close()

        self.on_deletable(case)

    def test_R34_executions_before_the_current_one_are_deleted_with_what_only_they_refer_to(self) -> None:
        async def case(bench: Bench, store: RetentionStore) -> None:
            await bench.one(start("a", first=first_turn(activities=0)))
            times: list[int] = []
            for execution in (1, 2, 3):
                bench.clock.now_ms += 1_000
                times.append(bench.clock.now_ms)
                await self._continue(bench, execution)
            record = await bench.instance("a")
            check(record.execution == 4)
            check(await store.continued_instances(after=InstanceNumber(0), limit=9) == [(record.number, "flow")])
            check(await store.continued_instances(after=record.number, limit=9) == [])
            check((await self._deleted(bench, record.number, times[0] - 1)) == {}, "they ended later")
            check((await self._deleted(bench, record.number, times[1])) == {record.number: 2})
            histories = [len(await store.read_history(record.number, execution)) for execution in (1, 2, 3, 4)]
            check(histories[:2] == [0, 0] and histories[2] > 0)
            check(await store.read_attempts(record.number, 1) == [])
            payloads = await store.read_payloads(record.number)
            check(REFERENCES[0] not in payloads, "only a deleted execution referred to it")
            check(REFERENCES[2] in payloads, "the third execution is kept")
            check((await self._deleted(bench, record.number, times[1])) == {}, "a second time there is nothing")
            await end(bench, "a")
            check((await self._deleted(bench, record.number, 2**60)) == {}, "a closed instance is deleted as a whole")

        self.on_deletable(case)

    async def _continue(self, bench: Bench, execution: int) -> None:
        """Run a turn with an attempt and a large payload, and continue as new."""
        record = await bench.instance("a")
        reference = REFERENCES[execution - 1]
        event = ContinuedAsNew(input=Payload(msgspec.Raw(b"[]")))
        begun = Started(
            time_ms=bench.clock.now_ms,
            workflow="flow",
            version="",
            seed=1,
            input=Payload(msgspec.Raw(b"[]")),
            execution=execution + 1,
        )
        result = EventReceived(time_ms=0, name="e", id="", value=Payload(reference=reference))
        large = (LargePayload(reference=reference, data=b"1"),)
        check(applied(await bench.one(turn(record, events=encode_events([result]), payloads=large))))
        record = await bench.instance("a")
        following = NextExecution(input=b"[]", started=encode_event(begun))
        check(applied(await bench.one(turn(record, events=encode_events([event]), next=following))))
        record = await bench.instance("a")
        unread = (await bench.store.load(record.number, record.execution)).inbox
        taken = turn(record, events=encode_events([begun]), consumed=tuple(row.row for row in unread))
        check(applied(await bench.one(taken)))

    async def _deleted(self, bench: Bench, number: InstanceNumber, ended_by_ms: int) -> dict[InstanceNumber, int]:
        outcome = await bench.one(DeleteExecutions(numbers=(number,), ended_by_ms=ended_by_ms))
        check(isinstance(outcome, DeletedExecutions), f"the deletion had the outcome {outcome}")
        return cast("DeletedExecutions", outcome).executions

    def test_R36_a_store_tells_whether_much_could_be_deleted(self) -> None:
        async def case(bench: Bench, store: RetentionStore) -> None:
            await bench.started("open")
            await closed(bench, "a")
            await closed(bench, "b")
            check(await store.has_closed(2) and not await store.has_closed(3))
            check(await store.size_bytes() >= 0 and await store.give_back(2**20) >= 0)

        self.on_deletable(case)

    def test_R32_rows_of_clients_are_deleted_with_their_instance(self) -> None:
        async def case(bench: Bench, store: RetentionStore) -> None:
            if OPEN_CONTRACT not in capabilities_of(bench.store):
                raise SkipTest(f"the store does not declare {OPEN_CONTRACT!r}")
            tables = cast("OpenContractStore", store)
            await bench.one(InsertRequest(request_id="r", workflow="flow", instance_id="a"))
            [row] = (await tables.new_requests(["flow"], limit=9, largest=999)).rows
            await bench.one(HandleRequest(row=row.row, request_id="r", action=start("a")))
            record = await _claimed(bench, "a")
            options = ActivityOptions(queue="gpu", external=ExternalOptions(claim_timeout_ms=500))
            attempt = new_attempt(0, options=options, queue="gpu", name="train", is_external=True)
            check(applied(await bench.one(turn(record, attempts=(attempt,)))))
            [offer] = await tables.open_activities(limit=9)
            exec_id = offer.exec_id
            report = InsertReport(event_id="one", activity_exec_id=exec_id, transition=ReportKind.RUNNING, claim="c")
            await bench.one(report)
            await end(bench, "a")
            check((await tables.read_request("r")) is not None)
            check(await verdict(bench, record.number) is FamilyVerdict.DELETED)
            check(await tables.read_request("r") is None and await tables.read_offer(exec_id) is None)
            check(await tables.read_report("one") is None)

        self.on_deletable(case)

    def test_R32_an_id_of_a_deleted_instance_can_be_used_again_by_any_start(self) -> None:
        async def case(bench: Bench, _: RetentionStore) -> None:
            old = await closed(bench, "a")
            check(await verdict(bench, old.number) is FamilyVerdict.DELETED)
            await bench.one(start("a", given=b'"other"', first=first_turn(ANNA, activities=0)))
            new = await bench.instance("a")
            check(new.number > old.number and new.state is InstanceState.RUNNING)

        self.on_deletable(case)
