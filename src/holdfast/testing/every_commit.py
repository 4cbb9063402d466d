"""A crash at every commit: a workflow is run once for each of its commits, and its worker crashes at that commit.

Result and steps must equal those of a run without a crash (L13, G12). A crash has the effect of SIGKILL inside this
process: nothing more of the worker reaches the store, and its bodies do not continue.
"""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random  # noqa: TID251 - seeded: the same messages are delivered twice in every run
from typing import TYPE_CHECKING, Any, Final

from holdfast.audit.auditor import audit
from holdfast.authoring.workflow import AnyWorkflow
from holdfast.core.attributes import StoredAttribute
from holdfast.core.history import INPUTS, HistoryEvent, decode_events
from holdfast.core.leases import WORKER_LEASE_MS
from holdfast.errors import HoldfastError, InvariantBroken
from holdfast.runtime.platform import FaultHook, FaultPoint, SimulatedCrash
from holdfast.storage.members.member import Member
from holdfast.storage.records import InstanceId
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.testing.clock import SkippingClock
from holdfast.testing.crashes import ignore_crashes
from holdfast.testing.duplicating_store import DuplicatingStore
from holdfast.testing.simulation.simulation import kill_engine

if TYPE_CHECKING:
    from holdfast.client.engine import Engine


INSTANCE: Final = "crash-test"
MOST_COMMITS: Final = 10_000
LEASE_SECONDS: Final = WORKER_LEASE_MS / 1000 + 1

Make = Callable[[SqliteStore, FaultHook | None], "Engine"]


@dataclass(frozen=True, slots=True)
class RunEnding:
    """How one run ended."""

    result: str
    commands: list[list[HistoryEvent]]
    """The commands of each execution."""
    attributes: dict[str, StoredAttribute]
    problems: list[str]


@dataclass(slots=True)
class CrashReport:
    """The outcome of all runs."""

    result: str
    """The result of the run without a crash, or its failure, as a string."""
    crashes: int = 0
    problems: list[str] = field(default_factory=list[str])

    def check(self) -> None:
        """Raise `InvariantBroken` if a run with a crash differs from the run without one."""
        if self.problems:
            raise InvariantBroken(f"{len(self.problems)} differences after crashes: " + "; ".join(self.problems))


async def crash_at_every_commit(
    make: Make, clock: SkippingClock, workflow: AnyWorkflow, args: tuple[Any, ...]
) -> CrashReport:
    """Run the workflow without a crash, then with a crash before and after each of its commits."""
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    loop.set_exception_handler(ignore_crashes)
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-crashes-") as folder:
            runs = _Runs(make, clock, workflow, args, Path(folder))
            calm, _ = await runs.run("calm", None, 0)
            report = CrashReport(calm.result, problems=list(calm.problems))
            for point in FaultPoint:
                for at in range(1, MOST_COMMITS):
                    ended, has_crashed = await runs.run(f"{point}-{at}", point, at)
                    if not has_crashed:
                        break
                    report.crashes += 1
                    report.problems += [f"{point} {at}: {each}" for each in _differences(calm, ended)]
            return report
    finally:
        loop.set_exception_handler(handler)


class _Runs:
    """Runs with at most one crash each."""

    def __init__(
        self, make: Make, clock: SkippingClock, workflow: AnyWorkflow, args: tuple[Any, ...], folder: Path
    ) -> None:
        self._make = make
        self._clock = clock
        self._workflow = workflow
        self._args = args
        self._folder = folder

    async def run(self, name: str, point: FaultPoint | None, at: int) -> tuple[RunEnding, bool]:
        """One run on its own store. Returns how it ended, and whether the worker crashed."""
        path = self._folder / f"{name}.db"
        crashed = asyncio.Event()
        over = asyncio.Event()
        first = self._store(path)
        engine = self._make(first, _crash_at(point, at, crashed, over))
        work = asyncio.ensure_future(self._work(engine))
        crash = asyncio.ensure_future(crashed.wait())
        await asyncio.wait((work, crash), return_when=asyncio.FIRST_COMPLETED)
        crash.cancel()
        second: DuplicatingStore | None = None
        if crashed.is_set():
            work.cancel()
            with suppress(asyncio.CancelledError, SimulatedCrash, HoldfastError):
                await work
            await kill_engine(engine)
            self._clock.advance(LEASE_SECONDS)  # so that the successor finds the lease overdue
            second = self._store(path)
            engine = self._make(second, None)
            result = await self._work(engine)
        else:
            result = await work
        over.set()
        commands = await self._commands(engine)
        attributes = await self._attributes(second or first)
        await engine.__aexit__(None, None, None)
        problems = [str(problem) for problem in audit(path)] + first.violations + (second.violations if second else [])
        return RunEnding(result, commands, attributes, problems), crashed.is_set()

    async def _work(self, engine: "Engine") -> str:
        await engine.__aenter__()
        try:
            return repr(await engine.run(self._workflow, *self._args, id=INSTANCE))
        except HoldfastError as error:
            return f"{type(error).__name__}: {error}"

    async def _commands(self, engine: "Engine") -> list[list[HistoryEvent]]:
        record = await engine._session.store.find_instance(InstanceId(INSTANCE))
        commands: list[list[HistoryEvent]] = []
        for execution in range(1, record.execution + 1 if record is not None else 1):
            rows = await engine._session.store.read_history(record.number, execution) if record is not None else []
            events = [event for row in rows for event in decode_events(row.events)]
            commands.append([event for event in events if not isinstance(event, INPUTS)])
        return commands

    async def _attributes(self, store: SqliteStore) -> dict[str, StoredAttribute]:
        record = await store.find_instance(InstanceId(INSTANCE))
        return {} if record is None else await store.read_attributes(record.number)

    def _store(self, path: Path) -> DuplicatingStore:
        return DuplicatingStore(path, clock=self._clock.now_ms, random=Random(path.name))  # noqa: S311 - reproducible


def _crash_at(point: FaultPoint | None, at: int, crashed: asyncio.Event, over: asyncio.Event) -> FaultHook:
    """A fault hook that crashes at a commit and at every later one, until the work is over."""
    seen = 0

    def hook(now: FaultPoint, members: Sequence[Member]) -> None:
        nonlocal seen
        del members
        seen += now is point
        if crashed.is_set() or (now is point and seen == at and not over.is_set()):
            crashed.set()
            raise SimulatedCrash

    return hook


def _differences(calm: RunEnding, ended: RunEnding) -> list[str]:
    found = list(ended.problems)
    if ended.result != calm.result:
        found.append(f"the result was {ended.result}, and {calm.result} without a crash")
    if ended.attributes != calm.attributes:
        found.append(f"the attributes were {ended.attributes}, and {calm.attributes} without a crash")
    if len(ended.commands) != len(calm.commands):
        found.append(f"there were {len(ended.commands)} executions, and {len(calm.commands)} without a crash")
    for execution, (before, after) in enumerate(zip(calm.commands, ended.commands, strict=False), start=1):
        found += [f"execution {execution}: {each}" for each in _different_steps(before, after)]
    return found


def _different_steps(calm: list[HistoryEvent], ended: list[HistoryEvent]) -> list[str]:
    found: list[str] = []
    if len(ended) != len(calm):
        found.append(f"{len(ended)} steps were recorded, and {len(calm)} without a crash")
    pairs = enumerate(zip(calm, ended, strict=False))
    return found + [
        f"step {number} differs: {b!r} instead of {a!r}" for number, (a, b) in pairs if not a.is_same_step(b)
    ]
