"""Apply a turn, all or nothing (G11): history, attempts, effects, and the end of the execution.

With continue-as-new (G4) one execution ends and the next begins in the same transaction. Answers to the old execution
(completions, fired timers) are deleted; the rest of the inbox is carried over. The fence is raised, so that no turn of
the old execution fits the new one (G1).
"""

from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.checks import require
from holdfast.core.history import ANSWERS, decode_event
from holdfast.storage.members.outcomes import APPLIED, Applied, EndedInstance, Outcome, Rejected
from holdfast.storage.members.turns import NextExecution, Turn, TurnEffects
from holdfast.storage.records import InboxRow, InstanceNumber, StateValue
from holdfast.storage.relational.apply import attempts
from holdfast.storage.relational.apply.attributes import write_attributes
from holdfast.storage.relational.apply.children import end_with_relatives, write_children
from holdfast.storage.relational.apply.instance_endings import settle_pending
from holdfast.storage.relational.apply.messages import write_answers, write_mailbox
from holdfast.storage.relational.apply.shared_writes import (
    hasten_silence,
    input_column,
    insert_payloads,
    large_input,
)
from holdfast.storage.relational.apply.streams import enter_with_turn, exit_pending, undo_values
from holdfast.storage.relational.transaction import Transaction
from holdfast.storage.versions import stored_version

if TYPE_CHECKING:
    from holdfast.storage.members.attempts import Completion

_STALE: Final = "an answer was stale"
_MOVED_ON: Final = "the fence, the owner or the turn has moved on"
_NOT_READ: Final = "an event or an update came before the end, and the owner has not read it"


def start_next_execution(
    transaction: Transaction, turn: Turn, number: InstanceNumber, following: NextExecution, *, release: bool
) -> None:
    """End execution n, whose last turn this is, and create n + 1. The owner keeps it unless it is released."""
    change = transaction.update
    execution = turn.execution + 1
    change(transaction.sql.exit_responses, number)
    _clear_answers(transaction, number)
    change(transaction.sql.clear_timers, number)
    change(transaction.sql.cancel_activities, transaction.now_ms, number)
    hasten_silence(transaction, number)
    large = large_input(following.input)
    if large is not None:
        insert_payloads(transaction, number, (large,))
    changed = change(
        transaction.sql.continue_instance,
        execution,
        input_column(following.input, large),
        None if release else turn.owner,
        0 if release else None,
        number,
        turn.execution,
    )
    require(changed == 1, f"instance {number} was not in execution {turn.execution} any more inside one transaction")
    if following.is_on_newest:
        change(transaction.sql.set_version, stored_version(None), number)
    change(transaction.sql.move_inbox, execution, number)
    change(transaction.sql.insert_inbox, number, execution, transaction.now_ms, following.started)
    transaction.wakeups.instances.add(number)


def _clear_answers(transaction: Transaction, number: InstanceNumber) -> None:
    for columns in transaction.fetch(transaction.sql.read_inbox, number):
        row = InboxRow(*columns)
        try:
            event = decode_event(row.event)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # an unreadable message is carried over, and blocks the instance when it is applied (G12)
        if isinstance(event, ANSWERS):
            transaction.update(transaction.sql.delete_inbox, row.row, number)


def write_state_values(transaction: Transaction, number: InstanceNumber, changes: tuple[StateValue, ...]) -> None:
    """Set and delete state values. They belong to the instance: later executions have them, too."""
    for change in changes:
        if change.value is None:
            transaction.execute(transaction.sql.delete_state_value, number, change.key)
        else:
            transaction.execute(transaction.sql.set_state_value, number, change.key, change.value)


def apply_turn(transaction: Transaction, turn: Turn) -> Outcome:
    """Apply the completions, then the guard of the instance, then the rest. A rejected turn keeps its completions."""
    stale: list[Completion] = []
    for one in turn.completions:
        if not attempts.close_by_completion(transaction, one, one.applied_ledger):
            stale.append(one)  # noqa: PERF401 - nearly never there
    if turn.effects is not None:
        return _apply_with_effects(transaction, turn, turn.effects, stale)
    if not stale and _advance(transaction, turn):
        write_turn(transaction, turn, turn.number)
        return APPLIED
    return _reject(transaction, turn, stale, _STALE if stale else _MOVED_ON)


def _apply_with_effects(
    transaction: Transaction, turn: Turn, effects: TurnEffects, stale: "list[Completion]"
) -> Outcome:
    values = effects.stream_values
    entered = not values or enter_with_turn(transaction, values)
    has_read_all = _has_read_all(transaction, turn.number, effects.read_to)
    if not stale and entered and has_read_all and _advance(transaction, turn):
        for applied in effects.applied_values:
            exit_pending(transaction, applied)
        ended = write_turn(transaction, turn, turn.number)
        return Applied(ended=ended) if ended else APPLIED
    if values and entered:
        undo_values(transaction, values)
    if not has_read_all:
        return _reject(transaction, turn, stale, _NOT_READ)
    return _reject(transaction, turn, stale, _STALE if stale or not entered else _MOVED_ON)


