"""Group commit: whatever is ready when the store is free goes to disk together.

A member is handed in with a function that is called with its outcome, after the group is on disk. While one group is
being written the next one gathers. Nothing is acknowledged before its commit. Every member receives its outcome: when a
commit fails, when a listener raises, and when the task that writes is ended by other code.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from holdfast.background import BackgroundTask, Duty
from holdfast.errors import StoreError, StoreReplaced, WorkerFenced
from holdfast.runtime.platform import FaultPoint, SimulatedCrash
from holdfast.runtime.session import StoreSession
from holdfast.storage.members.instances import Start, Terminate
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import AskQuery, Deliver
from holdfast.storage.members.outcomes import (
    Applied,
    Delivered,
    Expired,
    Failed,
    Outcome,
    StartedInstance,
    TerminatedInstance,
)
from holdfast.storage.records import CommitId

MAX_GROUP: Final = 500
"""Members of one transaction. A longer one would make everybody wait for it."""
RETRY_SECONDS: Final = 0.25
"""Between two tries of what must not be lost."""

logger = logging.getLogger("holdfast")

Done = Callable[[Outcome], None]


_MAY_CLOSE_OTHERS: Final = (Applied, TerminatedInstance, Delivered, StartedInstance, Expired)
"""Outcomes that name the children which were closed together with their parent."""


def ignore_outcome(_: Outcome) -> None:
    """The outcome of a member whose sender does not need it."""


class LeaseGate(Protocol):
    """The lease that a committer acts under."""

    @property
    def fenced_at_ms(self) -> float:
        """W7: when the lease ends by this process's own clock. It is read before every group."""
        ...

    def expired(self) -> None:
        """The committer found the lease expired, and has rejected members in the worker's name."""
        ...


class NoLease:
    """The gate of a client: its members are in no worker's name, and need no lease."""

    fenced_at_ms: float = math.inf

    def expired(self) -> None:
        """Never called."""


NO_LEASE: Final = NoLease()


