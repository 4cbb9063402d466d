"""The end of an instance: what it leaves behind is settled in the transaction that closes it (C5, A9).

A turn ends its own instance; a termination ends anybody's. Nothing of a closed instance is left that waits.
"""

from typing import Final

import msgspec

from holdfast.core.children import ParentEnd
from holdfast.core.events import (
    DeadlinePassed,
    ExternalEnd,
    HistoryEvent,
    InstanceCancelled,
    InstanceTerminated,
    Payload,
    Started,
    decode_event,
    encode_events,
)
from holdfast.core.gates import stamp_ms
from holdfast.core.lifecycle import InstanceEvent, InstanceState, next_state
from holdfast.core.require import require
from holdfast.storage.contract import InstanceNumber, InstanceRecord
from holdfast.storage.relational.answers import answer_parent
from holdfast.storage.relational.rows import inbox_of
from holdfast.storage.relational.transaction import Transaction

REPLACED: Final = "its id was started again, and the policy was terminate_existing"
"""What those are told who wait for an instance that had to make room (G3)."""

_encode = msgspec.json.Encoder().encode


def leave_nothing_pending(transaction: Transaction, number: InstanceNumber) -> None:
    """Responses count as applied, messages and timers go, and open attempts are cancelled by the one table (A1).

    Most instances leave nothing behind, and one look says so: where looks are cheap it costs a quarter of what it
    spares.
    """
    sql, do = transaction.sql, transaction.do
    if transaction.looks_first and not transaction.rows(transaction.steps.has_pending, number)[0][0]:
        return
    do(sql.exit_responses, number)
    do(sql.clear_inbox, number)
    do(sql.forget_asked_updates, number)
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
    changed = transaction.change(transaction.sql.terminate_instance, state, outcome, now_ms, number, found.state)
    require(changed == 1, f"instance {number} was not {found.state} any more inside one transaction")
    transaction.change(transaction.steps.append_history, number, found.execution, found.turn, encode_events(events))
    leave_nothing_pending(transaction, number)
    answer_parent(transaction, number, state, outcome)
    how = ParentEnd.CANCELLED if isinstance(ended, InstanceCancelled) else ParentEnd.TERMINATED
    transaction.change(transaction.sql.note_closing, number, found.execution, how)


def _unread_start(transaction: Transaction, number: InstanceNumber) -> list[HistoryEvent]:
    """The start of an instance that never took a turn: its history begins with it all the same (G3)."""
    for row in transaction.rows(transaction.sql.read_inbox, number):
        try:
            event = decode_event(inbox_of(row).event)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # what nobody can read must not keep the instance from being ended
        if isinstance(event, Started):
            return [event]
    return []
