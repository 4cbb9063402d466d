"""Continue-as-new (G4): one execution ends and the next begins, in the transaction of the turn that asked for it.

What answers the old execution (completions, fired timers) goes with it; the rest of the inbox is the instance's mailbox
and is carried over. The fence is raised, so that nothing of the old execution fits the new one (G1).
"""

import msgspec

from holdfast.core.events import ANSWERS, decode_event
from holdfast.core.require import require
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.storage.contract import InstanceNumber, NextExecution, Turn
from holdfast.storage.relational import attempts
from holdfast.storage.relational.rows import inbox_of
from holdfast.storage.relational.transaction import Transaction


def begin_next(transaction: Transaction, turn: Turn, number: InstanceNumber, following: NextExecution) -> None:
    """End execution n, whose last turn this is, and create n + 1. The owner keeps it, unless the turn lets it go."""
    change = transaction.change
    execution = turn.execution + 1
    change(transaction.sql.exit_responses, number)
    _clear_answers(transaction, number)
    change(transaction.sql.clear_timers, number)
    change(transaction.sql.cancel_activities, transaction.now_ms, number)
    stored = following.input
    if len(stored) > INLINE_LIMIT_BYTES:
        stored = attempts.keep_input(transaction, number, stored)
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
    change(transaction.sql.carry_inbox, execution, number)
    change(transaction.sql.insert_inbox, number, execution, transaction.now_ms, following.started)


def _clear_answers(transaction: Transaction, number: InstanceNumber) -> None:
    for row in map(inbox_of, transaction.rows(transaction.sql.read_inbox, number)):
        try:
            event = decode_event(row.event)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # what nobody can read is not lost: whoever takes it in says so (G12)
        if isinstance(event, ANSWERS):
            transaction.change(transaction.sql.delete_inbox, row.row, number)
