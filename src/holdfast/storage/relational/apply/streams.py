"""Apply streamed values: pending responses that enter leg 2 together (L4, L11, L14, L15).

They are put into the inbox, or leave leg 2 with the turn that applies them in the same commit.
"""

from collections.abc import Sequence

from holdfast.core.checks import require
from holdfast.core.ledger import RESPONSE_ENTRY
from holdfast.core.streams import enter_pending, pass_pending
from holdfast.storage.members.outcomes import Applied, Outcome, Rejected
from holdfast.storage.members.turns import AppliedValues, StreamValues
from holdfast.storage.relational.apply.attempts import refusal_of_cancelled
from holdfast.storage.relational.apply.shared_writes import put_in_inbox
from holdfast.storage.relational.transaction import Transaction


def apply_stream_values(transaction: Transaction, responses: StreamValues) -> Outcome:
    """Without a turn: all of them or none, into the inbox. A repetition changes nothing (L11)."""
    key = responses.key
    now_ms = transaction.now_ms
    count = len(responses.event.numbers)
    entered = enter_pending(responses.from_ledger, count)
    if not _move(transaction, responses, responses.from_ledger, entered):
        if transaction.fetch(transaction.sql.entered_responses, *_guard(responses), entered // RESPONSE_ENTRY):
            return Applied(changed=0)
        rows = transaction.fetch(
            transaction.sql.heartbeat_attempt, now_ms, None, responses.expires_at_ms, *_guard(responses)
        )
        refusal = refusal_of_cancelled(*rows[0]) if rows else None
        return refusal or Rejected(reason="the attempt is closed, or owned by another worker")
    put_in_inbox(transaction, key.number, key.execution, responses.event)
    return Applied(changed=count)


def enter_with_turn(transaction: Transaction, entries: Sequence[StreamValues]) -> bool:
    """Values enter and leave leg 2 with the turn that applied them (L4, L5): all, or none if one of them is stale."""
    for at, responses in enumerate(entries):
        if not _move(transaction, responses, responses.from_ledger, _passed(responses)):
            undo_values(transaction, entries[:at])
            return False
    return True


def undo_values(transaction: Transaction, entries: Sequence[StreamValues]) -> None:
    """Undo the entry of values whose turn is rejected."""
    for responses in reversed(entries):
        moved = _move(transaction, responses, _passed(responses), responses.from_ledger)
        require(moved, f"attempt {responses.key} lost the responses that this transaction added to it")


def _passed(responses: StreamValues) -> int:
    return pass_pending(responses.from_ledger, len(responses.event.numbers))


def _move(transaction: Transaction, responses: StreamValues, before: int, after: int) -> bool:
    """Guarded by all digits but those that count exits, which belong to the instance's turns (decision 14)."""
    bindings = (after - before, transaction.now_ms, responses.expires_at_ms, *_guard(responses))
    return bool(transaction.update(transaction.sql.enter_responses, *bindings, before // RESPONSE_ENTRY))


def _guard(responses: StreamValues) -> tuple[int | str, ...]:
    return *responses.key.primary_key, responses.owner


def exit_pending(transaction: Transaction, left: AppliedValues) -> None:
    """L5: the turn that is being written has applied pending responses of an attempt."""
    changed = transaction.update(transaction.sql.exit_pending, left.count, *left.key.primary_key)
    require(changed == 1, f"attempt {left.key} does not have {left.count} responses that could leave leg 2")
