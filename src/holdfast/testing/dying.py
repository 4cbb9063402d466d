"""A worker that dies at commits which a test names, and is followed by another on the same store.

The worker dies inside this process as SIGKILL would end it: nothing more of it reaches the store, and nothing that ran
goes on. Whoever starts instances, raises events or waits for results is another process, as it were: its calls go on
with the next worker. No time passes: a death on the same host is seen at once (W11).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.core.gates import EventVerdict
from holdfast.runtime.committer import Committer
from holdfast.runtime.faults import FaultHook, FaultPoint, SimulatedCrash
from holdfast.runtime.worker import WorkerRuntime
from holdfast.storage.contract import Delivered, InstanceNumber, Member, Outcome, SaveFlow, Store, TerminatedInstance
from holdfast.testing.commits import Crash

if TYPE_CHECKING:
    from holdfast.core.liveness import WorkerKey

T = TypeVar("T")


class CrashingHost(Protocol):
    """The environment in which workers live and die."""

    def next_worker(self) -> WorkerRuntime:
        """Make the next one. It is not started yet."""
        ...

    def goes_on(self) -> None:
        """It has taken over."""
        ...

    def real_time(self) -> AbstractContextManager[None]:
        """Skip no time inside."""
        ...

    def name_of(self, number: InstanceNumber, execution: int, activity: int) -> str:
        """The name of an activity."""
        ...


class CrashingWorkers:
    """The workers of one environment, one after the other."""

    def __init__(self, home: CrashingHost, fault_hook: FaultHook | None) -> None:
        self._home = home
        self._fault_hook = fault_hook
        self._worker: WorkerRuntime | None = None
        self._crashes: list[Crash] = []
        self._died: asyncio.Future[None] | None = None
        self._reviving: asyncio.Task[None] | None = None
        self._left_behind: set[WorkerKey] = set()
        self.deaths = 0

    def __call__(self, point: FaultPoint, members: Sequence[Member]) -> None:
        """The fault hook of the environment's workers. What they store before they begin to work is no step."""
        if members and all(isinstance(member, SaveFlow) for member in members):
            return
        if self._fault_hook is not None:
            self._fault_hook(point, members)
        worker = self._worker
        due = [crash for crash in self._crashes if crash.is_due(point, members, self._home.name_of)]
        if due and worker is not None:
            self._die(worker)
            raise SimulatedCrash

    @property
    def worker(self) -> WorkerRuntime | None:
        """The one that lives, or is being born."""
        return self._worker

    def begin(self, worker: WorkerRuntime) -> None:
        """The first life, or the next."""
        self._worker = worker
        self._died = asyncio.get_running_loop().create_future()

    def add(self, crash: Crash) -> None:
        self._crashes.append(crash)

    async def settle(self) -> None:
        """Wait until somebody lives, if somebody is about to."""
        while (reviving := self._reviving) is not None:
            await asyncio.wait([reviving])
            if self._reviving is reviving:
                self._reviving = None
                reviving.result()

    async def outlive(self, attempt: Callable[[WorkerRuntime], Awaitable[T]]) -> tuple[T, bool]:
        """Make a call with the worker that lives, and again with the next if it dies over it. Whether it was again."""
        is_again = False
        while True:
            await self.settle()
            worker, died = self._worker, self._died
            if worker is None or died is None:
                raise SimulatedCrash
            trying = asyncio.ensure_future(attempt(worker))
            await asyncio.wait((trying, died), return_when=asyncio.FIRST_COMPLETED)
            if trying.done():
                return trying.result(), is_again
            trying.cancel()
            is_again = True

    def _die(self, worker: WorkerRuntime) -> None:
        self.deaths += 1
        worker.committer.kill()
        self._left_behind.add(worker.key)
        if self._died is not None and not self._died.done():
            self._died.set_result(None)
        loop = asyncio.get_running_loop()
        self._reviving = loop.create_task(self._live_again(worker, self._reviving), name="holdfast-reviving")

    async def _live_again(self, dead: WorkerRuntime, before: asyncio.Task[None] | None) -> None:
        if before is not None:  # it died before it had taken over
            before.cancel()
            await asyncio.wait([before])
        with self._home.real_time():
            await dead.vanish()
            worker = self._home.next_worker()
            await worker.start()
            for key in sorted(self._left_behind):
                await worker.take_over(key)
                self._left_behind.discard(key)
        self._reviving = None
        self._home.goes_on()


class RetryingCommitter(Committer):
    """What the environment itself commits through: calls that a worker dies over are made again with the next."""

    def __init__(self, store: Store, new_commit_id: Callable[[], int], lives: CrashingWorkers) -> None:
        super().__init__(store, new_commit_id)
        self._lives = lives

    async def commit(self, member: Member) -> Outcome:
        outcome, is_again = await self._lives.outlive(lambda worker: worker.committer.commit(member))
        return as_the_first(outcome) if is_again else outcome

    async def drain(self) -> None:
        await self._lives.settle()
        if self._lives.worker is not None:
            await self._lives.worker.committer.drain()


def as_the_first(outcome: Outcome) -> Outcome:
    """The first try may have ended the instance: that it has ended is no news then."""
    match outcome:
        case TerminatedInstance():
            return TerminatedInstance(instance=outcome.instance, was_open=True)
        case Delivered(verdict=EventVerdict.CLOSED):
            return Delivered(instance=outcome.instance, verdict=EventVerdict.DUPLICATE)
        case _:
            return outcome


def quiet_crashes(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """From now on deaths are no news for the loop. What is given back ends it."""
    before = loop.get_exception_handler()

    def handle(of: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), SimulatedCrash):
            return
        if before is None:
            of.default_exception_handler(context)
        else:
            before(of, context)

    loop.set_exception_handler(handle)
    return lambda: loop.set_exception_handler(before)
