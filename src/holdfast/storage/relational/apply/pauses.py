"""Apply requests to pause and to resume an instance (R20-R27)."""

from holdfast.core.checks import require
from holdfast.core.lifecycle import InstanceEvent, InstanceState, next_state
from holdfast.core.pauses import PauseVerdict, ResumeVerdict, decide_pause, decide_resume
from holdfast.storage.members.instances import Pause, Resume
from holdfast.storage.members.outcomes import EndedInstance, Outcome, PausedInstance, Rejected, ResumedInstance
from holdfast.storage.records import DeadlineRecord, InstanceRecord
from holdfast.storage.relational.apply.attempts import answer_exhausted
from holdfast.storage.relational.apply.deadlines import enforce
from holdfast.storage.relational.apply.withholding import pause_instance, restore_attempts
from holdfast.storage.relational.rows import instance_of
from holdfast.storage.relational.transaction import Transaction


def _locked(transaction: Transaction, member: Pause | Resume) -> InstanceRecord | None:
    sql = transaction.sql
    by_id = (sql.lock_instance_by_id, member.id)
    rows = transaction.fetch(*(by_id if member.number is None else (sql.lock_instance, member.number)))
    return instance_of(rows[0]) if rows else None


def apply_pause(transaction: Transaction, member: Pause) -> Outcome:
    """Pause an instance, and withhold its READY attempts. A second pause changes nothing."""
    found = _locked(transaction, member)
    if found is None:
        return Rejected(reason=f"no instance has the id {member.id!r}")
    verdict = decide_pause(found.state)
    if verdict is PauseVerdict.PAUSE:
        is_paused = pause_instance(transaction, found.number, member.reason)
        require(is_paused, f"instance {found.number} was not {found.state} any more inside one transaction")
    return PausedInstance(instance=found, verdict=verdict)


def apply_resume(transaction: Transaction, member: Resume) -> Outcome:
    """Let an instance continue. A deadline that passed during the pause is applied in the same transaction (R25)."""
    found = _locked(transaction, member)
    if found is None:
        return Rejected(reason=f"no instance has the id {member.id!r}")
    number = found.number
    rows = transaction.fetch(transaction.sql.read_deadline, number)
    deadline = DeadlineRecord(*rows[0]) if rows else None
    exhausted = transaction.fetch(transaction.sql.exhausted_attempts, number) if member.fail else []
    verdict = decide_resume(
        found.state,
        extends=member.extend_ms > 0,
        has_deadline=deadline is not None,
        fails=member.fail,
        has_exhausted=bool(exhausted),
    )
    if verdict is not ResumeVerdict.RESUME:
        return ResumedInstance(instance=found, verdict=verdict)
    event = InstanceEvent.RESUME if found.has_begun else InstanceEvent.RESUME_REQUESTED
    state = next_state(found.state, event)
    claimable_at_ms = 0 if found.has_begun else found.start_at_ms or 0
    changed = transaction.update(
        transaction.sql.resume_instance, state, claimable_at_ms, member.extend_ms, number, found.state
    )
    require(changed == 1, f"instance {number} was not {found.state} any more inside one transaction")
    transaction.wakeups.instances.add(number)
    ended: tuple[EndedInstance, ...] = ()
    at_ms = None if deadline is None else deadline.at_ms + member.extend_ms
    if at_ms is not None and at_ms <= transaction.now_ms:
        resumed = instance_of(transaction.fetch(transaction.sql.lock_instance, number)[0])
        deadline = DeadlineRecord(*transaction.fetch(transaction.sql.read_deadline, number)[0])
        _, ended = enforce(transaction, resumed, deadline, applies_at_ms=at_ms)
    if member.fail:
        answer_exhausted(transaction, number)
    queues = restore_attempts(transaction, found)
    now = InstanceState(transaction.fetch(transaction.sql.instance_gate, number)[0][0])
    return ResumedInstance(
        instance=found, verdict=verdict, has_ended=now is InstanceState.FAILED, ended=ended, queues=queues
    )
