"""The measurements of growth, each for one store (a path or a URL) and one size."""

import asyncio
import io
import statistics
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from itertools import pairwise
from typing import Final

import holdfast as hf
from benchmarks.growth import filling
from benchmarks.measure import Sample, gather_bounded, processor_seconds
from benchmarks.programs import sequence, step
from benchmarks.together import no_server
from holdfast.cli.list import list_instances

IN_FLIGHT: Final = 50
STEPS: Final = 5
BUCKETS: Final = 20
LISTS: Final = 5
PAYLOAD_IN_FLIGHT: Final = 10
PAYLOAD_BYTES: Final = 20_000_000
"""The most bytes that the steps of one sample take and return."""

_times: list[tuple[float, float]] = []


@hf.activity
async def timed(number: int) -> int:
    """Records the time and the processor time of the process."""
    _times.append((time.perf_counter(), processor_seconds()))
    return number + 1


@hf.workflow
async def timed_steps(steps: int) -> int:
    """Steps in a row."""
    number = 0
    for _ in range(steps):
        number = await timed(number)
    return number


@hf.activity
async def carry(text: str) -> str:
    """Takes a value and returns it."""
    return text


@hf.workflow
async def carrying(size: int, steps: int) -> int:
    """Steps in a row, each with a value of `size` characters as its argument and its result."""
    text = "x" * size
    for _ in range(steps):
        text = await carry(text)
    return len(text)


def history(store: str, steps: int) -> list[Sample]:
    """One workflow with many steps in a row: the cost of a step in each twentieth of them."""

    async def run() -> None:
        async with hf.Engine(store, workflows=[timed_steps], activities=[timed]) as engine:
            await engine.run(timed_steps, STEPS, id="warm-up")
            _times.clear()
            await engine.run(timed_steps, steps, id="history")

    asyncio.run(run())
    size = steps // BUCKETS
    found: list[Sample] = []
    for part in range(BUCKETS):
        times = _times[part * size : (part + 1) * size]
        gaps = [after[0] - before[0] for before, after in pairwise(times)]
        found.append(
            {
                "steps": (part + 1) * size,
                "us_per_step": statistics.median(gaps) * 1e6,
                "cpu_us_per_step": (times[-1][1] - times[0][1]) / len(gaps) * 1e6,
            }
        )
    return found


async def _throughput(store: str, tag: str, count: int, server_cpu: Callable[[], float]) -> Sample:
    async with hf.Engine(store, workflows=[sequence], activities=[step]) as engine:

        async def one(number: int) -> None:
            await engine.run(sequence, STEPS, id=f"{tag}-{number}")

        await gather_bounded(one, IN_FLIGHT, IN_FLIGHT, first=count)
        server, cpu, before = server_cpu(), processor_seconds(), time.perf_counter()
        await gather_bounded(one, count, IN_FLIGHT)
        seconds = time.perf_counter() - before
        cpu = processor_seconds() - cpu
        server = server_cpu() - server  # while the connections of the engine are open
    steps = count * STEPS
    return {
        "us_per_step": seconds / steps * 1e6,
        "cpu_us_per_step": (cpu + server) / steps * 1e6,
        "worker_us_per_step": cpu / steps * 1e6,
        "database_us_per_step": server / steps * 1e6,
        "steps_per_s": steps / seconds,
    }


def throughput(store: str, tag: str, scale: float, server_cpu: Callable[[], float] = no_server) -> Sample:
    """B1 in a store that may have other instances."""
    return asyncio.run(_throughput(store, tag, instances(scale), server_cpu))


def instances(scale: float) -> int:
    """How many workflows B1 has, besides those of the warm-up."""
    return max(IN_FLIGHT, int(500 * scale))


def listing_ms(store: str, **filters: str) -> float:
    """The time of ``holdfast list`` without that of the interpreter: the store is opened, read and closed."""
    took: list[float] = []
    for _ in range(LISTS):
        before = time.perf_counter()
        with redirect_stdout(io.StringIO()):
            list_instances(store=store, as_json=True, **filters)  # type: ignore[arg-type]
        took.append((time.perf_counter() - before) * 1000)
    return statistics.median(took)


def closed(store: str, count: int, present: int, scale: float, server_cpu: Callable[[], float]) -> Sample:
    """B1 and ``holdfast list`` with `count` closed instances in the store, of which `present` are there."""
    before = time.perf_counter()
    filling.fill(store, count - present)
    filled = time.perf_counter() - before
    sample = throughput(store, f"among-{count}", scale, server_cpu)
    return {
        "closed": count,
        "fill_seconds": filled,
        **sample,
        "list_ms": listing_ms(store),
        "list_running_ms": listing_ms(store, state="RUNNING"),
    }


async def _payload(store: str, size: int, tag: str) -> Sample:
    count = max(2, min(200, PAYLOAD_BYTES // (size * STEPS * 2)))
    async with hf.Engine(store, workflows=[carrying], activities=[carry]) as engine:

        async def one(number: int) -> None:
            if await engine.run(carrying, size, STEPS, id=f"{tag}-{number}") != size:
                raise AssertionError(size)

        await gather_bounded(one, 2, PAYLOAD_IN_FLIGHT, first=count)
        cpu, before = processor_seconds(), time.perf_counter()
        await gather_bounded(one, count, PAYLOAD_IN_FLIGHT)
        seconds = time.perf_counter() - before
        cpu = processor_seconds() - cpu
    steps = count * STEPS
    return {"bytes": size, "us_per_step": seconds / steps * 1e6, "cpu_us_per_step": cpu / steps * 1e6}


def payload(store: str, size: int, tag: str) -> Sample:
    """Steps that take and return a value of a size, ten workflows in flight."""
    return asyncio.run(_payload(store, size, tag))
