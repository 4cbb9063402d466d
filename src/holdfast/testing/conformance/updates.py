"""Updates: taken once by their id, answered with the turn that took them, kept with their instance (G5, G7, G11)."""

import msgspec

from holdfast.core.admission import EventVerdict
from holdfast.core.history import CancelRequested, Payload, UpdateAccepted, decode_event
from holdfast.core.updates import MAX_OPEN_UPDATES, UpdateState
from holdfast.storage.members.instances import Block, Release
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Rejected, StartedInstance
from holdfast.storage.members.turns import NextExecution, UpdateAnswer
from holdfast.storage.records import Fence, InstanceId, InstanceRecord
from holdfast.testing.conformance.bench import ANNA, Bench, Rules, applied, check, closing, start, turn
from holdfast.testing.conformance.messages import claimable, deliver, refuses_to_close_unread


def update(instance_id: str, update_id: str = "one", *, name: str = "add", data: bytes = b"1") -> Deliver:
    """An update, by default with the input 1."""
    event = UpdateAccepted(time_ms=0, id=update_id, name=name, input=Payload(msgspec.Raw(data)))
    return Deliver(id=InstanceId(instance_id), event=event, message_id=update_id)


def answer(state: UpdateState, update_id: str = "one", data: bytes | None = b"1") -> tuple[UpdateAnswer, ...]:
    """The answer of a turn to one update."""
    return (UpdateAnswer(id=update_id, state=state, answer=data),)


async def state_of(bench: Bench, record: InstanceRecord, update_id: str = "one") -> UpdateState | None:
    """How far an update has come."""
    row = await bench.store.read_update(record.number, update_id)
    return None if row is None else row.state


async def inbox(bench: Bench, record: InstanceRecord) -> list[int]:
    """The rows of the updates that wait for an instance."""
    loaded = await bench.store.load(record.number, record.execution)
    return [row.row for row in loaded.inbox if isinstance(decode_event(row.event), UpdateAccepted)]


