"""Lost workers (W6, W8, W11): their leases are ended, and what they own moves to other workers.

A worker is lost when its lease has run out, or when its process is dead on this machine. Any worker may mark it as
lost, concurrently with others: every step is a conditional update.
"""

import logging
from typing import Final

from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.leases import WorkerKey, WorkerState
from holdfast.runtime.crash_detection import NOBODY, CrashMarker, HostIdentity, decode_identity, is_dead
from holdfast.runtime.worker_context import WorkerContext
from holdfast.storage.members.outcomes import Applied
from holdfast.storage.members.workers import MarkWorkerLost

logger = logging.getLogger("holdfast")

BATCH: Final = 200
"""W6: rows of each kind that one commit moves, so that the loss of a busy worker never stalls the store."""
SPREAD_MS: Final = 200
"""Workers that see a lease end come at random within this time after its end."""
VERIFY_EVERY: Final = 30
"""W8: the first round and one in so many also search for rows that lost workers still own."""


class LostWorkers:
    """Finds lost workers for one worker."""

    def __init__(self, context: WorkerContext, identity: HostIdentity, marker: CrashMarker) -> None:
        self._context = context
        self._store = context.session.store
        self._platform = context.session.platform
        self._identity = identity
        self._marker = marker
        self._rounds = 0
        self._next_deadline_ms: int | None = None

    def pause_seconds(self, longest: float) -> float:
        """Until the next round: at most `longest`, and not much further than the end of the next lease.

        All workers of a store see the same lease end. The random part lets one of them come first.
        """
        deadline_ms = self._next_deadline_ms
        self._next_deadline_ms = None  # a round that fails is not repeated at once
        if deadline_ms is None:
            return longest
        left_ms = max(0, deadline_ms - self._store.now_ms()) + self._platform.providers.random_number() * SPREAD_MS
        return min(longest, left_ms / MILLISECONDS)

    async def check(self) -> bool:
        """One round. Returns whether anything became claimable."""
        self._marker.restore()
        found = await self._check_leases()
        if self._rounds % VERIFY_EVERY == 0:
            for key in await self._store.dead_owners():
                found |= await self.mark_lost(key, at_deadline=False)
        self._rounds += 1
        return found

    async def _check_leases(self) -> bool:
        """W6, W11: workers whose lease has run out, or whose process is dead on this machine."""
        found = False
        deadlines: list[int] = []
        own = self._context.lease.key
        for worker in await self._store.workers():
            if worker.state != WorkerState.ACTIVE or worker.key == own:
                continue
            overdue = worker.deadline_ms <= self._store.now_ms()
            if overdue or self._is_dead_here(worker.host):
                found |= await self.mark_lost(worker.key, at_deadline=overdue)
            else:
                deadlines.append(worker.deadline_ms)
        self._next_deadline_ms = min(deadlines, default=None)
        return found

    def _is_dead_here(self, host: bytes) -> bool:
        identity = decode_identity(host) if self._platform.detect_local_deaths else None
        return identity is not None and is_dead(identity, self._identity)

    async def mark_lost(
        self, key: WorkerKey, *, at_deadline: bool, is_clean: bool = False, is_own: bool = False
    ) -> bool:
        """W6, W10: end a worker's lease and move what it owns, a batch at a time.

        The crash marker of a dead worker names the instance whose code was running, if it can be read (G12). A lost key
        of this process is no instance's fault unless its marker names one: this process is alive.
        """
        moved = 0
        culprit = NOBODY if is_clean else self._marker.read(key)
        if culprit is None and is_own:
            culprit = NOBODY
        member = MarkWorkerLost(
            key=key,
            at_deadline=at_deadline,
            limit=BATCH,
            is_clean=is_clean,
            culprit=culprit or None,
            unexplained=culprit is None,
        )
        while True:
            outcome = await self._context.committer.commit(member)
            if not isinstance(outcome, Applied):
                return moved > 0
            moved += outcome.changed
            if outcome.changed == 0:
                self._marker.remove(key)
                _log_lost(key, moved, is_clean=is_clean)
                return True


def _log_lost(key: WorkerKey, moved: int, *, is_clean: bool) -> None:
    extra = {"holdfast_worker": key}
    if is_clean:
        logger.info(
            "worker %s has stopped cleanly; instances and activities left to others: %d", key, moved, extra=extra
        )
    else:
        logger.info(
            "worker %s was lost; instances and activities released for other workers: %d", key, moved, extra=extra
        )
