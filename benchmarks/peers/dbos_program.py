"""B1, B2 and B4 for DBOS: ``python dbos_program.py WORKLOAD URL SCALE`` prints figures as JSON. Needs nothing of ours.

The workloads are those of `benchmarks.workloads`, each engine with its own defaults for durability.
"""

import asyncio
import importlib
import json
import logging
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

dbos: Any = importlib.import_module("dbos")  # not installed beside us, so that nothing is known of its types

STEPS = 5
IN_FLIGHT = 50
WARM_UP = 5
engine = dbos.DBOS


@engine.step()  # type: ignore[untyped-decorator]
async def step(number: int) -> int:
    return number + 1


@engine.workflow()  # type: ignore[untyped-decorator]
async def sequence(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await step(number)
    return number


async def gather_bounded(work: Callable[[int], Awaitable[None]], first: int, count: int) -> None:
    numbers = iter(range(first, first + count))

    async def place() -> None:
        for number in numbers:
            await work(number)

    await asyncio.gather(*(place() for _ in range(min(IN_FLIGHT, count))))


async def run(name: str, steps: int) -> None:
    """One workflow from its start to its result."""
    with dbos.SetWorkflowID(name):
        handle: Any = await engine.start_workflow_async(sequence, steps)
    if await handle.get_result() != steps:
        raise AssertionError(name)


async def b1(scale: float) -> dict[str, float]:
    """Workflows of five steps, 50 in flight."""
    count = max(IN_FLIGHT, int(500 * scale))
    await gather_bounded(lambda number: run(f"b1-{number}", STEPS), count, WARM_UP)
    before = time.perf_counter()
    await gather_bounded(lambda number: run(f"b1-{number}", STEPS), 0, count)
    return {"steps_per_s": count * STEPS / (time.perf_counter() - before)}


async def b2(scale: float) -> dict[str, float]:
    """One workflow of one step at a time."""
    took_ms: list[float] = []
    for number in range(max(20, int(200 * scale)) + WARM_UP):
        before = time.perf_counter()
        await run(f"b2-{number}", 1)
        took_ms.append((time.perf_counter() - before) * 1_000)
    return {"p50_ms": statistics.median(took_ms[WARM_UP:])}


async def b4(scale: float) -> dict[str, float]:
    """One workflow with many steps in a row."""
    steps = max(100, int(1_000 * scale))
    await run("warm-up", STEPS)
    before = time.perf_counter()
    await run("b4", steps)
    return {"steps_per_s": steps / (time.perf_counter() - before)}


async def measure(workload: str, url: str, scale: float) -> dict[str, float]:
    engine(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "application_version": "1"})
    engine.launch()
    return await {"B1": b1, "B2": b2, "B4": b4}[workload](scale)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    print(json.dumps(asyncio.run(measure(sys.argv[1], sys.argv[2], float(sys.argv[3])))), flush=True)
    os._exit(0)  # without the time that DBOS takes to stop
