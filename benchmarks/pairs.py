"""Two that are compared batch by batch in one process: so close to each other that both meet the same machine.

A machine that others use may double its speed from one second to the next. Samples of a second each, one after the
other, differ by that; batches of a twentieth of one do not.
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
"""Instances of one batch."""
BARE_BATCH: Final = 300
"""Of the bare loop, which is faster: as long a time, and so as many meetings with the disk's own pauses."""

Batch = Callable[[int], Awaitable[object]]
"""Does a batch of this number."""


class Took:
    """What the batches of two took, pair by pair: seconds and processor seconds, each for one of what they do."""

    def __init__(self) -> None:
        self.mine: list[tuple[float, float]] = []
        self.other: list[tuple[float, float]] = []

    @property
    def speed(self) -> float:
        """How fast the first is, of the other: the median of the pairs."""
        return statistics.median(other[0] / mine[0] for mine, other in zip(self.mine[1:], self.other[1:], strict=True))

    @property
    def processor(self) -> float:
        """What the first takes of the processor, over the other."""
        return statistics.median(mine[1] / other[1] for mine, other in zip(self.mine[1:], self.other[1:], strict=True))


async def take_turns(mine: Batch, other: Batch, scale: float, *, sizes: tuple[int, int] = (1, 1)) -> Took:
    """Batches of one and of the other, in alternating order. The first pair is for warming up."""
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
