"""Duties that any worker does, safely at the same time as others (C1, C5): lost workers, passed deadlines, children
whose parent has ended, and what nobody needs any more.

Everything here ends in conditional updates, so two janitors never harm.
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.core.activity_options import decode_options
from holdfast.core.leases import WorkerKey, WorkerState
from holdfast.core.lifecycle import AttemptEvent
from holdfast.errors import ActivityTimedOut
from holdfast.payloads.failures import Failure, qualified_name
from holdfast.runtime.committer import Committer
from holdfast.runtime.crash_detection import NOBODY, CrashMarker, HostIdentity, decode_identity, is_dead
from holdfast.runtime.signals import log_failed_attempt
from holdfast.runtime.worker_lease import MILLISECONDS
from holdfast.storage.attempt_endings import end_by_failure
from holdfast.storage.contract import Store
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.instances import CloseChildren
from holdfast.storage.members.outcomes import Applied
from holdfast.storage.members.workers import MarkWorkerLost
from holdfast.storage.records import AttemptKey, AttemptRecord, InstanceNumber

logger = logging.getLogger("holdfast")

BATCH: Final = 200
"""W6: what is moved in one commit, so that the death of a busy worker never stalls the store."""
SPREAD_MS: Final = 200
"""Within so much time after the end of a lease those who have seen it come."""
FAMILIES: Final = 100
"""Ended executions with children left over that one round goes through."""
VERIFY_EVERY: Final = 30
"""W8: in the first round and once in so many is looked for what lost workers left behind and nobody moved on."""
CLEAN_UP_EVERY_MS: Final = 600_000
"""From the end of a clean-up, of which each round does a piece, to the next. The first begins in the first round."""
TIMED_OUT_TYPES: Final = tuple(qualified_name(cls) for cls in ActivityTimedOut.__mro__)


class Maintenance:
    """Finds what nobody looks after any more."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        host: HostIdentity,
        random_number: Callable[[], float],
        words: CrashMarker,
        *,
        detect_local_deaths: bool = True,
        expired: Callable[[AttemptKey], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._committer = committer
        self._host = host
        self._random_number = random_number
        self._words = words
        self._detect_local_deaths = detect_local_deaths
        self._expired = expired
        self._rounds = 0
        self._next_deadline_ms: int | None = None
        self._clean_up_at_ms = 0

    def pause_seconds(self, longest: float) -> float:
        """Until the next round: no longer than that, and hardly further than to where the next lease ends.

        Everybody who works on a store sees the same lease end. They come one after the other, and the first does it.
        """
        deadline_ms = self._next_deadline_ms
        self._next_deadline_ms = None  # a round that fails is not repeated at once
        if deadline_ms is None:
            return longest
        left_ms = max(0, deadline_ms - self._store.now_ms()) + self._random_number() * SPREAD_MS
        return min(longest, left_ms / MILLISECONDS)

    async def round(self, own: WorkerKey) -> bool:
        """One round. Whether anything was found that somebody may go on with now."""
        found = await self._look_after_workers(own)
        if self._rounds % VERIFY_EVERY == 0:
            for key in await self._store.dead_owners():
                found |= await self.mark_lost(key, at_deadline=False)
        self._rounds += 1
        for attempt in await self._store.expired_attempts(BATCH):
            found |= await self._expire(attempt)
        for number, execution in await self._store.open_closings(FAMILIES):
            found |= await self._close_children(number, execution)
        await self._clean_up()
        return found

    async def _clean_up(self) -> None:
        """By time, not by what this worker has written: those who live shortly or write little do their share, too."""
        now_ms = self._store.now_ms()
        if now_ms >= self._clean_up_at_ms and not await self._store.prune():
            self._clean_up_at_ms = now_ms + CLEAN_UP_EVERY_MS

    async def _look_after_workers(self, own: WorkerKey) -> bool:
        """W6, W11: whose lease has run out, or who is dead on this host, is lost."""
        found, deadlines = False, list[int]()
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

    async def _close_children(self, number: InstanceNumber, execution: int) -> bool:
        """C1: the end of an execution had more children to go through than one commit may. Go on, a batch at a time."""
        closed = False
        while True:
            outcome = await self._committer.commit(CloseChildren(number=number, execution=execution, limit=BATCH))
            if not isinstance(outcome, Applied) or outcome.changed == 0:
                return closed
            closed = True

    async def mark_lost(
        self, key: WorkerKey, *, at_deadline: bool, is_clean: bool = False, is_own: bool = False
    ) -> bool:
        """W6, W10: end a worker's lease and move what it had, a batch at a time.

        What a dead one was running is known from its last words, where they can be read (G12). A key of our own was
        lost with nobody's code unless they say so: we are here.
        """
        moved = 0
        said = NOBODY if is_clean else self._words.read(key)
        if said is None and is_own:
            said = NOBODY
        lose = MarkWorkerLost(
            key=key,
            at_deadline=at_deadline,
            limit=BATCH,  # of each kind
            is_clean=is_clean,
            culprit=said or None,
            unexplained=said is None,
        )
        while True:
            outcome = await self._committer.commit(lose)
            if not isinstance(outcome, Applied):
                return moved > 0
            moved += outcome.changed
            if outcome.changed == 0:
                self._words.remove(key)
                _log_lost(key, moved, is_clean=is_clean)
                return True

    def _is_dead_here(self, host: bytes) -> bool:
        identity = decode_identity(host) if self._detect_local_deaths else None
        return identity is not None and is_dead(identity, self._host)

    async def _expire(self, attempt: AttemptRecord) -> bool:
        """A5: a deadline has passed and nobody has said so. The one who runs it may have been faster."""
        failure = Failure(
            type=qualified_name(ActivityTimedOut),
            message=_late(attempt),
        )
        now_ms = self._store.now_ms()
        ended = end_by_failure(
            attempt,
            failure,
            TIMED_OUT_TYPES,
            event=AttemptEvent.EXPIRE,
            now_ms=now_ms,
            random_number=self._random_number(),
        )
        outcome = await self._committer.commit(_by_janitor(ended))
        if isinstance(outcome, Applied):
            self._expired(attempt.key)
            log_failed_attempt(attempt, failure, ended, now_ms=now_ms)
        return isinstance(outcome, Applied)


def _log_lost(key: WorkerKey, moved: int, *, is_clean: bool) -> None:
    extra = {"holdfast_worker": key}
    if is_clean:
        logger.info(
            "worker %s has stopped cleanly; instances and activities left to others: %d", key, moved, extra=extra
        )
    else:
        logger.info("worker %s was lost; instances and activities that move on: %d", key, moved, extra=extra)


def _by_janitor(ended: Completion | OpenNextAttempt) -> Completion | OpenNextAttempt:
    return msgspec.structs.replace(ended, by_owner=False)


def _late(attempt: AttemptRecord) -> str:
    """Which of the four limits it went beyond (A5): the one whose time came first."""
    options = decode_options(attempt.options)
    close_ms = options.schedule_to_close_ms
    limits = [(attempt.scheduled_at_ms, close_ms, "was not done within its schedule_to_close of")]
    if attempt.started_at_ms is None:
        limits.append(
            (attempt.available_at_ms, options.schedule_to_start_ms, "did not begin within its schedule_to_start of")
        )
    else:
        heard_at_ms = attempt.heartbeat_at_ms or attempt.started_at_ms
        limits.append((attempt.started_at_ms, options.start_to_close_ms, "did not answer within its start_to_close of"))
        limits.append((heard_at_ms, options.heartbeat_ms, "was silent for longer than its heartbeat of"))
    passed = [(since + limit, limit, what) for since, limit, what in limits if limit is not None]
    if not passed:
        return f"{attempt.name} was {attempt.state} beyond its deadline"
    _, limit_ms, what = min(passed)
    return f"{attempt.name} {what} {limit_ms / 1000:g} s"
