"""Children: created with a turn of their parent, answering it once, and what its end means (G4, G5, G11, C1)."""

from typing import Any

import msgspec

from holdfast.core.admission import IdPolicy
from holdfast.core.children import ParentClose
from holdfast.core.history import (
    CancelRequested,
    ChildCompleted,
    ChildFailed,
    ChildRefused,
    ChildStarted,
    ChildStopped,
    ExecutionFailed,
    HistoryEvent,
    Payload,
    Started,
    decode_event,
    encode_event,
    encode_events,
)
from holdfast.core.lifecycle import InstanceState
from holdfast.storage.members.instances import CloseChildren, Release, Terminate
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Applied, EndedInstance, Rejected, TerminatedInstance
from holdfast.storage.members.turns import CancelChild, InstanceEnd, NewChild, Turn
from holdfast.storage.records import InstanceId, InstanceRecord
from holdfast.testing.conformance.bench import ANNA, Bench, Rules, applied, check, closing, first_turn, start, turn
from holdfast.testing.conformance.instances import continuing
from holdfast.testing.conformance.messages import claimable

GIVEN = b'["hat"]'
LARGE = b'"' + b"x" * 50_000 + b'"'


def new_child(child: int, instance_id: str, **more: Any) -> NewChild:
    """A child to be created with a turn."""
    given: bytes = more.get("input", GIVEN)
    begun = Started(
        time_ms=0, workflow="flow", version="", seed=7, input=Payload(msgspec.Raw(given)), parent="p", depth=1
    )
    fields: dict[str, Any] = {
        "child": child,
        "id": InstanceId(instance_id),
        "workflow": "flow",
        "version": "",
        "input": GIVEN,
        "input_hash": GIVEN,
        "started": encode_event(begun),
        "parent_close": ParentClose.TERMINATE,
    }
    return NewChild(**(fields | more))


async def parent_with_children(bench: Bench, *children: NewChild) -> InstanceRecord:
    """A parent with these children."""
    parent = await bench.started("p", activities=0)
    check(applied(await bench.one(with_children(parent, *children))), "the turn was rejected")
    return await bench.instance("p")


def with_children(parent: InstanceRecord, *children: NewChild, **more: Any) -> Turn:
    """A turn that starts them."""
    return turn(parent, children=children, **more)


async def begin(bench: Bench, instance_id: str) -> InstanceRecord:
    """Let a child begin, with the other worker."""
    check(instance_id in await claimable(bench), f"{instance_id} cannot be claimed")
    record = await bench.instance(instance_id)
    check(applied(await bench.one(turn(record))), "its first turn was rejected")
    return await bench.instance(instance_id)


async def inbox(bench: Bench, record: InstanceRecord) -> list[HistoryEvent]:
    """What waits for an instance."""
    return [decode_event(row.event) for row in (await bench.store.load(record.number, record.execution)).inbox]


async def states(bench: Bench, *ids: str) -> list[str]:
    """Where they are."""
    return [(await bench.instance(each)).state.value for each in ids]


