"""B1 for DBOS on PostgreSQL: ``python dbos_steps.py URL SCALE`` prints its figures as JSON. Needs nothing of ours.

The workload is that of `benchmarks.workloads.b1`: workflows of five steps that add one, 50 in flight, each engine with
its own defaults for durability.
"""

import asyncio
import importlib
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

dbos: Any = importlib.import_module("dbos")  # not installed beside us, so that nothing is known of its types

STEPS = 5
IN_FLIGHT = 50
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


async def one(number: int) -> None:
    with dbos.SetWorkflowID(f"b1-{number}"):
        handle: Any = await engine.start_workflow_async(sequence, STEPS)
    if await handle.get_result() != STEPS:
        raise AssertionError(number)


async def measure(url: str, scale: float) -> dict[str, float]:
    engine(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "application_version": "1"})
    engine.launch()
    count = max(IN_FLIGHT, int(500 * scale))
    await gather_bounded(one, count, 5)
    before = time.perf_counter()
    await gather_bounded(one, 0, count)
    seconds = time.perf_counter() - before
    engine.destroy()
    return {"steps_per_s": count * STEPS / seconds, "seconds": seconds}


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    print(json.dumps(asyncio.run(measure(sys.argv[1], float(sys.argv[2])))))