class Committer:
    """Gathers members and commits them, one group at a time."""

    def __init__(self, session: StoreSession, gate: LeaseGate = NO_LEASE) -> None:
        self._session = session
        self._gate = gate
        self._store = session.store
        providers = session.platform.providers
        self._new_commit_id = providers.commit_id
        self._elapsed_ms = providers.elapsed_ms
        self._fault_hook = None if gate is NO_LEASE else session.platform.fault_hook
        self.trouble = session.trouble
        """The log of store errors, for this committer and for those who commit through it."""
        self.outcome_unknown = asyncio.Event()
        """Set when a group may be on disk although its members were reported as failed (W3). A reader clears it."""
        self._waiting: list[tuple[Member, Done]] = []
        self._group: list[tuple[Member, Done]] = []
        self._retrying: dict[int, Member] = {}
        self._task = BackgroundTask(Duty.COMMITTER, self._write)
        self.is_writing = False
        """Whether there is a group whose members do not have their outcomes yet."""
        self._decided_signal: asyncio.Future[None] | None = None
        self._dead = False
        self._is_closed = False
        self.groups = 0
        self.groups_decided = 0
        """Groups whose members have their outcomes."""

    def submit(self, member: Member, done: Done) -> None:
        """Put a member into the next group."""
        if self._dead:
            return
        self._waiting.append((member, done))
        if not self.is_writing:
            self._task.start()
            self.is_writing = True

    def commit_eventually(self, member: Member, done: Done = ignore_outcome) -> None:
        """Submit a member that must not be lost, again and again while the store refuses to write.

        Its guard makes that safe: if it went to disk although an error was told, the next try is `Rejected`.
        """

        def decided(outcome: Outcome) -> None:
            if isinstance(outcome, Failed) and _may_pass(outcome.error) and not self._is_closed:
                self.trouble.log("work could not be stored and is tried again", outcome.error)
                self._retrying[id(member)] = member
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry, member, done)
            else:
                done(outcome)

        self.submit(member, decided)

    def _retry(self, member: Member, done: Done) -> None:
        del self._retrying[id(member)]
        self.commit_eventually(member, done)

    def undecided(self) -> Iterator[Member]:
        """Members that were handed in and whose outcome is not known yet."""
        yield from (member for member, _ in self._group)
        yield from (member for member, _ in self._waiting)
        yield from self._retrying.values()

    def close(self) -> None:
        """Insist on nothing any more."""
        self._is_closed = True

    async def commit(self, member: Member) -> Outcome:
        """Put a member into the next group and wait for its outcome."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(result: Outcome) -> None:
            if not outcome.done():
                outcome.set_result(result)

        self.submit(member, done)
        return await outcome

    def kill(self) -> None:
        """Stop as a process stops that is killed: nothing more is committed, and no member receives an outcome."""
        self._dead = True
        self._waiting.clear()
        self._task.stop()
        self._rest()

    async def drain(self) -> None:
        """Wait until everything handed in so far is decided, however much others hand in meanwhile."""
        last = self.groups_decided + bool(self._group) + -(-len(self._waiting) // MAX_GROUP)
        while self.is_writing and self.groups_decided < last:
            if self._decided_signal is None:
                self._decided_signal = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._decided_signal])

    async def _write(self) -> None:
        while self._waiting:
            self._group = self._waiting[:MAX_GROUP]
            self._waiting = self._waiting[MAX_GROUP:]
            try:
                outcomes = await self._commit_group([member for member, _ in self._group])
            except SimulatedCrash:
                self.kill()
                raise
            except BaseException as error:
                if not self._dead:
                    self._fail_group(error)
                raise
            self._tell_group(outcomes)
            if self._waiting:
                await asyncio.sleep(0)  # let what the outcomes started become ready, and join this group
        self._rest()

    def _fail_group(self, error: BaseException) -> None:
        """The task ends in the middle of a commit, which may be on disk or not. The members have to be tried again."""
        interrupted = StoreError(f"a commit was interrupted before its outcome was known: {error!r}")
        self.outcome_unknown.set()
        self._tell_group([Failed(error=interrupted) for _ in self._group])

    def _tell_group(self, outcomes: Sequence[Outcome]) -> None:
        ending: BaseException | None = None
        for (member, done), outcome in zip(self._group, outcomes, strict=True):
            try:
                done(outcome)
            except BaseException as error:  # a receiver that fails must not keep the others from their outcomes
                logger.exception("the receiver of the outcome %r of %s failed", outcome, type(member).__name__)
                if not isinstance(error, Exception):
                    ending = error
        self.groups_decided += 1
        self._group = []
        self._notify_waiting()
        if ending is not None:
            raise ending

    def _rest(self) -> None:
        self._group = []
        self.is_writing = False
        self._notify_waiting()

    def _notify_waiting(self) -> None:
        """`drain` looks again."""
        told = self._decided_signal
        self._decided_signal = None
        if told is not None and not told.done():
            told.set_result(None)

    async def _commit_group(self, members: list[Member]) -> list[Outcome]:
        if self._elapsed_ms() >= self._gate.fenced_at_ms:
            self._gate.expired()
            fenced = Failed(error=WorkerFenced("this worker's lease has run out by its own clock"))
            of_clients = [member for member in members if _is_of_a_client(member)]
            outcomes = iter(await self._store_group(of_clients) if of_clients else ())
            return [next(outcomes) if _is_of_a_client(member) else fenced for member in members]
        return await self._store_group(members)

    async def _store_group(self, members: list[Member]) -> list[Outcome]:
        hook = self._fault_hook
        commit_id = CommitId(self._new_commit_id())
        try:
            if hook is not None:
                hook(FaultPoint.BEFORE_COMMIT, members)
            outcomes = await self._store.commit(commit_id, members)
            if hook is not None:
                hook(FaultPoint.AFTER_COMMIT, members)
        except StoreReplaced as error:
            asyncio.get_running_loop().call_soon(
                self._session.store_replaced, error
            )  # after the members have their outcomes
            return [Failed(error=error) for _ in members]
        except Exception as error:  # noqa: BLE001 - whatever the store raises, every member has to learn it
            if await self._is_on_disk(commit_id):
                self.outcome_unknown.set()
            trouble = error if isinstance(error, StoreError) else StoreError(f"the store failed: {error!r}")
            return [Failed(error=trouble) for _ in members]
        self.groups += 1
        self.trouble.succeeded()
        self._publish(members, outcomes)
        return outcomes

    def _publish(self, members: Sequence[Member], outcomes: Sequence[Outcome]) -> None:
        """Announce a group that is on disk, here and to other processes. Never raises: members get their outcomes."""
        session = self._session
        try:
            for outcome in outcomes:
                if isinstance(outcome, _MAY_CLOSE_OTHERS) and outcome.ended:
                    for closed in outcome.ended:
                        session.instance_closed(*closed)
            session.changes.notify()
            notifier = session.notifier
            if notifier is not None and any(member.notifies for member in members):
                notifier.notify()
        except Exception:
            logger.exception("a commit was not announced; other processes see it at their next poll")

    async def _is_on_disk(self, commit_id: CommitId) -> bool:
        try:
            return await self._store.was_committed(commit_id)
        except Exception as error:  # noqa: BLE001 - the store can neither write nor read
            self.trouble.log("whether a commit went through cannot be found out", error)
            return True  # then it may be: better to begin anew than to leave something behind


def _may_pass(error: Exception) -> bool:
    """Whether a later try may succeed: a disk may have room again, a server come back."""
    return isinstance(error, StoreError) and not isinstance(error, StoreReplaced)


def _is_of_a_client(member: Member) -> bool:
    """In nobody's name: no lease is needed for it."""
    return isinstance(member, Terminate | Deliver | AskQuery) or (isinstance(member, Start) and member.first is None)
