"""What a program's own tests run workflows in: an engine whose time skips, and whose activities can be replaced.

Waits of months take milliseconds: when everything waits for a time, it is that time. Activities that take real time
(threads, processes, sockets) are waited for. See ``docs/guide/testing.md``.
"""

import asyncio
import datetime as dt
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final, Self, TypeVar

from holdfast.authoring.activity import Activity
from holdfast.authoring.workflow import Workflow
from holdfast.client.engine import DEFAULT_MAX_ACTIVITIES, Engine
from holdfast.core.options import DEFAULT_QUEUE
from holdfast.errors import InvalidOption, UsageError
from holdfast.runtime.faults import FaultHook
from holdfast.runtime.providers import SystemProviders
from holdfast.runtime.surroundings import Surroundings
from holdfast.runtime.worker import DEFAULT_CACHE_SIZE
from holdfast.storage.sqlite.store import IN_MEMORY, SqliteStore
from holdfast.testing.chaos import CrashReport, crash_at_every_commit
from holdfast.testing.clock import SkippingClock
from holdfast.testing.replacing import Body, Replacements
from holdfast.testing.simulation.world import TaskLease

T = TypeVar("T")
MILLISECONDS: Final = 1000


class Environment(Engine):
    """An engine for tests: ``async with Environment(workflows=[checkout], activities=[charge]) as env: ...``

    Everything that an engine can do, with a clock that skips. The store is in memory unless a path is given.
    """

    def __init__(
        self,
        store: str | Path | SqliteStore = IN_MEMORY,
        *,
        modules: Iterable[ModuleType] = (),
        workflows: Iterable[Workflow[..., Any]] = (),
        activities: Iterable[Activity[..., Any]] = (),
        replace: Mapping[Activity[..., Any], Body | BaseException] | None = None,
        queues: Iterable[str] = (DEFAULT_QUEUE,),
        max_activities: int = DEFAULT_MAX_ACTIVITIES,
        cache_size: int = DEFAULT_CACHE_SIZE,
        fault_hook: FaultHook | None = None,
    ) -> None:
        self._time = EnvironmentProviders()
        super().__init__(
            store,
            modules=modules,
            workflows=workflows,
            activities=activities,
            queues=queues,
            max_activities=max_activities,
            cache_size=cache_size,
            durability="relaxed",
            surroundings=Surroundings(
                providers=self._time,
                make_lease=StillLease,
                make_bell=NoBell,
                fault_hook=fault_hook,
                judge_same_host=False,
            ),
        )
        self._replacements = Replacements(self._registry, replace or {})

    async def __aenter__(self) -> Self:
        clock = SkippingClock.of_running_loop()
        self._time.clock = clock
        clock.enter(self)
        try:
            return await super().__aenter__()
        except BaseException:
            clock.leave(self)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, traceback)
        finally:
            self._clock.leave(self)

    async def abandon(self) -> None:
        """Let go of everything without a word, as a killed process does."""
        await super().abandon()
        self._clock.leave(self)

    def run_sync(self, scenario: "Callable[[Self], Coroutine[Any, Any, T]]") -> T:
        """Run a test on an event loop of its own: `scenario` is an async function that takes the environment."""

        async def inside() -> T:
            async with self as env:
                return await scenario(env)

        return asyncio.run(inside())

    # ------------------------------------------------------------ time

    @property
    def now(self) -> dt.datetime:
        """The time of the environment, in UTC."""
        return dt.datetime.fromtimestamp(self._clock.now_ms() / MILLISECONDS, dt.UTC)

    async def skip(
        self,
        duration: dt.timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None:
        """Let so much time pass. Whatever is due meanwhile happens in its order."""
        total = dt.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds) + (duration or dt.timedelta())
        if total < dt.timedelta():
            raise InvalidOption(f"time goes forward only: {total}")
        await asyncio.sleep(total.total_seconds())

    def real_time(self) -> AbstractContextManager[None]:
        """Skip nothing inside: for input and output of the test itself."""
        return self._clock.held()

    @property
    def _clock(self) -> SkippingClock:
        if self._time.clock is None:
            raise UsageError("the environment is not open: async with Environment(...) as env")
        return self._time.clock

    def is_at_real_work(self, *, has_sockets: bool) -> bool:
        """Whether an activity runs that takes real time."""
        if self._worker is None:
            return False
        known = self._registry.activities
        bodies = [known[running.attempt.name] for running in self._worker.runner.running.values()]
        return any(body.process or not body.is_async for body in bodies) or (has_sockets and bool(bodies))

    def next_due_ms(self) -> int | None:
        """When the store has something that waits for a time. What has expired waits for the janitor's next look."""
        worker = self._worker
        if worker is None:
            return None
        if _at_once(self._store.expired_attempts(1)):
            return self._clock.now_ms()
        return _at_once(worker.claims.next_wake_ms(worker.claims.looked_at_ms))

    # ------------------------------------------------------------ activities

    def replace(self, activity: Activity[..., Any], with_: Body | BaseException) -> None:
        """From now on run `with_`, a function of the same parameters, instead of an activity; or raise an exception."""
        self._replacements.replace(activity, with_)

    def restore(self, activity: Activity[..., Any]) -> None:
        """Run the activity itself again."""
        self._replacements.restore(activity)

    def calls(self, activity: Activity[..., Any]) -> list[dict[str, Any]]:
        """The arguments of each run of an activity so far, replaced or not: a dictionary by name for each."""
        return self._replacements.calls(activity)

    # ------------------------------------------------------------ crashes

    async def crash_at_every_commit(self, workflow: Workflow[..., Any], *args: Any) -> CrashReport:
        """Run a workflow again and again, each time with the worker dying before or after another of its commits.

        Result and steps must be those of a calm run; `CrashReport.check` raises if not. Each run has a store of its
        own, in which some messages are delivered twice. Activities run as they do in this environment.
        """

        def again(store: SqliteStore, hook: FaultHook | None) -> Environment:
            return Environment(
                store,
                workflows=self._registry.workflows.values(),
                activities=self._replacements.real,
                replace=self._replacements.made,
                fault_hook=hook,
            )

        return await crash_at_every_commit(again, self._clock, workflow, args)


class EnvironmentProviders(SystemProviders):
    """The real world, but for the time, which is the environment's once that is open."""

    def __init__(self) -> None:
        super().__init__()
        self.clock: SkippingClock | None = None

    def now_ms(self) -> int:
        return super().now_ms() if self.clock is None else self.clock.now_ms()

    def elapsed_ms(self) -> int:
        return super().elapsed_ms() if self.clock is None else self.clock.elapsed_ms()


class StillLease(TaskLease):
    """A lease that needs no heartbeats: it ends when another worker finds it overdue, and nobody else does."""

    async def start(self) -> None:
        self._beat()

    def may_act(self) -> bool:
        return True


class NoBell:
    """There is no other process to wake."""

    def __init__(self, path: Path, name: str, heard: Callable[[], None]) -> None:
        del path, name, heard

    def open(self) -> None:
        """Nothing is heard."""

    def close(self) -> None:
        """Nothing was heard."""

    def notify(self) -> None:
        """Nobody is told."""


def _at_once(reading: Coroutine[Any, Any, T]) -> T:
    """The value of a coroutine that waits for nothing, as reads of the store are."""
    try:
        reading.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise UsageError("a read of the store waited for something")
