"""Apply the members of a restore (R2): the counter of numbers, fences, and the exec ids of external attempts."""

from typing import Final

from holdfast.core.lifecycle import AttemptState
from holdfast.storage.members.outcomes import Applied, Outcome, Rejected, RestoredInstances
from holdfast.storage.members.restoring import NUMBERS_LIFTED, LiftNumbers, RestoreInstances
from holdfast.storage.records import InstanceNumber
from holdfast.storage.relational.apply.attempts import has_new_report
from holdfast.storage.relational.apply.workers import reassign
from holdfast.storage.relational.rows import attempt_of
from holdfast.storage.relational.transaction import Transaction

WORKERS_ARE_ACTIVE: Final = Rejected(reason="a worker is active")
LAST_NUMBER: Final = 2**63 - 1


def apply_lift_numbers(transaction: Transaction, member: LiftNumbers) -> Outcome:
    """R2: the next instance has a number that no instance of the lost time had."""
    if not member.is_forced and transaction.exists(transaction.sql.any_active_worker):
        return WORKERS_ARE_ACTIVE
    if not transaction.update(transaction.sql.lift_numbers, NUMBERS_LIFTED):
        transaction.update(transaction.sql.begin_numbers, NUMBERS_LIFTED)
    return Applied()


def apply_restore_instances(transaction: Transaction, member: RestoreInstances) -> Outcome:
    """R2: a batch of open instances, and the external attempts of all instances up to the last of the batch.

    A closed instance may have an external attempt that was asked to stop and has not answered.
    """
    sql = transaction.sql
    if not member.is_forced and transaction.exists(sql.any_active_worker):
        return WORKERS_ARE_ACTIVE
    raised = [number for (number,) in transaction.fetch(sql.raise_fences, NUMBERS_LIFTED, member.after, member.limit)]
    is_full = len(raised) == member.limit
    last = max(raised) if is_full else LAST_NUMBER
    offers = transaction.fetch(sql.open_external_attempts, member.after, last)
    for exec_id, *columns in offers:
        attempt = attempt_of(tuple(columns))
        if attempt.state is AttemptState.READY or has_new_report(transaction, attempt):
            _rename_offer(transaction, exec_id)
        else:
            reassign(transaction, attempt, is_clean=True)
    transaction.wakeups.everything = True
    return RestoredInstances(
        fences=len(raised), external_attempts=len(offers), last=InstanceNumber(last) if is_full else None
    )


def _rename_offer(transaction: Transaction, exec_id: str) -> None:
    """Give an offer a new exec id of 128 random bits. Reports under the former one are refused, as of an unknown id."""
    [(renamed,)] = transaction.fetch(transaction.sql.rename_offer, exec_id)
    transaction.update(transaction.sql.rename_reports, renamed, exec_id)
