"""Comparison of two workloads batch by batch in one process, so that both run under the same conditions.

The speed of a shared machine may double from one second to the next. Samples of a second each differ by that; batches
of a twentieth of a second do not.
"""

import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from benchmarks.bare import BareLoop, drive
from benchmarks.measure import Sample, gather_bounded, processor_seconds
from benchmarks.programs import sequence
from benchmarks.workloads import IN_FLIGHT, STEPS, open_engine

PAIRS: Final = 40
BATCH: Final = 100
"""The number of instances of one batch."""
BARE_BATCH: Final = 300
"""The batch of the bare loop, which is faster: it takes as long, so it meets as many pauses of the disk."""

Batch = Callable[[int], Awaitable[object]]
"""Runs the batch of this number."""


class Took:
    """The times of the batches, pair by pair: seconds and processor seconds per operation."""

    def __init__(self) -> None:
        self.mine: list[tuple[float, float]] = []
        self.other: list[tuple[float, float]] = []

    @property
    def speed(self) -> float:
        """The speed of the first relative to the second: the median over the pairs."""
        return statistics.median(other[0] / mine[0] for mine, other in zip(self.mine[1:], self.other[1:], strict=True))

    @property
    def processor(self) -> float:
        """The processor time of the first relative to the second."""
        return statistics.median(mine[1] / other[1] for mine, other in zip(self.mine[1:], self.other[1:], strict=True))


async def take_turns(mine: Batch, other: Batch, scale: float, *, sizes: tuple[int, int] = (1, 1)) -> Took:
    """Run batches of both in alternating order. The first pair is a warm-up."""
    took = Took()
    both = ((mine, took.mine, sizes[0]), (other, took.other, sizes[1]))
    for number in range(max(2, int(PAIRS * scale)) + 1):
        for batch, times, size in both[:: -1 if number % 2 else 1]:
            cpu, before = processor_seconds(), time.perf_counter()
            await batch(number)
            times.append(((time.perf_counter() - before) / size, (processor_seconds() - cpu) / size))
    return took


async def b1(folder: Path, scale: float) -> Sample:
    """B1 and its bare limit."""
    loop = BareLoop(folder / "bare.db", batched=False)
    async with open_engine(folder / "engine.db") as engine:

        async def one(number: int) -> None:
            if await engine.run(sequence, STEPS, id=f"b1-{number}") != STEPS:
                raise AssertionError(number)

        async def run_batch(number: int) -> None:
            await gather_bounded(one, BATCH, IN_FLIGHT, first=number * BATCH)

        async def write_batch(_: int) -> None:
            drive(loop, BARE_BATCH, STEPS, IN_FLIGHT)

        took = await take_turns(run_batch, write_batch, scale, sizes=(BATCH, BARE_BATCH))
    loop.close()
    return {"of_bare": took.speed, "cpu_of_bare": took.processor}
