"""The cost of metrics: batches of B1 with and without an observer of commits, in one engine."""

from pathlib import Path

from benchmarks.measure import Sample, gather_bounded
from benchmarks.pairs import BATCH, take_turns
from benchmarks.programs import sequence
from benchmarks.workloads import IN_FLIGHT, STEPS, open_engine
from holdfast.client.metrics import observe


async def metrics(store: Path, scale: float) -> Sample:
    """The speed and the processor time of B1 with metrics, relative to B1 without them."""
    async with open_engine(store) as engine:
        session = engine._session
        counted = observe(engine)

        async def one(number: int) -> None:
            if await engine.run(sequence, STEPS, id=f"it-{number}") != STEPS:
                raise AssertionError(number)

        async def with_metrics(number: int) -> None:
            session.observer = counted
            await gather_bounded(one, BATCH, IN_FLIGHT, first=2 * number * BATCH)

        async def without(number: int) -> None:
            session.observer = None
            await gather_bounded(one, BATCH, IN_FLIGHT, first=(2 * number + 1) * BATCH)

        took = await take_turns(with_metrics, without, 3 * scale)
        if counted.instances_closed["sequence", "COMPLETED"] != len(took.mine) * BATCH:
            raise AssertionError(counted.instances_closed)
    return {"speed": took.speed, "processor": took.processor}
