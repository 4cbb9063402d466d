"""The test environment: an engine that skips time, with replaceable activities and crashes on request.

Waits of months take milliseconds: when everything waits for a time, the clock moves to that time. Activities that take
real time (threads, processes, sockets) are awaited. See ``docs/guide/testing.md``.
"""

import asyncio
import datetime as dt
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import EllipsisType, ModuleType, TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from holdfast.authoring.activity import AnyActivity
from holdfast.authoring.provided import ContextFactory
from holdfast.authoring.workflow import AnyWorkflow
from holdfast.client.embedded_worker import DEFAULT_MAX_ACTIVITIES, EmbeddedWorker
from holdfast.client.engine import Engine
from holdfast.core.deadlines import MILLISECONDS
from holdfast.errors import InvalidOption, InvariantBroken, UsageError
from holdfast.runtime.platform import FaultHook, FaultPoint, Platform, SystemClockAndIds
from holdfast.runtime.session import StoreSession
from holdfast.runtime.worker import DEFAULT_CACHE_SIZE
from holdfast.storage.contract import IN_MEMORY, NullNotifier
from holdfast.storage.members.member import Member
from holdfast.storage.records import InstanceNumber
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.testing.clock import SkippingClock
from holdfast.testing.crashes import (
    Crash,
    CrashingWorkers,
    Where,
    checked,
    quiet_crashes,
)
from holdfast.testing.duplicating_store import RedeliveringStore
from holdfast.testing.every_commit import CrashReport, crash_at_every_commit
from holdfast.testing.replacements import Body, Replaceable, Replacements
from holdfast.testing.simulation.platform import TaskLease

T = TypeVar("T")
DURABILITY: Final = "relaxed"
NEVER_MS: Final = 2**53


