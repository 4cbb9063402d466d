"""Rows of the inbox become messages for a live instance, each once (L11), with what changes when they are read."""

from collections.abc import Iterable
from typing import Final

from holdfast.core.events import ActivityCompleted, ActivityFailed, ActivityYielded, Input, Started, decode_event
from holdfast.core.ledger import exit_leg2, read
from holdfast.core.lifecycle import AttemptState
from holdfast.runtime.live import LiveInstance, Message
from holdfast.storage.contract import AppliedValues, AttemptRecord, InboxRow, Transition

ANSWERED: Final = (AttemptState.COMPLETED, AttemptState.FAILED)
"""The states of an attempt whose body had the last word."""


def take_in(live: LiveInstance, rows: Iterable[InboxRow], attempts: Iterable[AttemptRecord]) -> None:
    """Put what is new into the queue of the instance. A row that nobody can decode raises."""
    by_key = {(attempt.key.activity, attempt.key.attempt): attempt for attempt in attempts}
    for row in rows:
        event = decode_event(row.event)
        if isinstance(event, Input) and row.row > live.last_row:
            live.last_row = row.row
            message = Message(event, row=row.row, response=exit_of(event, by_key))
            # A start goes before what the last execution left in the mailbox (G4).
            (live.queue.appendleft if type(event) is Started else live.queue.append)(message)


def exit_of(event: Input, attempts: dict[tuple[int, int], AttemptRecord]) -> Transition | AppliedValues | None:
    """The leg 2 exit of a response that waited in the inbox (L5, L6).

    That an attempt timed out is no response of it, also while values that it yielded before are unapplied (A8).
    """
    match event:
        case ActivityCompleted() | ActivityFailed():
            attempt = attempts.get((event.activity, event.attempt))
            if attempt is None or attempt.state not in ANSWERED or not read(attempt.ledger).unapplied_responses:
                return None
            return Transition(
                key=attempt.key,
                owner=attempt.owner,
                from_state=attempt.state,
                from_ledger=attempt.ledger,
                to_state=attempt.state,
                to_ledger=exit_leg2(attempt.ledger, final=True),
            )
        case ActivityYielded():
            attempt = attempts.get((event.activity, event.attempt))
            return None if attempt is None else AppliedValues(key=attempt.key, count=len(event.numbers))
        case _:
            return None