class UpdateRules(Rules):
    """What becomes of an update."""

    def test_G14_a_turn_does_not_close_before_its_owner_has_read_the_updates(self) -> None:
        async def case(bench: Bench) -> None:
            await refuses_to_close_unread(bench, update("a"))

        self.on_bench(case)

    def test_G7_the_updates_of_an_instance_are_listed_by_their_ids(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            await bench.started("other")
            for name in ("two", "one", "three"):
                await deliver(bench, update("a", name))
            await deliver(bench, update("other", "four"))
            found = await bench.store.read_updates(record.number, 2)
            check([(row.id, row.state) for row in found] == [("one", UpdateState.ASKED), ("three", UpdateState.ASKED)])
            check(len(await bench.store.read_updates(record.number, 10)) == len(("one", "two", "three")))

        self.on_bench(case)

    def test_G3_an_update_id_with_another_content_is_a_conflict(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(await deliver(bench, update("a")) is EventVerdict.DELIVER)
            check(await deliver(bench, update("a")) is EventVerdict.DUPLICATE)
            check(await deliver(bench, update("a", data=b"2")) is EventVerdict.CONFLICT)
            check(await deliver(bench, update("a", name="take")) is EventVerdict.CONFLICT)
            check(len(await inbox(bench, record)) == 1)

        self.on_bench(case)

    def test_G17_a_start_brings_an_update_to_a_new_and_to_an_existing_instance(self) -> None:
        async def case(bench: Bench) -> None:
            created = await bench.one(start("a", mail=update("a")))
            check(isinstance(created, StartedInstance) and created.created and created.mail is not None)
            record = created.instance if isinstance(created, StartedInstance) else await bench.started("b")
            check(await state_of(bench, record) is UpdateState.ASKED)
            check(len(await inbox(bench, record)) == 1)
            for update_id, verdict in (("one", EventVerdict.DUPLICATE), ("two", EventVerdict.DELIVER)):
                found = await bench.one(start("a", mail=update("a", update_id)))
                check(isinstance(found, StartedInstance) and not found.created)
                check(isinstance(found, StartedInstance) and found.mail is not None and found.mail.verdict is verdict)
            check(len(await inbox(bench, record)) == len(("one", "two")))

        self.on_bench(case)

    def test_G17_the_update_of_a_start_that_is_rejected_is_not_delivered(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(isinstance(await bench.one(start("a", given=b"[9]", mail=update("a"))), Rejected))
            check(await state_of(bench, record) is None)
            check(await inbox(bench, record) == [])

        self.on_bench(case)

    def test_G4_an_update_does_not_make_an_execution_claimable_that_takes_none(self) -> None:
        """With an empty name among the awaited events the update is for the next execution."""

        async def case(bench: Bench) -> None:
            for instance_id, waits, is_claimable in (("a", ("",), False), ("b", ("go",), True)):
                record = await bench.started(instance_id, activities=0)
                check(applied(await bench.one(turn(record, waits=waits))))
                check(await deliver(bench, update(instance_id)) is EventVerdict.DELIVER)
                check(applied(await bench.one(Release(number=record.number, owner=ANNA, fence=record.fence))))
                at_ms = (await bench.instance(instance_id)).claimable_at_ms
                check((at_ms is not None) == is_claimable)

        self.on_bench(case)

    def test_G5_an_update_wakes_an_instance_whatever_it_waits_for(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(Release(number=record.number, owner=ANNA, fence=record.fence))))
            check(await claimable(bench) == [])
            check(await deliver(bench, update("a")) is EventVerdict.DELIVER)
            check(await state_of(bench, record) is UpdateState.ASKED)
            check(await claimable(bench) == ["a"])
            check(len(await inbox(bench, record)) == 1)

        self.on_bench(case)

    def test_G5_a_waiting_update_makes_a_released_instance_claimable(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(await deliver(bench, update("a")) is EventVerdict.DELIVER)
            check(applied(await bench.one(Release(number=record.number, owner=ANNA, fence=record.fence))))
            check(await claimable(bench) == ["a"])

        self.on_bench(case)

    def test_G6_the_same_id_is_one_update(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            other = await bench.started("b")
            check(await deliver(bench, update("a")) is EventVerdict.DELIVER)
            check(await deliver(bench, update("a")) is EventVerdict.DUPLICATE)
            check(await deliver(bench, update("b")) is EventVerdict.DELIVER, "another instance has its own ids")
            rows = await inbox(bench, record)
            check(len(rows) == 1 and len(await inbox(bench, other)) == 1)
            done = turn(record, consumed=tuple(rows), answers=answer(UpdateState.DONE))
            check(applied(await bench.one(done)))
            check(await deliver(bench, update("a")) is EventVerdict.DUPLICATE)
            check(await inbox(bench, record) == [])

        self.on_bench(case)

    def test_G11_an_answer_commits_with_its_turn_and_once(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(await deliver(bench, update("a")) is EventVerdict.DELIVER)
            stale = turn(record, fence=Fence(record.fence + 1), answers=answer(UpdateState.DONE))
            check(isinstance(await bench.one(stale), Rejected))
            check(await state_of(bench, record) is UpdateState.ASKED)
            accepted = turn(record, answers=answer(UpdateState.ACCEPTED, data=None))
            check(applied(await bench.one(accepted)))
            check(await state_of(bench, record) is UpdateState.ACCEPTED)
            record = await bench.instance("a")
            check(applied(await bench.one(turn(record, answers=answer(UpdateState.DONE)))))
            row = await bench.store.read_update(record.number, "one")
            check(row is not None and row.answer == b"1" and row.state is UpdateState.DONE)
            record = await bench.instance("a")
            second = await bench.one(turn(record, answers=answer(UpdateState.FAILED, data=b"2")))
            check(not applied(second), "what has an answer keeps it")
            check(await state_of(bench, record) is UpdateState.DONE)

        self.on_bench(case)

    def test_G9_a_rejection_leaves_no_turn_and_the_id_may_be_sent_again(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(await deliver(bench, update("a")) is EventVerdict.DELIVER)
            rows = tuple(await inbox(bench, record))
            refused = turn(record, events=b"", consumed=rows, answers=answer(UpdateState.REJECTED))
            check(applied(await bench.one(refused)))
            check((await bench.instance("a")).turn == record.turn)
            check(await state_of(bench, record) is UpdateState.REJECTED)
            check(await deliver(bench, update("a")) is EventVerdict.DELIVER)
            row = await bench.store.read_update(record.number, "one")
            check(row is not None and row.state is UpdateState.ASKED and row.answer is None)
            check(len(await inbox(bench, record)) == 1)

        self.on_bench(case)

    def test_G7_an_update_for_a_closed_or_unknown_instance_is_refused(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            check(await deliver(bench, update("a", "before")) is EventVerdict.DELIVER)
            rows = tuple(await inbox(bench, record))
            check(applied(await bench.one(turn(record, consumed=rows, answers=answer(UpdateState.DONE, "before")))))
            check(await deliver(bench, update("a", "late")) is EventVerdict.DELIVER)
            check(applied(await bench.one(closing(await bench.instance("a")))))
            check(await state_of(bench, record, "late") is None, "a closed instance takes no update")
            check(await state_of(bench, record, "before") is UpdateState.DONE)
            check(await deliver(bench, update("a", "new")) is EventVerdict.CLOSED)
            check(await deliver(bench, update("a", "late")) is EventVerdict.CLOSED)
            check(await deliver(bench, update("a", "before")) is EventVerdict.DUPLICATE)
            check(isinstance(await bench.one(update("missing")), Rejected))

        self.on_bench(case)

    def test_G4_a_waiting_update_is_carried_over_to_the_next_execution(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            check(await deliver(bench, update("a")) is EventVerdict.DELIVER)
            following = NextExecution(input=b"{}", started=start("a").started)
            check(applied(await bench.one(turn(record, next=following))))
            record = await bench.instance("a")
            loaded = await bench.store.load(record.number, record.execution)
            check({row.execution for row in loaded.inbox} == {2} and len(loaded.inbox) == 2)
            check(await state_of(bench, record) is UpdateState.ASKED)

        self.on_bench(case)

    def test_G12_a_blocked_instance_keeps_its_updates_and_is_not_woken(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            block = Block(number=record.number, owner=ANNA, fence=record.fence, reason="no", build="one")
            check(applied(await bench.one(block)))
            check(await deliver(bench, update("a")) is EventVerdict.DELIVER)
            check(await claimable(bench) == [])
            cancel = Deliver(id=InstanceId("a"), event=CancelRequested(time_ms=0))
            check(await deliver(bench, cancel) is EventVerdict.DELIVER)
            check(await state_of(bench, record) is None, "it was closed with the update in its inbox")

        self.on_bench(case)

    def test_updates_without_an_answer_are_bounded(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.started("a", activities=0)
            await bench.commit(*(update("a", f"{number}") for number in range(MAX_OPEN_UPDATES)))
            check(await deliver(bench, update("a", "one more")) is EventVerdict.MAILBOX_FULL)
            check(await deliver(bench, update("a", "1")) is EventVerdict.DUPLICATE)

        self.on_bench(case)
