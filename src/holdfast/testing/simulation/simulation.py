"""A simulated run: two workers that crash and restart, a client that repeats its starts, and a report.

The client starts the jobs, raises events to them, cancels some, and compares every result with the expected one. After
the run the store is audited, and every history is replayed. The same seed gives the same run.
"""

import asyncio
import hashlib
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random  # noqa: TID251 - made from the seed of the simulation
from typing import Any, Final

from holdfast.audit.auditor import audit
from holdfast.authoring.activity import AnyActivity
from holdfast.authoring.registry import Registry
from holdfast.authoring.workflow import Workflow
from holdfast.client.client import Client
from holdfast.client.engine import Engine
from holdfast.client.views.instances import Description
from holdfast.core.admission import IdPolicy
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import (
    HistoryMismatch,
    HoldfastError,
    InstanceClosed,
    InstanceNotFound,
    InstanceNotPaused,
    InstanceNotRunning,
    InvariantBroken,
    WorkflowCancelled,
    WorkflowFailed,
)
from holdfast.runtime.platform import FaultPoint, Platform, SimulatedCrash
from holdfast.runtime.session import StoreSession
from holdfast.storage.members.instances import Block
from holdfast.storage.members.member import Member
from holdfast.testing.crashes import ignore_crashes
from holdfast.testing.duplicating_store import DuplicatingStore
from holdfast.testing.replayer import Replayer
from holdfast.testing.simulation.contract_checks import ActivityOutcome
from holdfast.testing.simulation.platform import SimulatedClockAndIds, SimulatedNotifications, SimulationLoop, TaskLease

LONGEST_CLIENT_PAUSE_SECONDS: Final = 1.0
LONGEST_PATIENCE_SECONDS: Final = 3.0
NOT_THERE_YET_SECONDS: Final = 0.1
REPEATS: Final = 0.3
"""The probability that the client raises an event once more, with the same id."""


@dataclass(frozen=True, slots=True)
class RaiseEvent:
    """An event to raise, to the instance itself or to another one that may not exist yet.

    `path` has the ids of instances that create one another; the last one receives the event.
    """

    name: str
    value: Any
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelInstance:
    """Cancel the instance, at a moment that the seed chooses."""

    reason: str = "cancelled by the simulation"


@dataclass(frozen=True, slots=True)
class PauseInstance:
    """Pause the instance and resume it, several times, each for a while that the seed chooses (R20)."""

    times: int = 2


ClientAction = RaiseEvent | CancelInstance | PauseInstance


async def run_actions(client: Client, instance: str, actions: tuple[ClientAction, ...], random: Random) -> int:
    """Raise the events one after the other, in the given order; cancel, pause and resume at any moment.

    Returns the number of pauses.
    """
    raises = [action for action in actions if isinstance(action, RaiseEvent)]
    cancels = [action for action in actions if isinstance(action, CancelInstance)]
    pauses = [action for action in actions if isinstance(action, PauseInstance)]
    paused = asyncio.gather(*(_pause_and_resume(client, instance, each, random) for each in pauses))
    await asyncio.gather(
        _raise_all(client, instance, raises, random),
        *(_cancel(client, instance, each, random) for each in cancels),
    )
    return sum(await paused)


async def _raise_all(client: Client, instance: str, raises: list[RaiseEvent], random: Random) -> None:
    for number, action in enumerate(raises):
        await asyncio.sleep(random.random() * LONGEST_CLIENT_PAUSE_SECONDS)
        await _raise(client, instance, action, number)
        while random.random() < REPEATS:  # this event or an earlier one once more, with its id
            again = random.randrange(number + 1)
            await _raise(client, instance, raises[again], again)


async def _raise(client: Client, instance: str, action: RaiseEvent, number: int) -> None:
    path = action.path or (instance,)
    if await wait_for_instance(client, path):
        with suppress(InstanceClosed):  # it was cancelled, or all its waits have ended
            await client.get(path[-1]).raise_event(action.name, action.value, id=f"action-{number}")


async def wait_for_instance(client: Client, path: tuple[str, ...]) -> bool:
    """Wait until the last instance of a path exists. False if its creator ended without starting it."""
    for creator, created in zip(("", *path), path, strict=False):
        while True:
            is_over = creator and (await client.get(creator).describe()).closed_at is not None
            try:
                await client.get(created).describe()
                break
            except InstanceNotFound:
                if is_over:
                    return False
            await asyncio.sleep(NOT_THERE_YET_SECONDS)
    return True


async def _cancel(client: Client, instance: str, action: CancelInstance, random: Random) -> None:
    await asyncio.sleep(random.random() * LONGEST_PATIENCE_SECONDS)
    with suppress(InstanceClosed):
        await client.get(instance).cancel(action.reason)


