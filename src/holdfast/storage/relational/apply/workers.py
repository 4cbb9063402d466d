"""Apply heartbeats of workers (W1-W5), the loss of a worker (W6), and the release of rows it does not hold (W3)."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from holdfast.core.leases import (
    LOSS_EVENT,
    Heartbeat,
    HeartbeatReply,
    Renewed,
    WorkerKey,
    WorkerRecord,
    WorkerState,
    judge_heartbeat,
)
from holdfast.core.lifecycle import AttemptEvent, AttemptState, next_state
from holdfast.storage.attempt_endings import end_by_cancel, end_by_loss
from holdfast.storage.members.attempts import OpenNextAttempt
from holdfast.storage.members.outcomes import Applied, Outcome, Rejected
from holdfast.storage.members.workers import MarkWorkerLost, Registration, ReleaseUnknown
from holdfast.storage.records import AttemptRecord, WorkerRow
from holdfast.storage.relational.apply import attempts
from holdfast.storage.relational.rows import attempt_of
from holdfast.storage.relational.transaction import Transaction

NO_DEADLINE_MS: Final = 2**62
"""W10, W11: a worker that stopped or is known to be dead is lost whatever its deadline."""


class LossVerdict(StrEnum):
    """The verdict on the loss of a worker, once for all its rows (G12)."""

    CLEAN = "clean"
    """A clean stop: no loss is counted (W10, A10)."""
    EXPLAINED = "explained"
    """The instance that it was running is known: the loss is counted for that one only."""
    UNEXPLAINED = "unexplained"
    """The instance that it was running is unknown: the loss is counted for each instance that it owned."""


def apply_mark_worker_lost(transaction: Transaction, member: MarkWorkerLost) -> Outcome:
    """W6: make the worker INACTIVE, then release a batch of its rows. Repeated until none is left, by any worker.

    The first member decides the verdict on the loss. Later ones, which may know less or more, use it.
    """
    now_ms = transaction.now_ms
    verdict = _judged_by(member)
    found = transaction.fetch(transaction.sql.lock_worker, member.key)
    if member.instances_only:
        return _release_instances(transaction, member, is_active=[state for state, _ in found] == [WorkerState.ACTIVE])
    deadline_ms = now_ms if member.at_deadline else NO_DEADLINE_MS
    if transaction.update(transaction.sql.mark_worker_lost, member.key, deadline_ms, verdict):
        if member.culprit is not None:
            transaction.update(transaction.sql.count_lost_owner, member.culprit, member.key)
    elif found:
        [(state, judged)] = found
        if state == WorkerState.ACTIVE:
            return Rejected(reason=f"worker {member.key} has renewed its lease")
        verdict = LossVerdict(judged) if judged is not None else verdict
    is_unexplained = int(verdict is LossVerdict.UNEXPLAINED)
    transaction.wakeups.everything = True
    moved = transaction.update(transaction.sql.release_lost_instances, member.key, member.limit, is_unexplained)
    held = [attempt_of(row) for row in transaction.fetch(transaction.sql.owned_attempts, member.key, member.limit)]
    is_clean = verdict is LossVerdict.CLEAN
    gone = [attempt for attempt in held if reassign(transaction, attempt, is_clean=is_clean)]
    return Applied(changed=moved + len(gone), attempts_ended=_ended(gone, transaction.now_ms))


def _release_instances(transaction: Transaction, member: MarkWorkerLost, *, is_active: bool) -> Outcome:
    """W1: release a batch of the instances of a worker that stays ACTIVE."""
    if not is_active:
        return Rejected(reason=f"worker {member.key} is not active")
    if member.culprit is not None:
        transaction.update(transaction.sql.count_lost_owner, member.culprit, member.key)
    transaction.wakeups.everything = True
    return Applied(changed=transaction.update(transaction.sql.release_lost_instances, member.key, member.limit, 0))


def _judged_by(member: MarkWorkerLost) -> LossVerdict:
    if member.is_clean:
        return LossVerdict.CLEAN
    return LossVerdict.UNEXPLAINED if member.unexplained else LossVerdict.EXPLAINED


def apply_release_unknown(transaction: Transaction, member: ReleaseUnknown) -> Outcome:
    """W3: release rows that have not changed since their owner read them, as if the worker were lost."""
    transaction.wakeups.instances.update(owned.number for owned in member.instances)
    moved = sum(
        transaction.update(transaction.sql.release_instance, owned.number, owned.fence, member.owner)
        for owned in member.instances
    )
    gone: list[AttemptRecord] = []
    for owned in member.attempts:
        guard = (member.owner, owned.state, owned.ledger)
        for row in transaction.fetch(transaction.sql.owned_attempt, *owned.key.primary_key, *guard):
            attempt = attempt_of(row)
            if reassign(transaction, attempt, is_clean=False):
                gone.append(attempt)
    return Applied(changed=moved + len(gone), attempts_ended=_ended(gone, transaction.now_ms))


def _ended(gone: Sequence[AttemptRecord], now_ms: int) -> tuple[AttemptRecord, ...]:
    """Those of the reassigned attempts that have ended, as they are now: a released one is READY."""
    return tuple(
        msgspec.structs.replace(
            attempt, state=next_state(attempt.state, LOSS_EVENT[attempt.state]), closed_at_ms=now_ms
        )
        for attempt in gone
        if LOSS_EVENT[attempt.state] is not AttemptEvent.RELEASE
    )


def reassign(transaction: Transaction, attempt: AttemptRecord, *, is_clean: bool) -> bool:
    """End an attempt without a worker: open the next one, release the same one, or end it (W6).

    Returns True. An attempt that was launched and has reports which no worker has handled is left, and False is
    returned: the reports decide about it first (A5).
    """
    event = LOSS_EVENT[attempt.state]
    if attempt.state is AttemptState.QUEUED and attempts.has_new_report(transaction, attempt):
        return False
    if attempt.state is AttemptState.RUNNING:
        ended = end_by_loss(attempt, now_ms=transaction.now_ms, is_clean=is_clean)
        if isinstance(ended, OpenNextAttempt):
            attempts.apply_open_next_attempt(transaction, ended)
        else:
            attempts.apply_completion(transaction, ended)
    elif event is AttemptEvent.RELEASE:
        attempts.release(transaction, attempt)
    else:
        attempts.apply_completion(transaction, end_by_cancel(attempt, event, now_ms=transaction.now_ms))
    return True


def apply_worker_heartbeat(transaction: Transaction, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
    """Judge a heartbeat by the worker's row, and register the worker or renew its lease."""
    sql = transaction.sql
    rows = transaction.fetch(sql.read_worker, beat.key)
    record: WorkerRecord | None = None
    if rows:
        row = WorkerRow(*rows[0])
        record = WorkerRecord(WorkerKey(row.key), WorkerState(row.state), row.token, row.deadline_ms)
    _, reply = judge_heartbeat(record, beat, now_ms=transaction.now_ms)
    if isinstance(reply, Renewed):
        lease = (reply.token, reply.deadline_ms, reply.lease_ms)
        if record is None:
            about = (registration.host, registration.queues, registration.build)
            code = (registration.workflows, registration.activities, registration.abandoned, registration.versions)
            now_ms = transaction.now_ms
            transaction.update(sql.register_worker, beat.key, *lease, *about, now_ms, registration.slots, *code)
        else:
            transaction.update(sql.renew_lease, *lease, registration.abandoned, beat.key, record.token)
    return reply
