"""The workloads of what arrives at workflows: raised events (B5, EVENTS) and streamed values (TOKENS)."""

import asyncio
import statistics
import time
from pathlib import Path
from typing import Final

from benchmarks.measure import Sample, gather_bounded
from benchmarks.programs import EVENT, collector, reader, taken, waiter
from benchmarks.workloads import IN_FLIGHT, groups_of, open_engine
from holdfast.client.handle import Handle

TENTH: Final = 10
WARM_UP: Final = 50
ROUNDS: Final = 5
"""Of B5, one after the other: each is over in a blink."""


async def b5(folder: Path, scale: float) -> Sample:
    """Events: workflows that wait for one event each, then all events raised, 50 in flight."""
    count = max(20, int(200 * scale))
    async with open_engine(folder / "engine.db") as engine:

        async def deliver(first: int, many: int) -> float:
            handles = await asyncio.gather(
                *(engine.start(waiter, id=f"b5-{number}") for number in range(first, first + many))
            )
            before = time.perf_counter()
            _, results = await asyncio.gather(
                gather_bounded(lambda number: handles[number].raise_event(EVENT, number), many, IN_FLIGHT),
                asyncio.gather(*(handle.result() for handle in handles)),
            )
            if results != list(range(many)):
                raise AssertionError(many)
            return time.perf_counter() - before

        await deliver(ROUNDS * count, WARM_UP)
        seconds = statistics.median([await deliver(part * count, count) for part in range(ROUNDS)])
    return {"events_per_s": count / seconds, "seconds": seconds}


async def events(folder: Path, scale: float) -> Sample:
    """Many events to one instance, in order. `growth` is the last tenth against the first."""
    tenth = max(10, int(1_000 * scale))
    async with open_engine(folder / "engine.db") as engine:
        await _collect(await engine.start(collector, tenth, id="warm-up"), 0, tenth)
        taken.clear()
        handle = await engine.start(collector, TENTH * tenth, id="events")
        took = [await _collect(handle, part * tenth, tenth) for part in range(TENTH)]
        await handle.result()
    return {"events_per_s": TENTH * tenth / sum(took), "growth": took[-1] / took[0]}


async def _collect(handle: Handle[int], first: int, count: int) -> float:
    """Raise events with these numbers and wait until the code has them all."""
    before = time.perf_counter()
    await gather_bounded(lambda number: handle.raise_event(EVENT, number), count, IN_FLIGHT, first=first)
    while len(taken) < first + count:  # noqa: ASYNC110 - workflow code must not touch what another loop waits for
        await asyncio.sleep(0)
    return time.perf_counter() - before


async def stream(folder: Path, scale: float) -> Sample:
    """TOKENS: values of one activity, streamed through a workflow that takes each of them."""
    count = max(1_000, int(100_000 * scale))
    async with open_engine(folder / "engine.db") as engine:
        await engine.run(reader, WARM_UP, id="warm-up")
        groups, before = groups_of(engine), time.perf_counter()
        if await engine.run(reader, count, id="tokens") != count:
            raise AssertionError(count)
        seconds = time.perf_counter() - before
        return {
            "tokens_per_s": count / seconds,
            "seconds": seconds,
            "tokens_per_commit": count / (groups_of(engine) - groups),
        }