async def _pause_and_resume(client: Client, instance: str, action: PauseInstance, random: Random) -> int:
    handle = client.get(instance)
    pauses = 0
    for _ in range(action.times):
        await asyncio.sleep(random.random() * LONGEST_CLIENT_PAUSE_SECONDS)
        with suppress(InstanceClosed, InstanceNotRunning, InstanceNotPaused):
            await handle.pause("a pause of the simulation", family=random.random() < FAMILIES)
            before = await handle.describe()
            await asyncio.sleep(random.random() * LONGEST_PATIENCE_SECONDS)
            after = await handle.describe()
            if after.state is InstanceState.PAUSED:
                _check_still(before, after)
            pauses += after.state is InstanceState.PAUSED
            await handle.resume(family=True)
    return pauses


def _check_still(before: Description, after: Description) -> None:
    """R20: while it is PAUSED no turn is committed and no attempt begins."""
    turns = [(each.execution, each.turn, each.collation_key) for each in (before, after)]
    began = [
        [(each.number, each.attempt, each.started_at) for each in one.attempts if each.started_at]
        for one in (before, after)
    ]
    if turns[0] != turns[1] or began[0] != began[1]:
        raise InvariantBroken(f"{before.id} went on while it was PAUSED: {turns} {began}")


LEASE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 3.0
LONGEST_RUN_SECONDS: Final = 3_600.0
"""In simulated time. Every job must have ended by then."""
CANCELLED: Final = "cancelled"
FAMILIES: Final = 0.5
"""How often the descendants are paused, too."""


@dataclass(frozen=True, slots=True)
class Job:
    """An instance to start, and the result it must have."""

    id: str
    workflow: Workflow[..., Any]
    arguments: tuple[Any, ...]
    expected: Any
    actions: tuple[ClientAction, ...] = ()
    kept: Callable[[Any, Mapping[str, Any]], bool] | None = None
    """Checks the state values of the instance, given its result."""
    found_by: Callable[[Any, Mapping[str, Any]], bool] | None = None
    """Checks the attributes of the instance, given its result (F2)."""
    agrees: Callable[[Any, Sequence[ActivityOutcome]], bool] | None = None
    """Compares the result with the ends of the instance's external activities (see `ContractSimulation`)."""
    creators: tuple[str, ...] = ()
    """The chain of instances that starts it, if a workflow and not the client does."""

    @property
    def may_be_cancelled(self) -> bool:
        """Whether CANCELLED is an accepted end."""
        return any(isinstance(action, CancelInstance) for action in self.actions)