class ChildRules(Rules):
    """What every store must do about children."""

    def test_G11_a_child_is_created_with_the_turn_of_its_parent_or_not_at_all(self) -> None:
        async def case(bench: Bench) -> None:
            parent = await bench.started("p", activities=0)
            stale = with_children(parent, new_child(0, "never"), turn=7)
            check(isinstance(await bench.one(stale), Rejected))
            check(await bench.store.find_instance(InstanceId("never")) is None)
            check(applied(await bench.one(with_children(parent, new_child(0, "p/1/0")))))
            child = await bench.instance("p/1/0")
            check((child.state, child.turn, child.input) == (InstanceState.REQUESTED, 0, GIVEN))
            check([type(event) for event in await inbox(bench, child)] == [Started])
            check(await inbox(bench, parent) == [], "the code did not choose the id")
            relatives = await bench.store.read_relatives(child.number)
            check(relatives.parent is not None and relatives.parent.number == parent.number)
            relatives = await bench.store.read_relatives(parent.number)
            check(relatives.parent is None and relatives.children == {InstanceState.REQUESTED: 1})
            page = await bench.store.list_instances(before=2**62, limit=10, parent=parent.number)
            check([(each.id, each.parent_id) for each in page] == [("p/1/0", "p")])
            check(await claimable(bench) == ["p/1/0"])

        self.on_bench(case)

    def test_G3_a_chosen_id_is_confirmed_and_one_that_is_taken_is_refused_without_losing_the_turn(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.started("taken")
            parent = await parent_with_children(
                bench, new_child(0, "mine", named=True), new_child(1, "taken", named=True), new_child(2, "taken")
            )
            messages = await inbox(bench, parent)
            check([type(event) for event in messages] == [ChildStarted, ChildRefused, ChildRefused])
            check([event.child for event in messages if isinstance(event, ChildStarted | ChildRefused)] == [0, 1, 2])
            check((await bench.store.read_relatives(parent.number)).children == {InstanceState.REQUESTED: 1})

        self.on_bench(case)

    def test_G3_a_closed_child_of_an_earlier_instance_of_the_parents_id_is_superseded(self) -> None:
        async def case(bench: Bench) -> None:
            first = await parent_with_children(
                bench, new_child(0, "p/1/0"), new_child(1, "open", parent_close=ParentClose.ABANDON)
            )
            check(applied(await bench.one(closing(first, has_relatives=True))))
            before = await bench.instance("p/1/0")
            again = await bench.one(start("p", first=first_turn(ANNA, activities=0), policy=IdPolicy.REUSE))
            check(getattr(again, "created", False), f"the parent was not started again: {again}")
            parent = await bench.instance("p")
            turned = with_children(parent, new_child(0, "p/1/0"), new_child(1, "open"))
            check(applied(await bench.one(turned)))
            after = await bench.instance("p/1/0")
            check(after.number != before.number and (await states(bench, "p/1/0")) == ["REQUESTED"])
            messages = await inbox(bench, await bench.instance("p"))
            check([type(event) for event in messages] == [ChildRefused], "one that is open keeps its id")

        self.on_bench(case)

    def test_G5_every_end_of_a_child_is_delivered_to_its_parent_once_and_wakes_it(self) -> None:
        async def case(bench: Bench) -> None:
            parent = await parent_with_children(bench, *(new_child(number, f"p/1/{number}") for number in range(4)))
            check(applied(await bench.one(Release(number=parent.number, owner=ANNA, fence=parent.fence))))
            done, failed = await begin(bench, "p/1/0"), await bench.instance("p/1/1")
            last = closing(done, has_relatives=True)
            check(applied(await bench.one(last)))
            check(not applied(await bench.one(last)), "twice is refused")
            raised = ExecutionFailed(failure=Payload(msgspec.Raw(b'{"type":"x","message":"no"}')))
            close = InstanceEnd(state=InstanceState.FAILED, outcome=msgspec.json.encode(raised.failure))
            ended = turn(failed, events=encode_events([raised]), close=close, has_relatives=True)
            check(applied(await bench.one(ended)))
            await bench.one(Terminate(id=InstanceId("p/1/2"), reason="enough"))
            await bench.one(Deliver(id=InstanceId("p/1/3"), event=CancelRequested(time_ms=0, reason="why")))
            messages = await inbox(bench, parent)
            check([type(event) for event in messages] == [ChildCompleted, ChildFailed, ChildStopped, ChildStopped])
            stopped = [(each.child, each.state, each.reason) for each in messages if isinstance(each, ChildStopped)]
            check(stopped == [(2, "TERMINATED", "enough"), (3, "CANCELLED", "why")])
            check("p" in await claimable(bench))

        self.on_bench(case)

    def test_a_large_input_and_a_large_result_of_a_child_are_delivered_whole(self) -> None:
        async def case(bench: Bench) -> None:
            parent = await parent_with_children(bench, new_child(0, "p/1/0", input=LARGE))
            child = await bench.instance("p/1/0")
            check(len(child.input) < len(LARGE) and LARGE in (await bench.store.read_payloads(child.number)).values())
            child = await begin(bench, "p/1/0")
            reference = next(iter(await bench.store.read_payloads(child.number)))
            close = InstanceEnd(
                state=InstanceState.COMPLETED, outcome=msgspec.json.encode(Payload(reference=reference))
            )
            check(applied(await bench.one(closing(child, close=close, has_relatives=True))))
            answer = (await inbox(bench, parent))[0]
            check(isinstance(answer, ChildCompleted) and answer.result.reference == reference)
            check((await bench.store.read_payloads(parent.number))[reference] == LARGE)

        self.on_bench(case)

    def test_G4_an_answer_to_an_old_execution_or_a_closed_parent_is_dropped(self) -> None:
        async def case(bench: Bench) -> None:
            free = {"parent_close": ParentClose.ABANDON}
            parent = await parent_with_children(bench, new_child(0, "p/1/0", **free), new_child(1, "p/1/1", **free))
            child, other = await begin(bench, "p/1/0"), await bench.instance("p/1/1")
            check(applied(await bench.one(closing(child, has_relatives=True))), "its answer waits, unread")
            check(applied(await bench.one(continuing(parent, has_relatives=True))))
            check([type(event) for event in await inbox(bench, await bench.instance("p"))] == [Started])
            check(applied(await bench.one(closing(other, has_relatives=True))))
            check([type(event) for event in await inbox(bench, await bench.instance("p"))] == [Started])

        self.on_bench(case)

    def test_G4_a_child_that_continued_as_new_answers_with_its_last_execution(self) -> None:
        async def case(bench: Bench) -> None:
            parent = await parent_with_children(bench, new_child(0, "p/1/0"))
            child = await begin(bench, "p/1/0")
            check(applied(await bench.one(continuing(child, has_relatives=True))))
            check(await inbox(bench, parent) == [], "it has not ended")
            check(applied(await bench.one(closing(await bench.instance("p/1/0"), has_relatives=True))))
            check([type(event) for event in await inbox(bench, parent)] == [ChildCompleted])

        self.on_bench(case)

    def test_G11_a_turn_that_does_not_end_writes_its_children_without_has_relatives(self) -> None:
        async def case(bench: Bench) -> None:
            parent = await bench.started("p", activities=0)
            started = (new_child(0, "p/1/0"), new_child(1, "p/1/1"))
            check(applied(await bench.one(turn(parent, children=started, has_relatives=False))))
            check(await states(bench, "p/1/0", "p/1/1") == ["REQUESTED", "REQUESTED"])
            cancelled = (CancelChild(child=0, reason="enough"),)
            again = await bench.instance("p")
            check(applied(await bench.one(turn(again, children_cancelled=cancelled, has_relatives=False))))
            check(await states(bench, "p/1/0", "p/1/1") == ["CANCELLED", "REQUESTED"])

        self.on_bench(case)

    def test_A9_a_turn_cancels_its_own_children(self) -> None:
        async def case(bench: Bench) -> None:
            parent = await parent_with_children(bench, new_child(0, "p/1/0"), new_child(1, "p/1/1"))
            await bench.one(turn(parent, children_cancelled=(CancelChild(child=1, reason="unbegun"),)))
            check(await states(bench, "p/1/0", "p/1/1") == ["REQUESTED", "CANCELLED"])
            child = await begin(bench, "p/1/0")
            asks = (CancelChild(child=0, reason="enough"), CancelChild(child=0, reason="twice"), CancelChild(child=7))
            check(
                applied(await bench.one(turn(await bench.instance("p"), children_cancelled=asks, has_relatives=True)))
            )
            messages = await inbox(bench, child)
            check([each.reason for each in messages if isinstance(each, CancelRequested)] == ["enough"])
            check(await states(bench, "p/1/0") == ["CANCEL_REQUESTED"])

        self.on_bench(case)

    def test_A9_the_end_of_a_parent_closes_its_children_by_their_policies_in_one_commit(self) -> None:
        async def case(bench: Bench) -> None:
            children = [new_child(at, f"p/1/{at}", parent_close=policy) for at, policy in enumerate(ParentClose)]
            parent = await parent_with_children(bench, *children)
            await begin(bench, "p/1/0")
            for each in ("p/1/1", "p/1/2"):
                check(applied(await bench.one(turn(await bench.instance(each)))), "its first turn was rejected")
            outcome = await bench.one(closing(parent, has_relatives=True))
            ended = await bench.instance("p/1/0")
            closed = outcome.ended if isinstance(outcome, Applied) else ()
            check([each[:2] for each in closed] == [EndedInstance(ended.id, ended.number)[:2]])
            check(await states(bench, "p/1/0", "p/1/1", "p/1/2") == ["TERMINATED", "CANCEL_REQUESTED", "RUNNING"])
            check(await bench.store.open_closings(10) == [])

        self.on_bench(case)

    def test_A9_a_termination_ends_the_whole_tree_and_children_that_were_cancelled(self) -> None:
        async def case(bench: Bench) -> None:
            await parent_with_children(bench, new_child(0, "p/1/0"))
            child = await begin(bench, "p/1/0")
            grandchildren = (new_child(0, "p/1/0/1/0"), new_child(1, "free", parent_close=ParentClose.ABANDON))
            check(applied(await bench.one(with_children(child, *grandchildren))))
            await bench.one(Deliver(id=InstanceId("p/1/0"), event=CancelRequested(time_ms=0)))
            outcome = await bench.one(Terminate(id=InstanceId("p")))
            check(isinstance(outcome, TerminatedInstance))
            check([each.id for each in getattr(outcome, "ended", ())] == ["p/1/0", "p/1/0/1/0"])
            check(await states(bench, "p", "p/1/0", "p/1/0/1/0", "free") == [*["TERMINATED"] * 3, "REQUESTED"])

        self.on_bench(case)

    def test_A9_a_cancelled_child_cleans_up_when_its_parent_completes(self) -> None:
        async def case(bench: Bench) -> None:
            parent = await parent_with_children(bench, new_child(0, "p/1/0"))
            await begin(bench, "p/1/0")
            asked = (CancelChild(child=0),)
            check(applied(await bench.one(closing(parent, has_relatives=True, children_cancelled=asked))))
            check(await states(bench, "p", "p/1/0") == ["COMPLETED", "CANCEL_REQUESTED"])
            check(await bench.store.open_closings(10) == [])

        self.on_bench(case)

    def test_C1_children_that_one_commit_leaves_open_are_closed_by_any_worker(self) -> None:
        async def case(bench: Bench) -> None:
            count = 1_100
            parent = await parent_with_children(bench, *(new_child(at, f"p/1/{at}") for at in range(count)))
            check(applied(await bench.one(closing(parent, has_relatives=True))))
            left = (await bench.store.read_relatives(parent.number)).children
            check(0 < left.get(InstanceState.REQUESTED, 0) < count, "one commit is bounded")
            check(await bench.store.open_closings(10) == [(parent.number, 1)])
            member = CloseChildren(number=parent.number, execution=1, limit=400)
            outcomes = await bench.commit(member, member, member, member)
            changed = [outcome.changed for outcome in outcomes if isinstance(outcome, Applied)]
            check(
                sum(changed) == left[InstanceState.REQUESTED] and changed[-1] == 0,
                f"two at once harm nothing: {changed}",
            )
            check((await bench.store.read_relatives(parent.number)).children == {InstanceState.TERMINATED: count})
            check(await bench.store.open_closings(10) == [])

        self.on_bench(case)
