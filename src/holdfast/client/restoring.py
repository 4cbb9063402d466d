"""Makes a store fit for use after a backup was restored (R2, R3).

Worker keys end first, so that no worker of the lost time commits from then on. Then the counter of instance numbers is
lifted, and the open instances are walked in batches. Every part is a guarded commit of its own: a crash between two of
them is repaired by another run.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from holdfast.core.activity_options import decode_options
from holdfast.core.checks import require
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.leases import WorkerKey, WorkerState
from holdfast.core.lifecycle import AttemptState
from holdfast.errors import StoreError, UsageError
from holdfast.runtime.committer import Committer
from holdfast.runtime.crash_detection import decode_identity, is_dead, this_process
from holdfast.storage.contract import RestorableStore
from holdfast.storage.members.outcomes import Applied, Failed, Outcome, Rejected, RestoredInstances
from holdfast.storage.members.restoring import LiftNumbers, RestoreInstances
from holdfast.storage.members.workers import MarkWorkerLost
from holdfast.storage.records import AttemptKey, AttemptRecord, InstanceNumber, WorkerRow

BATCH: Final = 500
"""Rows of one commit."""
MOST_NAMED: Final = 5
"""Live workers that a refusal names."""
FIRST: Final = InstanceNumber(0)

RestoreProgress = Callable[[int, int], None]
"""Receives the number of open instances that were restored, and of all open ones."""


class RunningStep(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt whose body was running at the backup (R3)."""

    instance: str
    workflow: str
    execution: int
    activity: str
    number: int
    """The number of the activity in its execution."""
    dimension: str
    attempt: int
    state: AttemptState
    """RUNNING, or CANCELLED_RUNNING if it was asked to stop."""
    queue: str
    external: bool
    worker: str | None
    """The worker that ran it; None for an executor that is not a worker."""
    started_at: dt.datetime | None


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `restored` has changed, or would change."""

    dry_run: bool
    workers: list[str]
    """The keys that it ended."""
    instances: int
    """Open instances whose fence it raised."""
    external_attempts: int
    """External attempts that it gave a new exec id."""
    running: list[RunningStep]
    """What was running at the backup, and runs again."""


async def plan_restore(store: RestorableStore, *, force: bool) -> RestoreReport:
    """What a restore would change. Nothing is changed. `UsageError` while workers are live, unless it is forced."""
    rows = await store.workers()
    live = [row for row in rows if _is_live(row, store.now_ms())]
    if live and not force:
        raise UsageError(_live_text(live, store.now_ms()))
    keys = {row.key for row in rows if row.state == WorkerState.ACTIVE} | set(await store.dead_owners())
    counts = await store.count_restored()
    return RestoreReport(
        dry_run=True,
        workers=sorted(keys),
        instances=counts.instances,
        external_attempts=counts.external_attempts,
        running=await _running(store),
    )


async def restore(
    store: RestorableStore, committer: Committer, *, force: bool, progress: RestoreProgress | None = None
) -> RestoreReport:
    """Run a restore, and report what it has changed. Refused as `plan_restore`."""
    plan = await plan_restore(store, force=force)
    for key in plan.workers:
        await _end_key(committer, WorkerKey(key))
    _check(await committer.commit(LiftNumbers(is_forced=force)))
    fences = external_attempts = 0
    after: InstanceNumber | None = FIRST
    while after is not None:
        batch = _check(await committer.commit(RestoreInstances(after=after, limit=BATCH, is_forced=force)))
        require(isinstance(batch, RestoredInstances), f"a batch of a restore has the outcome {batch}")
        if isinstance(batch, RestoredInstances):
            fences += batch.fences
            external_attempts += batch.external_attempts
            after = batch.last
        if progress is not None:
            progress(fences, plan.instances)
    return msgspec.structs.replace(plan, dry_run=False, instances=fences, external_attempts=external_attempts)


def _is_live(row: WorkerRow, now_ms: int) -> bool:
    """Whether a worker may still act: its lease has not ended, and its process is not known to be dead (W11)."""
    if row.state != WorkerState.ACTIVE or row.deadline_ms <= now_ms:
        return False
    identity = decode_identity(row.host)
    return identity is None or not is_dead(identity, this_process())


def _live_text(live: Sequence[WorkerRow], now_ms: int) -> str:
    named = [
        f"{row.key} (its lease ends in {max(0, row.deadline_ms - now_ms) / MILLISECONDS:.0f} s)"
        for row in live[:MOST_NAMED]
    ]
    more = f" and {len(live) - MOST_NAMED} more" if len(live) > MOST_NAMED else ""
    return (
        f"live workers: {', '.join(named)}{more}. Stop the workers of this store, and run this again when their leases "
        "have ended. A worker that ran at the backup counts as live until then, too. With --force (force=True) live "
        "workers lose their leases now"
    )


async def _end_key(committer: Committer, key: WorkerKey) -> None:
    member = MarkWorkerLost(key=key, at_deadline=False, limit=BATCH, is_clean=True)
    while True:
        outcome = _check(await committer.commit(member))
        if not isinstance(outcome, Applied) or not outcome.changed:
            return


def _check(outcome: Outcome) -> Outcome:
    if isinstance(outcome, Failed):
        raise (
            outcome.error
            if isinstance(outcome.error, StoreError)
            else StoreError(f"the store refused a part of the restore: {outcome.error}")
        ) from outcome.error
    if isinstance(outcome, Rejected):
        raise UsageError(f"the restore is not complete: {outcome.reason}; stop the workers and run it again")
    return outcome


async def _running(store: RestorableStore) -> list[RunningStep]:
    found: list[RunningStep] = []
    after: AttemptKey | None = None
    while True:
        page = await store.running_attempts(after=after, limit=BATCH)
        found += [_step(attempt) for attempt in page]
        if len(page) < BATCH:
            return found
        after = page[-1].key


def _step(attempt: AttemptRecord) -> RunningStep:
    started_ms = attempt.started_at_ms
    return RunningStep(
        instance=attempt.instance_id,
        workflow=attempt.workflow,
        execution=attempt.key.execution,
        activity=attempt.name,
        number=attempt.key.activity,
        dimension=attempt.key.dimension,
        attempt=attempt.key.attempt,
        state=attempt.state,
        queue=attempt.queue,
        external=decode_options(attempt.options).external is not None,
        worker=attempt.owner,
        started_at=None if started_ms is None else dt.datetime.fromtimestamp(started_ms / MILLISECONDS, dt.UTC),
    )
