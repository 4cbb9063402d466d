"""Messages from outside: events that are kept, counted and taken once (G6, G7), and requests to end (A9)."""

import msgspec

from holdfast.core.admission import EventPolicy, EventVerdict, Mailbox
from holdfast.core.history import (
    CancelRequested,
    EventReceived,
    InstanceCancelled,
    Payload,
    decode_event,
    decode_events,
)
from holdfast.core.lifecycle import InstanceState
from holdfast.storage.members.instances import Block, ClaimInstances, Release
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import ClaimedInstances, Delivered, Rejected, StartedInstance
from holdfast.storage.records import InstanceId, InstanceRecord
from holdfast.testing.conformance.bench import (
    ANNA,
    BERT,
    Bench,
    Rules,
    applied,
    check,
    closing,
    first_turn,
    start,
    turn,
)


def event(instance_id: str, name: str = "go", *, message_id: str = "") -> Deliver:
    """An event with the value 1."""
    received = EventReceived(time_ms=0, name=name, value=Payload(msgspec.Raw(b"1")))
    return Deliver(id=InstanceId(instance_id), event=received, message_id=message_id)


def cancel(instance_id: str, reason: str = "") -> Deliver:
    """A request to end."""
    return Deliver(id=InstanceId(instance_id), event=CancelRequested(time_ms=0, reason=reason))


async def deliver(bench: Bench, message: Deliver) -> EventVerdict:
    """Commits a message for an existing instance, and returns the verdict."""
    outcome = await bench.one(message)
    check(isinstance(outcome, Delivered), f"it was not delivered: {outcome}")
    return outcome.verdict if isinstance(outcome, Delivered) else EventVerdict.UNKNOWN


async def waiting(bench: Bench, instance_id: str, *names: str) -> InstanceRecord:
    """An owned instance whose code waits for events of these names."""
    record = await bench.started(instance_id)
    check(applied(await bench.one(turn(record, waits=names))), "the turn was rejected")
    return await bench.instance(instance_id)


async def refuses_to_close_unread(bench: Bench, message: Deliver) -> None:
    """A turn that closes is rejected as a whole: the instance stays open, and the message stays in its inbox."""
    record = await waiting(bench, message.id, "go")
    check(await deliver(bench, message) is EventVerdict.DELIVER)
    [row] = await bench.store.peek_inbox(record.number, 10)
    refused = await bench.one(closing(record, read_to=row.row - 1))
    check(isinstance(refused, Rejected), f"it was closed: {refused}")
    current = await bench.instance(message.id)
    check((current.state, current.turn) == (InstanceState.RUNNING, record.turn))
    check(await bench.store.peek_inbox(record.number, 10) == [row])
    check(applied(await bench.one(closing(record, read_to=row.row))), "everything was read")
    check((await bench.instance(message.id)).state is InstanceState.COMPLETED)


async def claimable(bench: Bench) -> list[str]:
    """Whom the other worker gets."""
    outcome = await bench.one(ClaimInstances(owner=BERT, workflows=("flow",), limit=10))
    return [each.id for each in outcome.instances] if isinstance(outcome, ClaimedInstances) else []


