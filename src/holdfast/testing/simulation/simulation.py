"""One simulated run: workers that crash and come back, a client that starts things twice, and what came of it.

What the client of a simulation does to an instance that it started: it raises events, and asks it to end.
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
from holdfast.core.admission import IdPolicy
from holdfast.errors import (
    HistoryMismatch,
    HoldfastError,
    InstanceClosed,
    InstanceNotFound,
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
from holdfast.testing.simulation.platform import SimulatedClockAndIds, SimulatedNotifications, SimulationLoop, TaskLease

LONGEST_CLIENT_PAUSE_SECONDS: Final = 1.0
LONGEST_PATIENCE_SECONDS: Final = 3.0
NOT_THERE_YET_SECONDS: Final = 0.1
REPEATS: Final = 0.3
"""How often a sender is not sure that its event arrived, and raises it again."""


@dataclass(frozen=True, slots=True)
class RaiseEvent:
    """An event to raise; to the instance itself, or to another one that may not be there yet.

    `path` has the ids of the instances that create one another: the last one gets the event.
    """

    name: str
    value: Any
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelInstance:
    """Ask the instance to end, at a moment that the seed chooses."""

    reason: str = "the simulation says so"


ClientAction = RaiseEvent | CancelInstance


async def run_errands(client: Client, instance: str, errands: tuple[ClientAction, ...], random: Random) -> None:
    """The events one after the other, in the order in which they are given; cancellations at any moment."""
    raises = [errand for errand in errands if isinstance(errand, RaiseEvent)]
    cancels = [errand for errand in errands if isinstance(errand, CancelInstance)]
    await asyncio.gather(
        _raise_all(client, instance, raises, random), *(_cancel(client, instance, each, random) for each in cancels)
    )


async def _raise_all(client: Client, instance: str, raises: list[RaiseEvent], random: Random) -> None:
    for number, errand in enumerate(raises):
        await asyncio.sleep(random.random() * LONGEST_CLIENT_PAUSE_SECONDS)
        await _raise(client, instance, errand, number)
        while random.random() < REPEATS:  # this one or an earlier one once more: its id says that it is the same
            again = random.randrange(number + 1)
            await _raise(client, instance, raises[again], again)


async def _raise(client: Client, instance: str, errand: RaiseEvent, number: int) -> None:
    path = errand.path or (instance,)
    if await comes(client, path):
        with suppress(InstanceClosed):  # cancelled, or every wait is over: nobody needs it any more
            await client.get(path[-1]).raise_event(errand.name, errand.value, id=f"errand-{number}")


async def comes(client: Client, path: tuple[str, ...]) -> bool:
    """Wait until the last instance of a path is there. False if it never will be: its creator has ended without it."""
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


async def _cancel(client: Client, instance: str, errand: CancelInstance, random: Random) -> None:
    await asyncio.sleep(random.random() * LONGEST_PATIENCE_SECONDS)
    with suppress(InstanceClosed):
        await client.get(instance).cancel(errand.reason)


LEASE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 3.0
LONGEST_RUN_SECONDS: Final = 3_600.0
"""In simulated time. Everything that can run has to be finished by then."""
CANCELLED: Final = "cancelled"


@dataclass(frozen=True, slots=True)
class Job:
    """An instance to start, and the result it must have."""

    id: str
    workflow: Workflow[..., Any]
    arguments: tuple[Any, ...]
    expected: Any
    errands: tuple[ClientAction, ...] = ()
    kept: Callable[[Any, Mapping[str, Any]], bool] | None = None
    """Whether `hf.state` holds what it should after this result, if it matters."""
    creators: tuple[str, ...] = ()
    """The instances that lead to it, if a workflow starts it and not the client."""

    @property
    def may_be_cancelled(self) -> bool:
        """Whether being cancelled is a good end for it, too."""
        return any(isinstance(errand, CancelInstance) for errand in self.errands)


@dataclass(slots=True)
class SimulationReport:
    """What happened in a run."""

    seed: int
    results: dict[str, Any] = field(default_factory=dict[str, Any])
    crashes: int = 0
    replaced: int = 0
    """Starts that ended the instance which had their id, or came after its end."""
    drains: int = 0
    """Workers that left cleanly, and came back."""
    commits: int = 0
    replies_lost: int = 0
    violations: list[str] = field(default_factory=list[str])
    trace: list[str] = field(default_factory=list[str])
    store: Path = Path()

    @property
    def digest(self) -> str:
        """The same for two runs that took the same steps."""
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
        self._bus = SimulatedNotifications(self._random)
        self._finished = False
        self.report = SimulationReport(seed)

    def run(self, folder: Path) -> SimulationReport:
        """Run to the end, and tell what happened."""
        self.report.store = folder / "simulated.db"
        loop = SimulationLoop(self._random)
        loop.set_exception_handler(self._nobody_took)
        try:
            loop.run_until_complete(asyncio.wait_for(self._everything(), LONGEST_RUN_SECONDS))
        finally:
            loop.close()
        self.report.violations += [str(problem) for problem in audit(self.report.store)]
        return self.report

    async def _everything(self) -> None:
        workers = [asyncio.ensure_future(self._keep_working(name)) for name in ("anna", "bert")]
        await self._start_and_collect()
        self._finished = True
        await asyncio.gather(*workers)

    def _nobody_took(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Only documented exceptions escape (invariant 23). A simulated crash is not news."""
        error = context.get("exception")
        if error is not None and not isinstance(error, SimulatedCrash):
            self.report.violations.append(f"nobody took {error!r}: {context['message']}")
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
                for _ in range(self._random.choice((1, 1, 2))):
                    await client.start(job.workflow, *job.arguments, id=job.id)
                if self._replace_rate:
                    await self._replace(client, job)
            await asyncio.gather(*(run_errands(client, job.id, job.errands, self._random) for job in self._jobs))
            for job in self._jobs:
                await self._collect(client, job)
        finally:
            await client.close()

    async def _collect(self, client: Client, job: Job) -> None:
        """Wait for the end of a job and compare it with what it had to be."""
        if job.creators and not await comes(client, (*job.creators, job.id)):
            return  # whoever had to start it was cancelled before
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
        except HistoryMismatch as difference:  # invariant 14: from nothing, the same commands
            self.report.violations.append(f"{job.id} is not what its code does: {difference}")
        if job.kept is not None and not job.kept(result, state := await handle.state()):
            self.report.violations.append(f"{job.id} kept {state!r} with the result {result!r}")

    async def _replace(self, client: Client, job: Job) -> None:
        """G3: start it again and again, in the middle of whatever the one before was doing."""
        while self._random.random() < self._replace_rate:
            await asyncio.sleep(self._random.random() * LONGEST_PAUSE_SECONDS)
            await client.start(job.workflow, *job.arguments, id=job.id, policy=IdPolicy.TERMINATE_EXISTING)
            self.report.replaced += 1

    # ------------------------------------------------------------ workers

    async def _keep_working(self, name: str) -> None:
        """A worker, and its successors when it crashes."""
        life = 0
        while not self._finished:
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
        if crashed.is_set():
            await die(engine)  # before the rest of it hears anything: the dead do not tidy up
        entering.cancel()
        with suppress(SimulatedCrash, asyncio.CancelledError, HoldfastError):
            await entering
        if not crashed.is_set():
            await self._leave(engine, crashed)
        self.report.violations += store.violations
        self.report.replies_lost += store.replies_lost

    async def _until(self, crashed: asyncio.Event) -> None:
        while not crashed.is_set() and not self._finished:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await crashed.wait()
            if self._drain_rate and self._random.random() < self._drain_rate:
                return

    async def _leave(self, engine: Engine, crashed: asyncio.Event) -> None:
        """W10: it drains, if there is still something to do, and leaves; unless it crashes meanwhile."""

        async def farewell() -> None:
            if engine._local.running is not None and not self._finished:
                self.report.drains += 1
                await engine._local.running.drain()
            await engine.__aexit__(None, None, None)

        tasks = [asyncio.ensure_future(farewell()), asyncio.ensure_future(crashed.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
            with suppress(SimulatedCrash, asyncio.CancelledError):
                await task
        if crashed.is_set():
            await die(engine)

    def _store(self, name: str, lost_replies: float = 0.0) -> DuplicatingStore:
        clock = SimulatedClockAndIds(self._random, name).now_ms
        return DuplicatingStore(self.report.store, clock=clock, random=self._random, lost_replies=lost_replies)

    def _platform(self, name: str, hook: Any = None) -> Platform:
        return Platform(
            providers=SimulatedClockAndIds(self._random, name),
            make_lease=TaskLease,
            make_notifier=self._bus.bell,
            fault_hook=hook,
            detect_local_deaths=False,
            watch_turns=False,
        )

    def _note(self, name: str, point: FaultPoint, members: Sequence[Member]) -> None:
        if point is FaultPoint.AFTER_COMMIT:
            self.report.commits += 1
            now = asyncio.get_running_loop().time()
            self.report.trace.append(f"{now:.3f} {name} {' '.join(type(member).__name__ for member in members)}")


async def die(engine: Engine) -> None:
    """End an engine as SIGKILL would: no clean-up reaches the store, and its tasks never run again."""
    worker = engine._local.running
    if worker is not None:  # else it had not come so far as to have a key
        worker.committer.kill()
        await worker.kill()
    await engine._kill()


def simulate(seed: int, jobs: Sequence[Job], activities: Sequence[AnyActivity], **options: Any) -> SimulationReport:
    """Run one seed in a folder of its own."""
    logger = logging.getLogger("holdfast")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-simulation-") as folder:
            return Simulation(seed, jobs, activities, **options).run(Path(folder))
    finally:
        logger.setLevel(level)
