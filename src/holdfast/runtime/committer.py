"""Group commit: the members that are ready when the store is free are committed in one transaction.

A member is submitted with a function that is called with its outcome when its group is on disk. While a group is being
written, the next one gathers. Nothing is acknowledged before its commit. Every member receives an outcome, also when
the commit or the receiver of another outcome fails, and when the task that writes is cancelled.

Each committed group is published over the session: to waiters of this process, and to other processes.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Final, Protocol

from holdfast.background import BackgroundTask, Duty
from holdfast.errors import StoreError, StoreReplaced, WorkerFenced
from holdfast.runtime.observing import CommitObserver
from holdfast.runtime.platform import FaultHook, FaultPoint, SimulatedCrash
from holdfast.runtime.session import StoreSession
from holdfast.storage.contract import CLAIMS_APART
from holdfast.storage.members.attempts import ClaimAttempts
from holdfast.storage.members.instances import ClaimInstances
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import ClaimQueries
from holdfast.storage.members.outcomes import (
    Applied,
    Delivered,
    Expired,
    Failed,
    HandledRows,
    Outcome,
    ResumedInstance,
    StartedInstance,
    TerminatedInstance,
)
from holdfast.storage.members.row_handling import QueueAttempts
from holdfast.storage.records import CommitId
from holdfast.storage.wakeups import Wakeups

MAX_GROUP: Final = 500
"""Members of one transaction. The next group waits for all of them."""
RETRY_SECONDS: Final = 0.25
"""The pause between two tries of `commit_eventually`."""

logger = logging.getLogger("holdfast")

Done = Callable[[Outcome], None]
"""Receives the outcome of a member."""

CLAIMS: Final = (ClaimInstances, ClaimAttempts, ClaimQueries, QueueAttempts)
"""Members whose outcome is read from rows that the store finds. They depend on no other member of their group, so they
may be committed behind it."""
MAY_CLOSE_OTHERS: Final = (
    Applied,
    TerminatedInstance,
    Delivered,
    StartedInstance,
    Expired,
    ResumedInstance,
    HandledRows,
)
"""Outcomes that name children which were closed in the same commit as their parent."""


def ignore_outcome(_: Outcome) -> None:
    """Receive an outcome that the caller does not need."""


class LeaseGate(Protocol):
    """The lease that a committer acts under."""

    @property
    def fenced_at_ms(self) -> float:
        """W7: the end of the lease on the clock of this process. Read before every group."""
        ...

    def expired(self) -> None:
        """The committer found the lease expired, and fails the members in the name of the worker."""
        ...


class NoLease:
    """The gate of a client, whose members need no lease."""

    fenced_at_ms: float = math.inf

    def expired(self) -> None:
        """Never called."""


NO_LEASE: Final = NoLease()


class Committer:
    """Gathers members and commits them, one group at a time."""

    def __init__(self, session: StoreSession, gate: LeaseGate = NO_LEASE, fault_hook: FaultHook | None = None) -> None:
        self._session = session
        self._gate = gate
        self._store = session.store
        providers = session.platform.providers
        self._new_commit_id = providers.commit_id
        self._elapsed_ms = providers.elapsed_ms
        self._claims_apart = CLAIMS_APART in getattr(self._store, "capabilities", ())
        self._fault_hook = fault_hook
        self._trouble = session.trouble
        self.outcome_unknown = asyncio.Event()
        """Set when a group may be on disk although its members received `Failed` (W3). The reconciler clears it."""
        self._waiting: list[tuple[Member, Done]] = []
        self._group: list[tuple[Member, Done]] = []
        self._retrying: dict[int, Member] = {}
        self._task = BackgroundTask(Duty.COMMITTER, self._write)
        self.is_writing = False
        """Whether the task that writes groups is started and has not written the last one."""
        self._decided_signal: asyncio.Future[None] | None = None
        self._dead = False
        self._is_closed = False
        self._began_ms = 0
        self._took_ms = 0
        self.groups = 0
        """Groups that are on disk."""
        self.groups_decided = 0
        """Groups whose members have their outcomes, on disk or not."""

    def submit(self, member: Member, done: Done) -> None:
        """Put a member into the next group."""
        if self._dead:
            return
        self._waiting.append((member, done))
        if not self.is_writing:
            self._task.start()
            self.is_writing = True

    def commit_eventually(self, member: Member, done: Done = ignore_outcome) -> None:
        """Submit a member, and retry until the store accepts it, or until `close`.

        Its guard makes the retry safe: if the failed commit is on disk after all, the retry is `Rejected`.
        """

        def decided(outcome: Outcome) -> None:
            if isinstance(outcome, Failed) and _may_retry(outcome.error) and not self._is_closed:
                self._trouble.log("work could not be stored and is tried again", outcome.error)
                self._retrying[id(member)] = member
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry, member, done)
            else:
                done(outcome)

        self.submit(member, decided)

    def _retry(self, member: Member, done: Done) -> None:
        del self._retrying[id(member)]
        self.commit_eventually(member, done)

    @property
    def queue_ms(self) -> int:
        """How long a member that is submitted now waits for its group, about: as long as the last group took, for each
        group before it."""
        if not self.is_writing:
            return 0
        groups = len(self._waiting) // MAX_GROUP
        return max(self._took_ms, self._elapsed_ms() - self._began_ms) + groups * self._took_ms

    def undecided(self) -> Iterator[Member]:
        """Members that have no outcome yet."""
        yield from (member for member, _ in self._group)
        yield from (member for member, _ in self._waiting)
        yield from self._retrying.values()

    def close(self) -> None:
        """Stop retrying."""
        self._is_closed = True

    async def commit(self, member: Member) -> Outcome:
        """Submit a member and wait for its outcome."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(result: Outcome) -> None:
            if not outcome.done():
                outcome.set_result(result)

        self.submit(member, done)
        return await outcome

    def kill(self) -> None:
        """Stop as a killed process does: nothing more is committed, and no member receives an outcome."""
        self._dead = True
        self._waiting.clear()
        self._task.stop()
        self._end_group(is_writing=False)

    async def drain(self) -> None:
        """Wait until every member that was submitted before this call has its outcome."""
        groups = -(-len(self._waiting) // MAX_GROUP) * (2 if self._claims_apart else 1)
        last = self.groups_decided + bool(self._group) + groups
        while self.is_writing and self.groups_decided < last:
            if self._decided_signal is None:
                self._decided_signal = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._decided_signal])

    async def _write(self) -> None:
        while self._waiting:
            self._take_group()
            try:
                outcomes = await self._commit_group([member for member, _ in self._group])
            except SimulatedCrash:
                self.kill()
                raise
            except BaseException as error:
                if not self._dead:
                    self._fail_group(error)
                raise
            self._decide_group(outcomes)
            if self._waiting:
                await asyncio.sleep(0)  # tasks that the outcomes woke may submit members for this group
        self._end_group(is_writing=False)

    def _take_group(self) -> None:
        """Take the next group from the members that wait.

        A store with `CLAIMS_APART` gets claims in groups of their own. The member that waits longest decides which kind
        is next, so that neither waits for more than one group of the other.
        """
        taken = self._waiting[:MAX_GROUP]
        later = self._waiting[MAX_GROUP:]
        if self._claims_apart:
            is_claim = isinstance(taken[0][0], CLAIMS)
            kept = [each for each in taken if isinstance(each[0], CLAIMS) is not is_claim]
            if kept:
                taken = [each for each in taken if isinstance(each[0], CLAIMS) is is_claim]
                later = kept + later
        self._group = taken
        self._waiting = later

    def _fail_group(self, error: BaseException) -> None:
        """The task ends during a commit, so the outcome is unknown. The callers retry."""
        interrupted = StoreError(f"a commit was interrupted before its outcome was known: {error!r}")
        self.outcome_unknown.set()
        self._decide_group([Failed(error=interrupted) for _ in self._group])

    def _decide_group(self, outcomes: Sequence[Outcome]) -> None:
        self._took_ms = self._elapsed_ms() - self._began_ms
        ending: BaseException | None = None
        for (member, done), outcome in zip(self._group, outcomes, strict=True):
            try:
                done(outcome)
            except BaseException as error:  # the other members still receive their outcomes
                logger.exception("the receiver of the outcome %r of %s failed", outcome, type(member).__name__)
                if not isinstance(error, Exception):
                    ending = error
        self.groups_decided += 1
        self._end_group(is_writing=True)
        if ending is not None:
            raise ending

    def _end_group(self, *, is_writing: bool) -> None:
        """Wake `drain`, which compares the number of decided groups."""
        self._group = []
        self.is_writing = is_writing
        signal = self._decided_signal
        self._decided_signal = None
        if signal is not None and not signal.done():
            signal.set_result(None)

    async def _commit_group(self, members: list[Member]) -> list[Outcome]:
        self._began_ms = self._elapsed_ms()
        if self._began_ms >= self._gate.fenced_at_ms:
            self._gate.expired()
            fenced = Failed(error=WorkerFenced("the lease of this worker has expired by its own clock"))
            unleased = [member for member in members if not member.needs_lease]
            outcomes = iter(await self._store_group(unleased) if unleased else ())
            return [fenced if member.needs_lease else next(outcomes) for member in members]
        return await self._store_group(members)

    async def _store_group(self, members: list[Member]) -> list[Outcome]:
        hook = self._fault_hook
        observer = self._session.observer
        began = 0.0 if observer is None else observer.clock()
        commit_id = CommitId(self._new_commit_id())
        try:
            if hook is not None:
                hook(FaultPoint.BEFORE_COMMIT, members)
            wakeups: list[Wakeups] = []
            outcomes = await self._store.commit(commit_id, members, wakeups.append)
            if hook is not None:
                hook(FaultPoint.AFTER_COMMIT, members)
        except StoreReplaced as error:
            # Called when the members have their outcomes.
            asyncio.get_running_loop().call_soon(self._session.store_replaced, error)
            return [Failed(error=error) for _ in members]
        except Exception as error:  # noqa: BLE001 - every member receives the error, whatever its type
            if await self._is_on_disk(commit_id):
                self.outcome_unknown.set()
            trouble = error if isinstance(error, StoreError) else StoreError(f"the store failed: {error!r}")
            return [Failed(error=trouble) for _ in members]
        self.groups += 1
        self._trouble.succeeded()
        if observer is not None:
            self._observe(observer, members, outcomes, observer.clock() - began)
        self._publish(outcomes, wakeups)
        return outcomes

    def _observe(
        self, observer: CommitObserver, members: Sequence[Member], outcomes: Sequence[Outcome], took_seconds: float
    ) -> None:
        """Count a group that is on disk. An error does not concern its members."""
        try:
            observer.committed(members, outcomes, took_seconds)
        except Exception:
            logger.exception("a commit was not counted in the metrics of this process")

    def _publish(self, outcomes: Sequence[Outcome], wakeups: Sequence[Wakeups]) -> None:
        """Announce a group that is on disk, in this process and to others. Never raises: its members are committed."""
        session = self._session
        try:
            for outcome in outcomes:
                if isinstance(outcome, MAY_CLOSE_OTHERS) and outcome.ended:
                    for closed in outcome.ended:
                        session.instance_closed(closed.id, closed.number)
            session.changes.notify()
            session.wake_others(reduce(Wakeups.__or__, wakeups, Wakeups()))
        except Exception:
            logger.exception("a commit was not announced; other processes see it at their next poll")

    async def _is_on_disk(self, commit_id: CommitId) -> bool:
        try:
            return await self._store.was_committed(commit_id)
        except Exception as error:  # noqa: BLE001 - the store can neither write nor read
            self._trouble.log("a commit could not be looked up", error)
            return True  # it may be: the reconciler compares


def _may_retry(error: Exception) -> bool:
    """Whether a later try may succeed, as after a full disk or the restart of a server."""
    return isinstance(error, StoreError) and not isinstance(error, StoreReplaced)