@dataclass(slots=True)
class SimulationReport:
    """The result of a run."""

    seed: int
    results: dict[str, Any] = field(default_factory=dict[str, Any])
    crashes: int = 0
    replaced: int = 0
    """Starts that replaced an instance with the same id."""
    pauses: int = 0
    """Pauses that held until their resume."""
    drains: int = 0
    """Clean shutdowns of workers."""
    commits: int = 0
    replies_lost: int = 0
    violations: list[str] = field(default_factory=list[str])
    blackouts: int = 0
    """How often all workers were dead at once."""
    busiest: int = 0
    """The most reads of all workers in one simulated second."""
    rows: dict[str, int] = field(default_factory=dict[str, int])
    """The number of rows of clients by kind and final state, such as ``COMPLETED APPLIED``."""
    trace: list[str] = field(default_factory=list[str])
    store: Path = Path()

    @property
    def digest(self) -> str:
        """A hash of the trace: equal for two runs that took the same steps."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


class Simulation:
    """Two workers and a client around one store, driven by one seed."""

    def __init__(
        self,
        seed: int,
        jobs: Sequence[Job],
        activities: Sequence[AnyActivity],
        *,
        crash_rate: float,
        max_crashes: int,
        cache_size: int = 1_000,
        lost_replies: float = 0.0,
        replace_rate: float = 0.0,
        drain_rate: float = 0.0,
        blackout_seconds: float = 0.0,
    ) -> None:
        self._random = Random(seed)  # noqa: S311 - reproducible on purpose
        self._jobs = jobs
        self._activities = activities
        self._workflows = list({job.workflow.name: job.workflow for job in jobs}.values())
        self._replayer = Replayer(workflows=self._workflows)
        self._crash_rate = crash_rate
        self._max_crashes = max_crashes
        self._cache_size = cache_size
        self._lost_replies = lost_replies
        self._replace_rate = replace_rate
        self._drain_rate = drain_rate
        self._blackout_seconds = blackout_seconds
        self._is_dark = False
        """All workers are dead."""
        self._stores: list[DuplicatingStore] = []
        """The stores of living workers."""
        self._notifications = SimulatedNotifications(self._random)
        self._finished = False
        self.report = SimulationReport(seed)

    def run(self, folder: Path) -> SimulationReport:
        """Run all jobs to their end and return the report."""
        self.report.store = folder / "simulated.db"
        loop = SimulationLoop(self._random)
        loop.set_exception_handler(self._on_unhandled)
        try:
            patience = LONGEST_RUN_SECONDS + self._blackout_seconds
            loop.run_until_complete(asyncio.wait_for(self._everything(), patience))
        finally:
            loop.close()
        self.report.violations += [str(problem) for problem in audit(self.report.store)]
        return self.report

    async def _everything(self) -> None:
        tasks = [asyncio.ensure_future(self._keep_working(name)) for name in ("anna", "bert")]
        tasks += [asyncio.ensure_future(self._black_out()), asyncio.ensure_future(self._count_reads())]
        await self._start_and_collect()
        self._finished = True
        await asyncio.gather(*tasks)

    async def _black_out(self) -> None:
        """Kill all workers at once, for the given time."""
        if self._blackout_seconds:
            await asyncio.sleep(self._random.random() * 2 * LONGEST_PAUSE_SECONDS)
            self._is_dark = True
            self.report.blackouts += 1
            await asyncio.sleep(self._blackout_seconds)
            self._is_dark = False

    async def _count_reads(self) -> None:
        """Measure the reads of the workers in each simulated second: a loop that polls without a pause shows there."""
        before: dict[int, int] = {}
        while not self._finished:
            after = {id(store): store.reads for store in self._stores}
            reads = sum(count - before.get(key, 0) for key, count in after.items())
            self.report.busiest = max(self.report.busiest, reads)
            before = after
            await asyncio.sleep(1.0)

    def _on_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report exceptions that no task handled (invariant 23), except simulated crashes."""
        error = context.get("exception")
        if error is not None and not isinstance(error, SimulatedCrash):
            self.report.violations.append(f"unhandled {error!r}: {context['message']}")
        ignore_crashes(loop, context)

    # ------------------------------------------------------------ the client

    async def _start_and_collect(self) -> None:
        session = StoreSession(self._store("client"), self._platform("client"))
        client = Client(session, Registry((), self._workflows, ()))
        await session.open()
        try:
            for job in self._jobs:
                if job.creators:
                    continue
                await asyncio.sleep(self._random.random() * 0.2)
                await self._start(client, job)
                if self._replace_rate:
                    await self._replace(client, job)
            done = await asyncio.gather(*(run_actions(client, job.id, job.actions, self._random) for job in self._jobs))
            self.report.pauses += sum(done)
            for job in self._jobs:
                await self._collect(client, job)
            await self._settle(client)
        finally:
            await client.close()

    async def _start(self, client: Client, job: Job) -> None:
        """Start a job, sometimes twice."""
        for _ in range(self._random.choice((1, 1, 2))):
            await client.start(job.workflow, *job.arguments, id=job.id)

    async def _settle(self, client: Client) -> None:
        """Wait, after the end of all jobs, for whatever else the workers have to do."""

    async def _collect(self, client: Client, job: Job) -> None:
        """Wait for the end of a job and compare its result with the expected one."""
        if job.creators and not await wait_for_instance(client, (*job.creators, job.id)):
            return  # the workflow that starts it was cancelled before
        handle = client.get(job.id)
        try:
            result = await handle.result()
        except WorkflowFailed as failure:
            result = f"failed: {failure.cause}"
        except WorkflowCancelled:
            result = CANCELLED
        self.report.results[job.id] = result
        if result != job.expected and not (result == CANCELLED and job.may_be_cancelled):
            self.report.violations.append(f"{job.id} gave {result!r}, expected {job.expected!r}")
        try:
            self._replayer.replay(await handle.export_history())
        except HistoryMismatch as difference:  # invariant 14: replay produces the same commands
            self.report.violations.append(f"{job.id} does not match its code: {difference}")
        if job.kept is not None and not job.kept(result, state := await handle.state()):
            self.report.violations.append(f"{job.id} kept {state!r} with the result {result!r}")
        if job.found_by is not None:
            attributes = (await handle.describe()).attributes
            if not job.found_by(result, attributes):
                self.report.violations.append(f"{job.id} has the attributes {attributes!r} with the result {result!r}")

    async def _replace(self, client: Client, job: Job) -> None:
        """Start the job again several times, while the instance before is running (G3)."""
        while self._random.random() < self._replace_rate:
            await asyncio.sleep(self._random.random() * LONGEST_PAUSE_SECONDS)
            await client.start(job.workflow, *job.arguments, id=job.id, policy=IdPolicy.TERMINATE_EXISTING)
            self.report.replaced += 1

    # ------------------------------------------------------------ workers

    async def _keep_working(self, name: str) -> None:
        """Run a worker, and its successors after crashes."""
        life = 0
        while not self._finished:
            if self._is_dark:
                await asyncio.sleep(1.0)
                continue
            life += 1
            await self._one_life(f"{name}{life}")
            await asyncio.sleep(self._random.random() * LONGEST_PAUSE_SECONDS)

    async def _one_life(self, name: str) -> None:
        crashed = asyncio.Event()

        def hook(point: FaultPoint, members: Sequence[Member]) -> None:
            self._note(name, point, members)
            self.report.violations += [f"blocked: {each.reason}" for each in members if isinstance(each, Block)]
            may_crash = self.report.crashes < self._max_crashes and not self._finished
            if crashed.is_set() or (may_crash and self._random.random() < self._crash_rate):
                if not crashed.is_set():
                    self.report.crashes += 1
                    self.report.trace.append(f"{name} crashes {point}")
                crashed.set()
                raise SimulatedCrash

        store = self._store(name, self._lost_replies)
        self._stores.append(store)
        engine = Engine(
            store,
            workflows=self._workflows,
            activities=self._activities,
            lease=LEASE_SECONDS,
            cache_size=self._cache_size,
            _platform=self._platform(name, hook),
        )
        entering = asyncio.ensure_future(engine.__aenter__())
        ended = asyncio.ensure_future(self._until(crashed))
        await asyncio.wait((entering, ended), return_when=asyncio.FIRST_COMPLETED)
        await ended
        if self._is_dark:
            crashed.set()
        if crashed.is_set():
            await kill_engine(engine)  # before its other tasks run: a killed process does not clean up
        entering.cancel()
        with suppress(SimulatedCrash, asyncio.CancelledError, HoldfastError):
            await entering
        if not crashed.is_set():
            await self._leave(engine, crashed)
        self._stores.remove(store)
        self.report.replies_lost += store.replies_lost

    async def _until(self, crashed: asyncio.Event) -> None:
        while not crashed.is_set() and not self._finished and not self._is_dark:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await crashed.wait()
            if self._drain_rate and self._random.random() < self._drain_rate:
                return

    async def _leave(self, engine: Engine, crashed: asyncio.Event) -> None:
        """Drain the worker and shut it down, unless it crashes meanwhile (W10)."""

        async def shut_down() -> None:
            if engine._local.running is not None and not self._finished:
                self.report.drains += 1
                await engine._local.running.drain()
            await engine.__aexit__(None, None, None)

        tasks = [asyncio.ensure_future(shut_down()), asyncio.ensure_future(crashed.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
            with suppress(SimulatedCrash, asyncio.CancelledError):
                await task
        if crashed.is_set():
            await kill_engine(engine)

    def _store(self, name: str, lost_replies: float = 0.0) -> DuplicatingStore:
        clock = SimulatedClockAndIds(self._random, name).now_ms
        store = DuplicatingStore(self.report.store, clock=clock, random=self._random, lost_replies=lost_replies)
        store.violations = self.report.violations  # those of clients count as well
        return store

    def _platform(self, name: str, hook: Any = None) -> Platform:
        return Platform(
            providers=SimulatedClockAndIds(self._random, name),
            make_lease=TaskLease,
            make_notifier=self._notifications.notifier,
            fault_hook=hook,
            detect_local_deaths=False,
            watch_turns=False,
        )

    def _note(self, name: str, point: FaultPoint, members: Sequence[Member]) -> None:
        if point is FaultPoint.AFTER_COMMIT:
            self.report.commits += 1
            now = asyncio.get_running_loop().time()
            self.report.trace.append(f"{now:.3f} {name} {' '.join(type(member).__name__ for member in members)}")


async def kill_engine(engine: Engine) -> None:
    """End an engine as SIGKILL does: no clean-up reaches the store, and its tasks never run again."""
    worker = engine._local.running
    if worker is not None:  # else it was killed before it had a key
        worker.committer.kill()
        await worker.kill()
    await engine._kill()


def simulate(seed: int, jobs: Sequence[Job], activities: Sequence[AnyActivity], **options: Any) -> SimulationReport:
    """Run one seed in a temporary folder and return the report."""
    logger = logging.getLogger("holdfast")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-simulation-") as folder:
            return Simulation(seed, jobs, activities, **options).run(Path(folder))
    finally:
        logger.setLevel(level)