class Environment(Engine):
    """An engine for tests: ``async with Environment(workflows=[checkout], activities=[charge]) as env: ...``

    It has all methods of an engine, and a clock that skips. The store is in memory unless a path is given.
    """

    def __init__(
        self,
        store: str | Path | SqliteStore = IN_MEMORY,
        *,
        modules: Iterable[ModuleType] = (),
        workflows: Iterable[AnyWorkflow] = (),
        activities: Iterable[object] = (),
        flows: Iterable[AnyWorkflow] = (),
        replace: Mapping[Replaceable, Body | BaseException] | None = None,
        queues: Iterable[str] | None = None,
        max_activities: int = DEFAULT_MAX_ACTIVITIES,
        cache_size: int = DEFAULT_CACHE_SIZE,
        fault_hook: FaultHook | None = None,
        context: ContextFactory | None = None,
    ) -> None:
        self._time = time = EnvironmentClock()
        self._fault_hook = fault_hook
        if not isinstance(store, SqliteStore):
            store = RedeliveringStore(
                store, clock=time.now_ms, elapsed_ms=time.elapsed_precise_ms, durability=DURABILITY
            )
            store.begin_repeating(self._name_of)
        super().__init__(
            store,
            modules=modules,
            workflows=workflows,
            activities=activities,
            flows=flows,
            queues=queues,
            max_activities=max_activities,
            cache_size=cache_size,
            durability=DURABILITY,
            context=context,
            _platform=Platform(
                providers=self._time,
                make_lease=StaticLease,
                make_notifier=lambda _path, _name, _heard: NullNotifier(),
                fault_hook=self._at_fault_point,
                detect_local_deaths=False,
            ),
        )
        if queues is None:  # those of external activities, too: a replacement runs here
            everywhere = {*self._options.queues, *(each.options.queue for each in self._registry.activities.values())}
            self._options = msgspec.structs.replace(self._options, queues=tuple(sorted(everywhere)))
        self._given_store = store
        self._replacements = Replacements(self._registry, replace or {})
        self._restore_handler: Callable[[], None] | None = None

    def _make_local(self, session: StoreSession) -> EmbeddedWorker:
        self._workers = CrashingWorkers(session, self.real_time, self._fault_hook)
        return self._workers

    def _at_fault_point(self, point: FaultPoint, members: Sequence[Member]) -> None:
        self._workers.at_fault_point(point, members)

    def _name_of(self, number: InstanceNumber, execution: int, activity: int) -> str:
        return self._workers.name_of(number, execution, activity)

    async def __aenter__(self) -> Self:
        clock = SkippingClock.of_running_loop()
        self._time.clock = clock
        clock.enter(self._workers)
        try:
            await super().__aenter__()
        except BaseException:
            clock.leave(self._workers)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._workers.settle()
            await super().__aexit__(kind, error, traceback)
        finally:
            self._clock.leave(self._workers)
            if self._restore_handler is not None:
                self._restore_handler()
        store = self._given_store
        if isinstance(store, RedeliveringStore) and store.violations and error is None:
            raise InvariantBroken(f"a second delivery was applied: {'; '.join(store.violations)}")

    def run_sync(self, scenario: "Callable[[Self], Coroutine[Any, Any, T]]") -> T:
        """Run a test on a new event loop: `scenario` is an async function that takes the environment."""

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
        """Let this much time pass. Everything that becomes due meanwhile happens in order."""
        total = dt.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds) + (duration or dt.timedelta())
        if total < dt.timedelta():
            raise InvalidOption(f"time cannot be skipped backwards: {total}")
        await asyncio.sleep(total.total_seconds())

    def real_time(self) -> AbstractContextManager[None]:
        """A context in which no time is skipped, for input and output of the test itself."""
        return self._clock.held()

    @property
    def _clock(self) -> SkippingClock:
        if self._time.clock is None:
            raise UsageError("the environment is not open: async with Environment(...) as env")
        return self._time.clock

    # ------------------------------------------------------------ activities and workflows

    def replace(self, what: Replaceable, with_: Body | BaseException) -> None:
        """Run `with_` instead of an activity or a workflow from now on, or raise it if it is an exception.

        It takes the same parameters. The replacement of a workflow, such as a child, runs as workflow code.
        """
        self._replacements.replace(what, with_)

    def restore(self, what: Replaceable) -> None:
        """Run the original activity or workflow again from now on."""
        self._replacements.restore(what)

    def calls(self, activity: AnyActivity) -> list[dict[str, Any]]:
        """The arguments of each run of an activity so far, replaced or not, as a dictionary by name."""
        return self._replacements.calls(activity)

    # ------------------------------------------------------------ crashes

    def crash(self, *, before: Where | None = None, after: Where | None = None) -> Crash:
        """Crash the worker before or after the commit of a step; another worker takes over at once.

        The step is an activity (the commit that records its end), a name (of an activity, of an event, or a kind of
        history event such as "timer_fired"), the number of a commit, counted from now, or ``...`` for every commit. The
        worker crashes once for each step. The returned object has the number of crashes so far in `deaths`.
        """
        given = [(FaultPoint.BEFORE_COMMIT, before), (FaultPoint.AFTER_COMMIT, after)]
        named = [(point, where) for point, where in given if where is not None]
        if len(named) != 1:
            raise UsageError("give either before= or after=; call crash() twice for both")
        crash = Crash(named[0][0], checked(named[0][1]))
        if self._restore_handler is None:
            self._restore_handler = quiet_crashes(asyncio.get_running_loop())
        self._workers.add(crash)
        return crash

    @property
    def deaths(self) -> int:
        """How often the worker has crashed so far."""
        return self._workers.deaths

    def duplicate(self, what: AnyActivity | str | EllipsisType = ...) -> None:
        """Deliver something twice from now on: the results of an activity, an event by its name, or everything.

        The second delivery must not change anything; if it does, `InvariantBroken` is raised when the environment is
        closed.
        """
        if not isinstance(self._given_store, RedeliveringStore):
            raise UsageError(
                "duplicate() needs a store that the environment made: give the environment a path, or no store"
            )
        if isinstance(what, int):
            raise UsageError(f"name an activity or an event, or ... for everything, not {what!r}")
        self._given_store.repeated.append(checked(what))

    async def crash_at_every_commit(self, workflow: AnyWorkflow, *args: Any) -> CrashReport:
        """Run a workflow once for each of its commits, with a crash of the worker before and after that commit.

        Result and steps must equal those of a run without a crash; `CrashReport.check` raises otherwise. Each run has
        its own store, which delivers some messages twice. Activities are replaced as in this environment.
        """

        def again(store: SqliteStore, hook: FaultHook | None) -> Environment:
            return Environment(
                store,
                workflows=self._replacements.workflows,
                activities=self._replacements.real,
                replace=self._replacements.made,
                fault_hook=hook,
            )

        return await crash_at_every_commit(again, self._clock, workflow, args)


class EnvironmentClock(SystemClockAndIds):
    """The real clocks and ids, with the skipping clock while the environment is open."""

    def __init__(self) -> None:
        super().__init__()
        self.clock: SkippingClock | None = None

    def now_ms(self) -> int:
        return super().now_ms() if self.clock is None else self.clock.now_ms()

    def elapsed_ms(self) -> int:
        return super().elapsed_ms() if self.clock is None else self.clock.elapsed_ms()


class StaticLease(TaskLease):
    """A lease without heartbeats. Only another worker that finds it expired ends it."""

    async def start(self) -> None:
        self._beat()

    @property
    def fenced_at_ms(self) -> int:
        return NEVER_MS
