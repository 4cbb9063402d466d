"""The end of an instance: what it leaves behind is settled in the transaction that closes it (C5, A9).

A turn ends its own instance; a termination ends anybody's. Nothing of a closed instance is left that waits.

The end of a child tells its parent, in the transaction that ends it, and so once (G4, G5, G11).

Requests to end (A9): the code is asked, except where there is none to ask. Twice is the same as once.
"""

from typing import Final, NamedTuple

import msgspec

from holdfast.core.admission import DeliveryVerdict, EventVerdict, MessageKind, decide_delivery, stamp_ms
from holdfast.core.checks import require
from holdfast.core.children import ParentEnd, child_reply
from holdfast.core.history import (
    CancelRequested,
    ChildAnswer,
    DeadlinePassed,
    ExternalEnd,
    HistoryEvent,
    InstanceCancelled,
    InstanceTerminated,
    Payload,
    Started,
    decode_event,
    encode_event,
    encode_events,
)
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceEvent, InstanceState, next_state
from holdfast.storage.records import InboxRow, InstanceNumber, InstanceRecord
from holdfast.storage.relational.apply.shared_writes import put
from holdfast.storage.relational.transaction import Transaction

_payload: Final = msgspec.json.Decoder(Payload)


def answer_parent(transaction: Transaction, number: InstanceNumber, state: InstanceState, outcome: bytes) -> None:
    """An instance has ended. If it is a child, and the execution that started it is the active one, that one is told.

    What answers an execution that is over never reaches the next (G4).
    """
    for parent, addressed_to, child, parent_state, execution, owner in transaction.fetch(
        transaction.sql.parent_of, number
    ):
        verdict = decide_delivery(
            MessageKind.CHILD_RESULT,
            state=parent_state,
            loop_is_active=owner is not None,
            addressed_to=addressed_to,
            execution=execution,
        )
        if verdict is not DeliveryVerdict.DROP:
            payload = _payload.decode(outcome)
            for data in (
                transaction.fetch(transaction.sql.read_payload, number, payload.reference) if payload.reference else ()
            ):
                transaction.execute(transaction.sql.insert_payload, payload.reference, parent, *data)
            answer = child_reply(child, state, payload, time_ms=transaction.now_ms)
            tell_parent(transaction, parent, execution, answer)


def tell_parent(transaction: Transaction, parent: InstanceNumber, execution: int, answer: ChildAnswer) -> None:
    """Into the inbox of the parent, stamped now (G10); somebody takes it in."""
    transaction.update(transaction.sql.insert_inbox, parent, execution, transaction.now_ms, encode_event(answer))
    transaction.execute(transaction.sql.wake_instance, parent)


REPLACED: Final = "its id was started again, and the policy was terminate_existing"
"""What those are told who wait for an instance that had to make room (G3)."""

_encode = msgspec.json.Encoder().encode


def settle_pending(transaction: Transaction, number: InstanceNumber) -> None:
    """Responses count as applied, messages and timers go, and open attempts are cancelled by the one table (A1).

    Most instances leave nothing behind, and one look says so: where looks are cheap it costs a quarter of what it
    spares.
    """
    sql, do = transaction.sql, transaction.execute
    if transaction.reads_are_cheap and not transaction.fetch(transaction.sql.has_pending, number)[0][0]:
        return
    do(sql.exit_responses, number)
    do(sql.delete_inbox_of_instance, number)
    do(sql.delete_asked_updates, number)
    do(sql.clear_timers, number)
    do(sql.cancel_activities, transaction.now_ms, number)


def terminate(transaction: Transaction, found: InstanceRecord, reason: str) -> None:
    """End an instance that was read in this transaction and is open."""
    ended = InstanceTerminated(time_ms=stamp_ms(found.stamp_ms, transaction.now_ms), reason=reason)
    end_from_outside(transaction, found, ended, next_state(found.state, InstanceEvent.TERMINATE))


def end_from_outside(transaction: Transaction, found: InstanceRecord, ended: ExternalEnd, state: InstanceState) -> None:
    """Close an instance of which no code is asked: the end is the last event of its history. Its parent is told.

    What it means for its children is noted, and is up to the caller, or else to whoever finds the note (C1).
    """
    number, now_ms = found.number, transaction.now_ms
    events: list[HistoryEvent] = [ended] if found.turn else [*_unread_start(transaction, number), ended]
    why = ended.failure if isinstance(ended, DeadlinePassed) else Payload(msgspec.Raw(_encode(ended.reason or None)))
    outcome = _encode(why)
    changed = transaction.update(transaction.sql.terminate_instance, state, outcome, now_ms, number, found.state)
    require(changed == 1, f"instance {number} was not {found.state} any more inside one transaction")
    transaction.update(transaction.sql.append_history, number, found.execution, found.turn, encode_events(events))
    settle_pending(transaction, number)
    answer_parent(transaction, number, state, outcome)
    how = ParentEnd.CANCELLED if isinstance(ended, InstanceCancelled) else ParentEnd.TERMINATED
    transaction.update(transaction.sql.insert_closing, number, found.execution, how)


def _unread_start(transaction: Transaction, number: InstanceNumber) -> list[HistoryEvent]:
    """The start of an instance that never took a turn: its history begins with it all the same (G3)."""
    for row in transaction.fetch(transaction.sql.read_inbox, number):
        try:
            event = decode_event(InboxRow(*row).event)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # what nobody can read must not keep the instance from being ended
        if isinstance(event, Started):
            return [event]
    return []


class CancelResult(NamedTuple):
    """What came of a request, and whether the instance has ended by it already."""

    verdict: EventVerdict
    at_once: bool = False


def cancel(transaction: Transaction, found: InstanceRecord, event: CancelRequested) -> CancelResult:
    """Ask an instance to end that was read in this transaction."""
    if found.state in INSTANCE_FINAL:
        return CancelResult(EventVerdict.CLOSED)
    if found.state is InstanceState.CANCEL_REQUESTED:
        return CancelResult(EventVerdict.DUPLICATE)
    if found.state in (InstanceState.REQUESTED, InstanceState.BLOCKED):
        ended = InstanceCancelled(time_ms=stamp_ms(found.stamp_ms, transaction.now_ms), reason=event.reason)
        end_from_outside(transaction, found, ended, next_state(found.state, InstanceEvent.CANCEL))
        return CancelResult(EventVerdict.DELIVER, at_once=True)
    ask_to_end(transaction, found, event)
    return CancelResult(EventVerdict.DELIVER)


def ask_to_end(transaction: Transaction, found: InstanceRecord, event: CancelRequested) -> None:
    """A9: there is code, and it is told. The instance was read in this transaction."""
    state = next_state(found.state, InstanceEvent.REQUEST_CANCEL)
    changed = transaction.update(transaction.sql.request_cancel, state, found.number, found.state)
    require(changed == 1, f"instance {found.number} was not {found.state} any more inside one transaction")
    put(transaction, found, event, None)
    transaction.execute(transaction.sql.wake_instance, found.number)
