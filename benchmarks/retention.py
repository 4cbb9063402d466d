"""Retention beside B1: how many two-step instances a worker deletes a second, and what B1 keeps of its rate (R37)."""

import asyncio
import statistics
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.measure import Sample, gather_bounded
from benchmarks.programs import sequence, step
from benchmarks.workloads import IN_FLIGHT, STEPS
from holdfast import Engine, Retention, workflow
from holdfast.authoring.registry import Registry
from holdfast.runtime.duties.retention import RetentionDuty

CLOSED: Final = 16_000
"""Instances to delete: more than are deleted beside B1."""
PAIRS: Final = 4
BATCH: Final = 500
"""Instances of B1 in one batch: a second or so, in which the duty deletes several slices."""


@workflow
async def errand(number: int) -> int:
    """Two steps."""
    return await step(await step(number))


DELETED: Final = workflow(name="errand", retention=Retention(completed=0))(errand.fn)


async def retention(store: Path | str, scale: float) -> Sample:
    """The instances deleted a second beside B1, and the speed of B1 relative to B1 alone, in alternating batches."""
    async with Engine(store, workflows=[sequence, errand], activities=[step]) as engine:
        await gather_bounded(lambda number: engine.run(errand, number), int(CLOSED * max(scale, 1 / PAIRS)), IN_FLIGHT)

        async def one(number: int) -> None:
            if await engine.run(sequence, STEPS, id=f"it-{number}") != STEPS:
                raise AssertionError(number)

        took: dict[bool, list[float]] = {True: [], False: []}
        before = await _count(engine)
        for number in range(2 * max(1, int(PAIRS * scale)) + 1):
            deletes = number % 4 in (2, 3)
            deleting = asyncio.create_task(_duty(engine).run()) if deletes else None
            began = time.perf_counter()
            await gather_bounded(one, BATCH, IN_FLIGHT, first=number * BATCH)
            if number:  # the first one is a warm-up
                took[deletes].append(time.perf_counter() - began)
            if deleting is not None:
                deleting.cancel()
                with suppress(asyncio.CancelledError):
                    await deleting
        left = await _count(engine)
    if not left:
        raise AssertionError("all instances were deleted before the end of the measurement")
    return {
        "deleted_per_s": (before - left) / sum(took[True]),
        "speed": statistics.median(took[False]) / statistics.median(took[True]),
    }


async def _count(engine: Engine) -> int:
    return (await engine.count('workflow = "errand"', exact=True)).at_least


def _duty(engine: Engine) -> RetentionDuty:
    worker = engine._local.running
    if worker is None:
        raise AssertionError("the engine has no worker")
    context = msgspec.structs.replace(worker.claimer._context, registry=Registry(workflows=[DELETED]))
    return RetentionDuty(context, None)
