"""What a worker had moves on when the worker is gone, or when it does not know it itself (W3, W6)."""

from typing import Final

from holdfast.core.lifecycle import AttemptEvent, AttemptState
from holdfast.core.liveness import LOSS_EVENT, WorkerKey
from holdfast.storage.contract import Applied, AttemptRecord, Disown, Lose, Outcome, Rejected, Retry
from holdfast.storage.endings import end_by_loss, transition
from holdfast.storage.relational import attempts
from holdfast.storage.relational.rows import attempt_of
from holdfast.storage.relational.transaction import Transaction

NO_DEADLINE_MS: Final = 2**62
"""W10, W11: a worker that left or is seen dead is lost whatever its deadline."""


def is_active(transaction: Transaction, key: WorkerKey) -> bool:
    """W6: whether a worker may act."""
    return transaction.finds(transaction.sql.active_worker, key)


def apply_lose(transaction: Transaction, lose: Lose) -> Outcome:
    """W6: flip the worker, then move a batch of what it had. Repeated until nothing is left."""
    now_ms = transaction.now_ms
    transaction.rows(transaction.sql.hold_worker, lose.key)
    flipped = transaction.change(transaction.sql.lose_worker, lose.key, now_ms if lose.at_deadline else NO_DEADLINE_MS)
    if not flipped and is_active(transaction, lose.key):
        return Rejected(reason=f"worker {lose.key} has renewed its lease")
    if flipped and lose.culprit is not None:
        transaction.change(transaction.sql.count_loss, lose.culprit, lose.key)
    moved = transaction.change(transaction.sql.disown_instances, lose.key, lose.limit, int(lose.unexplained))
    for row in transaction.rows(transaction.sql.held_attempts, lose.key, lose.limit):
        moved += 1
        _move_on(transaction, attempt_of(row), is_clean=lose.is_clean)
    return Applied(changed=moved)


def apply_disown(transaction: Transaction, disown: Disown) -> Outcome:
    """W3: what is as its owner saw it and did not know it moves on, as if its worker were lost."""
    moved = sum(
        transaction.change(transaction.sql.release_instance, held.number, held.fence, disown.owner)
        for held in disown.instances
    )
    for held in disown.attempts:
        key = held.key
        guard = (key.number, key.execution, key.activity, key.dimension, key.attempt, disown.owner)
        for row in transaction.rows(transaction.sql.held_attempt, *guard, held.state, held.ledger):
            moved += 1
            _move_on(transaction, attempt_of(row), is_clean=False)
    return Applied(changed=moved)


def _move_on(transaction: Transaction, attempt: AttemptRecord, *, is_clean: bool) -> None:
    """Nobody looks after an attempt any more: the next one, or the same one again, or its end (W6)."""
    event = LOSS_EVENT[attempt.state]
    if attempt.state is AttemptState.RUNNING:
        ended = end_by_loss(attempt, now_ms=transaction.now_ms, is_clean=is_clean)
        if isinstance(ended, Retry):
            attempts.apply_retry(transaction, ended)
        else:
            attempts.apply_completion(transaction, ended)
    elif event is AttemptEvent.RELEASE:
        attempts.release(transaction, attempt)
    else:
        attempts.move_attempt(transaction, transition(attempt, event))
