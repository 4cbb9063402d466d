"""Continue-as-new (G4): one execution ends and the next begins, in the transaction of the turn that asked for it.

What answers the old execution (completions, fired timers) goes with it; the rest of the inbox is the instance's mailbox
and is carried over. The fence is raised, so that nothing of the old execution fits the new one (G1).

The key-values of instances: changed in the turn that changes them, kept by instance number (G4, G11).
"""

from typing import TYPE_CHECKING

import msgspec

from holdfast.core.checks import require
from holdfast.core.history import ANSWERS, decode_event
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.storage.members.outcomes import APPLIED, Applied, EndedInstance, Outcome, Rejected
from holdfast.storage.members.turns import NextExecution, Turn
from holdfast.storage.records import InboxRow, InstanceNumber, StateValue
from holdfast.storage.relational.apply import attempts
from holdfast.storage.relational.apply.children import tell_relatives, write_children
from holdfast.storage.relational.apply.instance_endings import settle_pending
from holdfast.storage.relational.apply.messages import write_answers, write_mail
from holdfast.storage.relational.apply.shared_writes import insert_payloads, keep_input
from holdfast.storage.relational.apply.streams import enter_with_turn, exit_pending, undo_values
from holdfast.storage.relational.transaction import Transaction

if TYPE_CHECKING:
    from holdfast.storage.members.attempts import Completion


def start_next_execution(
    transaction: Transaction, turn: Turn, number: InstanceNumber, following: NextExecution
) -> None:
    """End execution n, whose last turn this is, and create n + 1. The owner keeps it, unless the turn lets it go."""
    change = transaction.update
    execution = turn.execution + 1
    change(transaction.sql.exit_responses, number)
    _clear_answers(transaction, number)
    change(transaction.sql.clear_timers, number)
    change(transaction.sql.cancel_activities, transaction.now_ms, number)
    stored = following.input
    if len(stored) > INLINE_LIMIT_BYTES:
        stored = keep_input(transaction, number, stored)
    changed = change(
        transaction.sql.continue_instance,
        execution,
        stored,
        None if turn.release else turn.owner,
        0 if turn.release else None,
        number,
        turn.execution,
    )
    require(changed == 1, f"instance {number} was not in execution {turn.execution} any more inside one transaction")
    change(transaction.sql.move_inbox, execution, number)
    change(transaction.sql.insert_inbox, number, execution, transaction.now_ms, following.started)


def _clear_answers(transaction: Transaction, number: InstanceNumber) -> None:
    for columns in transaction.fetch(transaction.sql.read_inbox, number):
        row = InboxRow(*columns)
        try:
            event = decode_event(row.event)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # what nobody can read is not lost: whoever takes it in says so (G12)
        if isinstance(event, ANSWERS):
            transaction.update(transaction.sql.delete_inbox, row.row, number)


def keep(transaction: Transaction, number: InstanceNumber, changes: tuple[StateValue, ...]) -> None:
    """Part of a guarded turn. A later execution of the instance finds what an earlier one kept."""
    for kept in changes:
        if kept.value is None:
            transaction.execute(transaction.sql.delete_state_value, number, kept.key)
        else:
            transaction.execute(transaction.sql.set_state_value, number, kept.key, kept.value)


# ---------------------------------------------------------------- turns


def apply_turn(transaction: Transaction, turn: Turn) -> Outcome:
    """Completions first, then the instance's guard, then what the turn did. A rejected turn keeps its completions."""
    stale: list[Completion] = []
    for one in turn.completions:
        if not attempts.close_by_completion(transaction, one, one.applied_ledger):
            stale.append(one)  # noqa: PERF401 - nearly never there
    entered = not turn.entries or enter_with_turn(transaction, turn.entries)
    has_read_all = turn.read_to is None or transaction.exists(transaction.sql.has_read_all, turn.number, turn.read_to)
    if not stale and entered and has_read_all and _advance(transaction, turn):
        for left in turn.yields:
            exit_pending(transaction, left)
        ended = write_turn(transaction, turn, turn.number)
        return Applied(ended=ended) if ended else APPLIED
    if turn.entries and entered:
        undo_values(transaction, turn.entries)
    for completion in turn.completions:
        if completion not in stale:
            attempts.reopen_for_inbox(transaction, completion)
    if not has_read_all:
        return Rejected(reason="an event or an update came before the end, and the owner has not read it")
    is_stale = stale or not entered
    return Rejected(reason="an answer was stale" if is_stale else "the fence, the owner or the turn has moved on")