def _reject(transaction: Transaction, turn: Turn, stale: "list[Completion]", reason: str) -> Rejected:
    """Put the completions that were not stale into the inbox, so that another turn applies them.

    A failure that is stale because the activity was cancelled meanwhile is answered by `ActivityCancelled`.
    """
    for completion in turn.completions:
        if completion not in stale:
            attempts.reopen_for_inbox(transaction, completion)
        else:
            attempts.end_as_cancelled(transaction, completion, by_owner=completion.by_owner)
    return Rejected(reason=reason, stale=tuple(completion.key for completion in stale))


def _has_read_all(transaction: Transaction, number: InstanceNumber, read_to: int | None) -> bool:
    return read_to is None or transaction.exists(transaction.sql.has_read_all, number, read_to)


def _advance(transaction: Transaction, turn: Turn) -> bool:
    after = turn.turn + 1 if turn.events else turn.turn
    number = turn.number
    fence = turn.fence
    owner = turn.owner
    before = turn.turn
    sql = transaction.sql
    stamp_ms = turn.stamp_ms
    if before == 0:
        transaction.wakeups.instances.add(number)  # a client may wait for the first turn
    if turn.key is not None:
        return transaction.update(sql.commit_flow_turn, after, stamp_ms, turn.key, number, fence, owner, before) > 0
    return transaction.update(sql.commit_turn, after, stamp_ms, number, fence, owner, before) > 0


def write_turn(transaction: Transaction, turn: Turn, number: InstanceNumber) -> tuple[EndedInstance, ...]:
    """Write a turn whose guard holds. Returns the children that ended with it."""
    execution = turn.execution
    if turn.events:
        transaction.update(transaction.sql.append_history, number, execution, turn.turn, turn.events)
    for new in turn.attempts:
        attempts.insert_attempt(transaction, number, execution, new)
    return () if turn.effects is None else _write_effects(transaction, turn, turn.effects, number)


def _write_effects(
    transaction: Transaction, turn: Turn, effects: TurnEffects, number: InstanceNumber
) -> tuple[EndedInstance, ...]:
    execution = turn.execution
    change = transaction.update
    if effects.version is not None:
        transaction.update(transaction.sql.set_version, stored_version(effects.version), number)
    insert_payloads(transaction, number, effects.payloads)
    for row in effects.consumed:
        require(change(transaction.sql.delete_inbox, row, number) == 1, f"message {row} of instance {number} was gone")
    for response in effects.responses:
        attempts.move_digits(transaction, response.key, response.from_ledger, response.to_ledger)
    for activity in effects.abandoned:
        transaction.execute(transaction.sql.cancel_activity, transaction.now_ms, number, execution, activity)
    if effects.abandoned:
        hasten_silence(transaction, number)
    for activity in effects.activities_asked:
        attempts.cancel_newest(transaction, number, execution, activity)
    for timer in effects.timers_started:
        change(transaction.sql.start_timer, number, execution, timer.timer, timer.due_at_ms)
    for fired in effects.timers_ended:
        change(transaction.sql.end_timer, number, execution, fired)
    ended: tuple[EndedInstance, ...] = ()
    if effects.changes_children:  # before the messages: one of them may be for a child that this turn starts
        ended = write_children(transaction, effects, number, execution)
    write_mailbox(transaction, effects, number, execution)
    if effects.state_values or effects.answers:
        write_state_values(transaction, number, effects.state_values)
        write_answers(transaction, number, effects.answers)
        transaction.wakeups.instances.add(number)
    if effects.attributes:
        write_attributes(transaction, number, effects.attributes)
    return ended + _leave(transaction, turn, effects, number)


def _leave(
    transaction: Transaction, turn: Turn, effects: TurnEffects, number: InstanceNumber
) -> tuple[EndedInstance, ...]:
    """End the instance, or its execution, which the next one follows (G4), or release the instance (G2)."""
    close = effects.close
    if close is not None:
        settle_pending(transaction, number)
        transaction.update(transaction.sql.close_instance, close.state, close.outcome, transaction.now_ms, number)
        transaction.wakeups.instances.add(number)
        if close.error is not None:
            transaction.update(transaction.sql.set_error, close.error, number)
    elif effects.next is not None:
        start_next_execution(transaction, turn, number, effects.next, release=effects.release)
    else:
        if effects.release:
            transaction.update(transaction.sql.release_instance, number, turn.fence, turn.owner)
            transaction.wakeups.instances.add(number)
        return ()
    return end_with_relatives(transaction, number, turn.execution, close) if effects.has_relatives else ()
