"""Workflows for the simulation, with results that depend on nothing but their input."""

import asyncio
from typing import Any

import holdfast as hf
from holdfast.testing.simulation.simulation import Job


@hf.activity(retry=hf.Retry(attempts=10, initial=0.05, maximum=0.5))
async def add(left: int, right: int) -> int:
    await asyncio.sleep(0.01)
    return left + right


@hf.activity(retry=hf.Retry(attempts=5, initial=0.05, jitter=False))
async def flaky(value: int) -> int:
    """Fails on its first two attempts."""
    await asyncio.sleep(0.02)
    if hf.activity_info().attempt < 3:
        raise ConnectionError("not yet")
    return value * 2


@hf.activity(retry=hf.Retry(attempts=2, initial=0.01))
async def broken(value: int) -> int:
    raise LookupError(f"no {value}")


@hf.workflow
async def sequence(count: int) -> int:
    total = 0
    for number in range(count):
        total = await add(total, number)
    return total


@hf.workflow
async def fan_out(count: int) -> list[int]:
    results = await asyncio.gather(*(add(number, 1) for number in range(count)))
    await asyncio.sleep(0.5)
    return list(results)


@hf.workflow
async def patient(value: int) -> int:
    doubled = await flaky(value)
    async with asyncio.timeout(60):
        await asyncio.sleep(5)
        return await add(doubled, 1)


@hf.workflow
async def compensating(value: int) -> str:
    try:
        await broken(value)
    except LookupError as error:
        undone = await add(value, -value)
        return f"{error} and back to {undone}"
    return "never"


@hf.workflow
async def cleaning(value: int) -> int:
    """Ends with a task left over that cleans up in several steps, some of them side by side (G14)."""

    async def stay() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            await asyncio.gather(add(value, 1), flaky(value))
            await add(value, 2)

    left_over = asyncio.create_task(stay())
    doubled = await flaky(value)
    return doubled if not left_over.done() else -1


ACTIVITIES: list[hf.Activity[..., Any]] = [add, flaky, broken]


def jobs(number: int) -> list[Job]:
    """A mix of instances that grows with `number`."""
    every = [
        Job("sequence", sequence, (5,), 10),
        Job("fan-out", fan_out, (7,), [1, 2, 3, 4, 5, 6, 7]),
        Job("patient", patient, (4,), 9),
        Job("compensating", compensating, (3,), "no 3 and back to 0"),
        Job("cleaning", cleaning, (6,), 12),
        Job("long-sequence", sequence, (12,), 66),
    ]
    return every[: 1 + number % len(every)] if number % 3 else every