def _advance(transaction: Transaction, turn: Turn) -> bool:
    after = turn.turn + 1 if turn.events else turn.turn
    sql, number, fence, owner = transaction.sql, turn.number, turn.fence, turn.owner
    if turn.key is not None:
        key = turn.key
        return transaction.update(sql.commit_flow_turn, after, turn.stamp_ms, key, number, fence, owner, turn.turn) > 0
    return transaction.update(sql.commit_turn, after, turn.stamp_ms, number, fence, owner, turn.turn) > 0


def write_turn(transaction: Transaction, turn: Turn, number: InstanceNumber) -> tuple[EndedInstance, ...]:
    """What the turn did. Which of its children ended with it."""
    execution = turn.execution
    if turn.events:
        transaction.update(transaction.sql.append_history, number, execution, turn.turn, turn.events)
    for new in turn.attempts:
        attempts.insert_attempt(transaction, number, execution, new)
    return () if turn.is_plain else _write_rest(transaction, turn, number)


def _write_rest(transaction: Transaction, turn: Turn, number: InstanceNumber) -> tuple[EndedInstance, ...]:
    """What most turns do not do."""
    execution, change = turn.execution, transaction.update
    ended: tuple[EndedInstance, ...] = ()
    if turn.payloads:
        insert_payloads(transaction, number, turn.payloads)
    for row in turn.consumed:
        require(change(transaction.sql.delete_inbox, row, number) == 1, f"message {row} of instance {number} was gone")
    for response in turn.responses:
        attempts.move_digits(transaction, response.key, response.from_ledger, response.to_ledger)
    for activity in turn.abandoned:
        transaction.execute(transaction.sql.cancel_activity, transaction.now_ms, number, execution, activity)
    for timer in turn.timers_started:
        change(transaction.sql.start_timer, number, execution, timer.timer, timer.due_at_ms)
    for fired in turn.timers_ended:
        change(transaction.sql.end_timer, number, execution, fired)
    if turn.has_mail or turn.family:
        ended = _tell_others(transaction, turn, number)
    if turn.kept or turn.answers:
        keep(transaction, number, turn.kept)
        write_answers(transaction, number, turn.answers)
    if turn.close is not None or turn.next is not None or turn.release:
        ended += _leave(transaction, turn, number)
    return ended


def _tell_others(transaction: Transaction, turn: Turn, number: InstanceNumber) -> tuple[EndedInstance, ...]:
    """Children first: an event may be for one that this turn starts."""
    ended = write_children(transaction, turn, number) if turn.family else ()
    if turn.has_mail:
        write_mail(transaction, turn, number)
    return ended


def _leave(transaction: Transaction, turn: Turn, number: InstanceNumber) -> tuple[EndedInstance, ...]:
    """The instance ends, or its execution does and the next begins (G4), or the instance is let go of (G2)."""
    if turn.close is not None:
        settle_pending(transaction, number)
        close = turn.close
        transaction.update(transaction.sql.close_instance, close.state, close.outcome, transaction.now_ms, number)
    elif turn.next is not None:
        start_next_execution(transaction, turn, number, turn.next)
    else:
        transaction.update(transaction.sql.release_instance, number, turn.fence, turn.owner)
        return ()
    return tell_relatives(transaction, turn, number) if turn.family else ()