class MessageRules(Rules):
    """G6, G7 and the cancel part of A9."""

    def test_G6_an_inbox_can_be_read_without_owning_the_instance(self) -> None:
        """Events that no wait is open for, in their order; a look takes nothing."""

        async def case(bench: Bench) -> None:
            record = await waiting(bench, "a", "go")
            await waiting(bench, "other", "go")
            for name in ("one", "two", "three"):
                await deliver(bench, event("a", name))
            for _ in range(2):
                found = [decode_event(row.event) for row in await bench.store.peek_inbox(record.number, 2)]
                check([each.name for each in found if isinstance(each, EventReceived)] == ["one", "two"])
            check(len(await bench.store.peek_inbox(record.number, 10)) == len(("one", "two", "three")))

        self.on_bench(case)

    def test_G6_an_awaited_event_wakes_the_instance_and_another_one_is_kept(self) -> None:
        async def case(bench: Bench) -> None:
            record = await waiting(bench, "a", "go")
            check(applied(await bench.one(Release(number=record.number, owner=ANNA, fence=record.fence))))
            check(await deliver(bench, event("a", "other")) is EventVerdict.KEEP)
            check(await claimable(bench) == [], "an event that is not awaited wakes no instance")
            check(await deliver(bench, event("a", "go")) is EventVerdict.DELIVER)
            check(await claimable(bench) == ["a"])
            loaded = await bench.store.load(record.number, 1)
            names = [decode_events(b"[" + row.event + b"]")[0] for row in loaded.inbox]
            check([each.name for each in names if isinstance(each, EventReceived)] == ["other", "go"])

        self.on_bench(case)

    def test_G6_events_that_are_not_awaited_do_not_make_a_released_instance_claimable(self) -> None:
        async def case(bench: Bench) -> None:
            record = await waiting(bench, "a", "go")
            check(await deliver(bench, event("a", "other")) is EventVerdict.KEEP)
            check(applied(await bench.one(Release(number=record.number, owner=ANNA, fence=record.fence))))
            check(await claimable(bench) == [])
            record = await waiting(bench, "b", "go")
            check(await deliver(bench, event("b", "go")) is EventVerdict.DELIVER)
            check(applied(await bench.one(Release(number=record.number, owner=ANNA, fence=record.fence))))
            check(await claimable(bench) == ["b"])

        self.on_bench(case)

    def test_G6_an_event_id_is_delivered_once_and_a_refused_one_may_be_sent_again(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            rules = Mailbox(EventPolicy.MAILBOX, 1)
            check(applied(await bench.one(turn(record, mailbox=rules))))
            check(await deliver(bench, event("a", message_id="one")) is EventVerdict.KEEP)
            check(await deliver(bench, event("a", message_id="one")) is EventVerdict.DUPLICATE)
            check(await deliver(bench, event("a", message_id="two")) is EventVerdict.MAILBOX_FULL)
            record = await bench.instance("a")
            row = (await bench.store.load(record.number, 1)).inbox[0].row
            check(applied(await bench.one(turn(record, consumed=(row,), events_taken=1))))
            check(await deliver(bench, event("a", message_id="two")) is EventVerdict.KEEP, "there is room again")
            check(await deliver(bench, event("a", message_id="one")) is EventVerdict.DUPLICATE, "it was read before")

        self.on_bench(case)

    def test_G6_an_event_id_that_a_turn_set_aside_is_delivered_again(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(await deliver(bench, event("a", message_id="one")) is EventVerdict.KEEP)
            check(await deliver(bench, event("a", message_id="two")) is EventVerdict.KEEP)
            rows = tuple(row.row for row in (await bench.store.load(record.number, 1)).inbox)
            aside = turn(record, consumed=rows, events_taken=2, ids_set_aside=("one",))
            check(isinstance(await bench.one(msgspec.structs.replace(aside, turn=7)), Rejected))
            check(await deliver(bench, event("a", message_id="one")) is EventVerdict.DUPLICATE, "it is still unread")
            check(applied(await bench.one(aside)))
            check(await deliver(bench, event("a", message_id="two")) is EventVerdict.DUPLICATE, "it was read before")
            check(await deliver(bench, event("a", message_id="one")) is EventVerdict.KEEP)
            check(await deliver(bench, event("a", message_id="one")) is EventVerdict.DUPLICATE)

        self.on_bench(case)

    def test_G6_with_drop_unsubscribed_only_awaited_events_are_delivered(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            rules = Mailbox(EventPolicy.DROP_UNSUBSCRIBED, 10)
            check(applied(await bench.one(turn(record, mailbox=rules, waits=("go",)))))
            check(await deliver(bench, event("a", "other", message_id="x")) is EventVerdict.DROP_UNSUBSCRIBED)
            check(await deliver(bench, event("a", "go")) is EventVerdict.DELIVER)
            check(len((await bench.store.load(record.number, 1)).inbox) == 1)

        self.on_bench(case)

    def test_G14_an_event_that_the_first_turn_applied_is_delivered_to_an_existing_instance_only(self) -> None:
        async def case(bench: Bench) -> None:
            begin = start("a", first=first_turn(activities=0), mail=event("a", "go"), mail_taken=True)
            created = await bench.one(begin)
            check(isinstance(created, StartedInstance) and created.created and created.mail is None)
            record = await bench.instance("a")
            check((await bench.store.load(record.number, 1)).inbox == [])
            found = await bench.one(begin)
            check(isinstance(found, StartedInstance) and not found.created and found.mail is not None)
            check(len((await bench.store.load(record.number, 1)).inbox) == 1)

        self.on_bench(case)

    def test_G14_a_turn_does_not_close_before_its_owner_has_read_the_events(self) -> None:
        async def case(bench: Bench) -> None:
            await refuses_to_close_unread(bench, event("a", "go"))

        self.on_bench(case)

    def test_G14_other_messages_do_not_reject_a_closing_turn(self) -> None:
        """A request to end is met by the end; messages for another instance do not count."""

        async def case(bench: Bench) -> None:
            record = await waiting(bench, "a", "go")
            await waiting(bench, "other", "go")
            await deliver(bench, event("other", "go"))
            await deliver(bench, cancel("a"))
            check(applied(await bench.one(closing(record, read_to=0))), "the turn was rejected")

        self.on_bench(case)

    def test_G14_a_turn_without_read_to_closes_whatever_is_in_the_inbox(self) -> None:
        async def case(bench: Bench) -> None:
            record = await waiting(bench, "a", "go")
            await deliver(bench, event("a", "go"))
            check(applied(await bench.one(closing(record))), "the turn was rejected")
            check(await bench.store.peek_inbox(record.number, 10) == [], "the inbox of a closed instance is empty")

        self.on_bench(case)

    def test_G7_a_closed_or_unknown_instance_takes_no_event(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            check(applied(await bench.one(closing(record))))
            check(await deliver(bench, event("a")) is EventVerdict.CLOSED)
            check(await deliver(bench, cancel("a")) is EventVerdict.CLOSED)
            check(isinstance(await bench.one(event("missing")), Rejected))
            check((await bench.store.load(record.number, 1)).inbox == [])

        self.on_bench(case)

    def test_G11_messages_of_a_turn_are_sent_with_its_commit(self) -> None:
        async def case(bench: Bench) -> None:
            sender, target = await bench.started("sender"), await bench.started("target")
            stale = turn(sender, turn=7, sent=(event("target", message_id="never"),))
            check(isinstance(await bench.one(stale), Rejected))
            check((await bench.store.load(target.number, 1)).inbox == [])
            sent = (event("target", message_id="one"), event("missing", message_id="two"))
            check(
                applied(await bench.one(turn(sender, sent=sent))),
                "an unknown target does not reject it",
            )
            check(len((await bench.store.load(target.number, 1)).inbox) == 1)

        self.on_bench(case)

    def test_A9_a_cancel_changes_the_state_and_is_put_into_the_inbox_once(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(await deliver(bench, cancel("a", "enough")) is EventVerdict.DELIVER)
            check(await deliver(bench, cancel("a", "again")) is EventVerdict.DUPLICATE)
            check((await bench.instance("a")).state is InstanceState.CANCEL_REQUESTED)
            inbox = (await bench.store.load(record.number, 1)).inbox
            check(len(inbox) == 1 and b"enough" in inbox[0].event)

        self.on_bench(case)

    def test_A9_an_instance_without_running_code_is_cancelled_at_once(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("unbegun"))
            parked = await bench.started("parked")
            block = Block(number=parked.number, owner=ANNA, fence=parked.fence, reason="no", build="one")
            check(applied(await bench.one(block)))
            for instance_id in ("unbegun", "parked"):
                check(await deliver(bench, cancel(instance_id, "enough")) is EventVerdict.DELIVER)
                closed = await bench.instance(instance_id)
                check(closed.state is InstanceState.CANCELLED and closed.closed_at_ms is not None)
                history = await bench.store.read_history(closed.number, 1)
                check(isinstance(decode_events(history[-1].events)[-1], InstanceCancelled))

        self.on_bench(case)

    def test_A9_a_message_is_deleted_with_its_closed_instance(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            check(await deliver(bench, event("a")) is EventVerdict.KEEP)
            check(applied(await bench.one(closing(record))))
            check(not (await bench.store.load(record.number, 1)).inbox)

        self.on_bench(case)
