"""Group commit: whatever is ready when the store is free goes to disk together.

A member is handed in with a function that is called with its outcome, after the group is on disk. While one group is
being written the next one gathers. Nothing is acknowledged before its commit. Every member receives its outcome: when a
commit fails, when a listener raises, and when the task that writes is ended by other code.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from holdfast.background import BackgroundTask, Duty
from holdfast.errors import StoreError, StoreReplaced, WorkerFenced
from holdfast.runtime.platform import FaultHook, FaultPoint, SimulatedCrash
from holdfast.runtime.signals import RepeatedTrouble
from holdfast.storage.contract import Store
from holdfast.storage.members.instances import Start, Terminate
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import AskQuery, Deliver
from holdfast.storage.members.outcomes import (
    Applied,
    Delivered,
    EndedInstance,
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


class Committer:
    """Gathers members and commits them, one group at a time."""

    def __init__(
        self,
        store: Store,
        new_commit_id: Callable[[], int],
        trouble: RepeatedTrouble,
        *,
        may_act: Callable[[], bool] = lambda: True,
        after_group: Callable[[Sequence[Member], Sequence[Outcome]], None] = lambda _, __: None,
        unsure: Callable[[], None] = lambda: None,
        unusable: Callable[[StoreReplaced], None] = lambda _: None,
        fault_hook: FaultHook | None = None,
    ) -> None:
        self._store = store
        self._new_commit_id = new_commit_id
        self._may_act = may_act
        self._after_group = after_group
        self._unsure = unsure
        self._unusable = unusable
        self.trouble = trouble
        """Where errors of the store are reported, by this committer and by those who commit through it."""
        self._fault_hook = fault_hook
        self._waiting: list[tuple[Member, Done]] = []
        self._group: list[tuple[Member, Done]] = []
        self._insisted: dict[int, Member] = {}
        self._task = BackgroundTask(Duty.COMMITTER, self._write)
        self.is_writing = False
        """Whether there is a group whose members do not have their outcomes yet."""
        self._decided_signal: asyncio.Future[None] | None = None
        self._dead = False
        self._is_closed = False
        self.groups = 0
        self.groups_decided = 0
        """Groups whose members know what became of them, well or not."""

    def submit(self, member: Member, done: Done) -> None:
        """Put a member into the next group."""
        if self._dead:
            return
        self._waiting.append((member, done))
        if not self.is_writing:
            self._task.start()
            self.is_writing = True

    def commit_eventually(self, member: Member, done: Done) -> None:
        """Submit a member that must not be lost, again and again while the store refuses to write.

        Its guard makes that safe: if it went to disk although an error was told, the next try is `Rejected`.
        """

        def decided(outcome: Outcome) -> None:
            if isinstance(outcome, Failed) and _may_pass(outcome.error) and not self._is_closed:
                self.trouble.log("work could not be stored and is tried again", outcome.error)
                self._insisted[id(member)] = member
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._insist_again, member, done)
            else:
                done(outcome)

        self.submit(member, decided)

    def _insist_again(self, member: Member, done: Done) -> None:
        del self._insisted[id(member)]
        self.commit_eventually(member, done)

    def undecided(self) -> Iterator[Member]:
        """Members that were handed in and whose outcome is not known yet."""
        yield from (member for member, _ in self._group)
        yield from (member for member, _ in self._waiting)
        yield from self._insisted.values()

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
        try:
            self._unsure()
        finally:
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
        if not self._may_act():
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
            asyncio.get_running_loop().call_soon(self._unusable, error)  # after the members have their outcomes
            return [Failed(error=error) for _ in members]
        except Exception as error:  # noqa: BLE001 - whatever the store raises, every member has to learn it
            if await self._is_on_disk(commit_id):
                self._unsure()  # it is on disk, and nobody knows what came of its members
            trouble = error if isinstance(error, StoreError) else StoreError(f"the store failed: {error!r}")
            return [Failed(error=trouble) for _ in members]
        self.groups += 1
        self.trouble.succeeded()
        try:
            self._after_group(members, outcomes)
        except Exception:  # the group is on disk: its members receive their outcomes whatever a listener does
            logger.exception("a listener failed after a commit; other processes see the commit at their next look")
        return outcomes

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


_MAY_END_OTHERS: Final = (Applied, TerminatedInstance, Delivered, StartedInstance, Expired)


def ended_with(outcomes: Sequence[Outcome]) -> Iterator[EndedInstance]:
    """Children that ended with something else in a group."""
    for outcome in outcomes:
        if isinstance(outcome, _MAY_END_OTHERS) and outcome.ended:
            yield from outcome.ended
