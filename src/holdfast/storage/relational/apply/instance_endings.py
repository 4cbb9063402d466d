"""The end of an instance, in the transaction that closes it (C5, A9, G5).

Nothing of a closed instance is left that waits: responses count as applied, messages and timers are deleted, open
attempts are cancelled. The parent of a child gets the answer in the same transaction, and so exactly once (G4, G11).
"""

from typing import Final

import msgspec

from holdfast.core.admission import DeliveryVerdict, EventVerdict, MessageKind, decide_delivery
from holdfast.core.checks import require
from holdfast.core.children import child_reply
from holdfast.core.history import (
    CancelRequested,
    ExternalEnd,
    HistoryEvent,
    Payload,
    Started,
    decode_event,
    encode_events,
)
from holdfast.core.lifecycle import InstanceEvent, InstanceState, next_state
from holdfast.storage.instance_endings import (
    CancelResult,
    decide_cancel,
    end_by_cancel,
    end_by_termination,
    error_of,
    outcome_of,
    parent_end_of,
    state_after,
)
from holdfast.storage.records import InboxRow, InstanceNumber, InstanceRecord
from holdfast.storage.relational.apply.attempts import answer_exhausted
from holdfast.storage.relational.apply.shared_writes import hasten_silence, put_in_inbox
from holdfast.storage.relational.apply.withholding import restore_attempts
from holdfast.storage.relational.transaction import Transaction

_payload: Final = msgspec.json.Decoder(Payload)


def answer_parent(transaction: Transaction, number: InstanceNumber, state: InstanceState, outcome: bytes) -> None:
    """Put the result of a child that has ended into its parent's inbox.

    Nothing is delivered if the execution that started the child is over: its answers never reach the next one (G4).
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
            put_in_inbox(transaction, parent, execution, answer)


def settle_pending(transaction: Transaction, number: InstanceNumber) -> None:
    """Apply pending responses, delete messages and timers, and cancel open attempts by the one table (A1).

    Most instances leave nothing behind. Where reads are cheap, one read tells, at a quarter of the cost of the writes.
    """
    sql = transaction.sql
    do = transaction.execute
    if transaction.reads_are_cheap and not transaction.fetch(sql.has_pending, number)[0][0]:
        return
    do(sql.exit_responses, number)
    do(sql.delete_inbox_of_instance, number)
    do(sql.delete_asked_updates, number)
    do(sql.clear_timers, number)
    do(sql.cancel_activities, transaction.now_ms, number)


def terminate(transaction: Transaction, found: InstanceRecord, reason: str) -> None:
    """End an open instance that was read in this transaction."""
    end_from_outside(transaction, found, end_by_termination(found, reason, now_ms=transaction.now_ms))


def end_from_outside(transaction: Transaction, found: InstanceRecord, ended: ExternalEnd) -> None:
    """Close an instance without its code: `ended` becomes the last event of its history, and its parent is answered.

    The row in `closings` says that its children are still to be closed: by the caller, or by any worker (C1).
    """
    number = found.number
    now_ms = transaction.now_ms
    events: list[HistoryEvent] = [ended] if found.turn else [*_unread_start(transaction, number), ended]
    state = state_after(found, ended)
    outcome = outcome_of(ended)
    changed = transaction.update(transaction.sql.terminate_instance, state, outcome, now_ms, number, found.state)
    require(changed == 1, f"instance {number} was not {found.state} any more inside one transaction")
    if (error := error_of(ended)) is not None:
        transaction.update(transaction.sql.set_error, error, number)
    transaction.wakeups.instances.add(number)
    transaction.update(transaction.sql.append_history, number, found.execution, found.turn, encode_events(events))
    settle_pending(transaction, number)
    hasten_silence(transaction, number)
    answer_parent(transaction, number, state, outcome)
    transaction.update(transaction.sql.insert_closing, number, found.execution, parent_end_of(ended))


def _unread_start(transaction: Transaction, number: InstanceNumber) -> list[HistoryEvent]:
    """The start of an instance that has had no turn: its history begins with it, too (G3)."""
    for row in transaction.fetch(transaction.sql.read_inbox, number):
        try:
            event = decode_event(InboxRow(*row).event)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # an unreadable message must not keep the instance open
        if isinstance(event, Started):
            return [event]
    return []


def cancel(transaction: Transaction, found: InstanceRecord, event: CancelRequested) -> CancelResult:
    """Cancel an instance that was read in this transaction, or ask its code to end."""
    result = decide_cancel(found)
    if result.ends_at_once:
        end_from_outside(transaction, found, end_by_cancel(found, event.reason, now_ms=transaction.now_ms))
    elif result.verdict is EventVerdict.DELIVER:
        request_cancel(transaction, found, event)
    return result


def request_cancel(
    transaction: Transaction, found: InstanceRecord, event: CancelRequested, *, at_ms: int | None = None
) -> None:
    """A9: put the request into the inbox of an instance that was read in this transaction.

    The pause of a PAUSED instance ends. Activities whose retries are used up fail behind the request (R27).
    """
    state = next_state(found.state, InstanceEvent.REQUEST_CANCEL)
    changed = transaction.update(transaction.sql.request_cancel, state, found.number, found.state)
    require(changed == 1, f"instance {found.number} was not {found.state} any more inside one transaction")
    put_in_inbox(transaction, found.number, found.execution, event, at_ms=at_ms)
    if found.state is InstanceState.PAUSED:
        answer_exhausted(transaction, found.number)
        restore_attempts(transaction, found)
