"""What a worker does while there is nothing for it to do, in simulated time: it reads now and then, no more."""

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from random import Random  # noqa: TID251 - made from a seed
from typing import Any

import pytest

import holdfast as hf
from holdfast.authoring.registry import Registry
from holdfast.client.client import Client
from holdfast.runtime.platform import FaultPoint, Platform
from holdfast.runtime.session import StoreSession
from holdfast.storage.members.member import Member
from holdfast.storage.relational.reads import BoundStatement
from holdfast.storage.relational.transaction import Row
from holdfast.testing.duplicating_store import DuplicatingStore
from holdfast.testing.simulation.platform import SimulatedClockAndIds, SimulatedNotifications, SimulationLoop, TaskLease

IDLE_SECONDS = 60.0
LOOKS_PER_SECOND = 3
"""By the worker for work, by the janitor and by the net; each takes a handful of reads."""


@hf.activity
async def step() -> int:
    return 1


@hf.workflow
async def steps() -> int:
    return await step()


@hf.activity
async def another() -> int:
    return 2


@hf.workflow
async def naps() -> int:
    await asyncio.sleep(IDLE_SECONDS / 2)
    return 3


class QuietWorld:
    """Engines on one file in simulated time, and what they write."""

    def __init__(self, folder: Path) -> None:
        self._random = Random(1)  # noqa: S311 - reproducible on purpose
        self._path = folder / "shop.db"
        self._bus = SimulatedNotifications(self._random)
        self.written: list[Member] = []
        self.reads = 0

    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        loop = SimulationLoop(self._random)
        try:
            loop.run_until_complete(scenario)
        finally:
            loop.close()

    def engine(self, *definitions: hf.Workflow[..., Any] | hf.Activity[..., Any], **options: Any) -> hf.Engine:
        return hf.Engine(
            self._store(),
            workflows=[each for each in definitions if isinstance(each, hf.Workflow)],
            activities=[each for each in definitions if isinstance(each, hf.Activity)],
            _platform=self._platform(),
            **options,
        )

    async def start_elsewhere(self, workflow: hf.Workflow[..., Any]) -> None:
        session = StoreSession(self._store(), self._platform())
        client = Client(session, Registry((), [workflow], ()))
        await session.open()
        await client.start(workflow, id="elsewhere")
        await client.close()

    async def idle(self) -> list[str]:
        """What is written in a while."""
        self.written.clear()
        self.reads = 0
        await asyncio.sleep(IDLE_SECONDS)
        return [type(member).__name__ for member in self.written]

    def _store(self) -> "CountingStore":
        return CountingStore(
            self, self._path, clock=SimulatedClockAndIds(self._random, "s").now_ms, random=self._random
        )

    def _platform(self) -> Platform:
        return Platform(
            providers=SimulatedClockAndIds(self._random, f"w{self._random.random()}"),
            make_lease=TaskLease,
            make_notifier=self._bus.notifier,
            fault_hook=self._listen,
            detect_local_deaths=False,
        )

    def _listen(self, point: FaultPoint, members: Sequence[Member]) -> None:
        if point is FaultPoint.BEFORE_COMMIT:
            self.written.extend(members)


class CountingStore(DuplicatingStore):
    """Says how often it is read."""

    def __init__(self, world: QuietWorld, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self._world = world

    async def _read(self, statement: str, *bindings: Any) -> list[Row]:
        self._world.reads += 1
        return await super()._read(statement, *bindings)

    async def _read_all(self, *asked: BoundStatement) -> list[list[Row]]:
        self._world.reads += len(asked)
        return await super()._read_all(*asked)


@pytest.fixture
def world(tmp_path: Path) -> QuietWorld:
    return QuietWorld(tmp_path)


def test_an_idle_worker_reads_now_and_then_and_writes_nothing(world: QuietWorld) -> None:
    async def scenario() -> None:
        async with world.engine(steps, step):
            assert await world.idle() == []
            assert world.reads < IDLE_SECONDS * LOOKS_PER_SECOND * 5

    world.run(scenario())


def test_G12_an_instance_of_a_workflow_that_nobody_here_knows_costs_no_empty_claims(world: QuietWorld) -> None:
    async def scenario() -> None:
        await world.start_elsewhere(naps)
        async with world.engine(steps, step) as one, world.engine(steps, step):
            assert await world.idle() == []
            assert world.reads < 2 * IDLE_SECONDS * LOOKS_PER_SECOND * 5
            assert await one.run(steps) == 1, "its own work is not held up"

    world.run(scenario())


def test_G12_a_timer_of_a_workflow_that_nobody_here_knows_wakes_nobody(world: QuietWorld) -> None:
    async def scenario() -> None:
        async with world.engine(naps) as there:
            await there.start(naps, id="elsewhere")
        async with world.engine(steps, step):
            assert await world.idle() == []

    world.run(scenario())


def test_an_attempt_of_an_activity_that_nobody_here_knows_costs_no_empty_claims(world: QuietWorld) -> None:
    """Two programs share a file and the default queue; one of them is not running."""

    async def scenario() -> None:
        async with world.engine(steps, queues=["theirs"]) as there:
            handle = await there.start(steps, id="elsewhere")
            while not (await handle.describe()).attempts:  # noqa: ASYNC110 - simulated time
                await asyncio.sleep(0.01)
        async with world.engine(another):
            assert await world.idle() == []

    world.run(scenario())
