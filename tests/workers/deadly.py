"""A program with a workflow that takes its worker down, one that hangs in it, and others that do no harm."""

import asyncio
import os

import holdfast as hf

DEADLY_CODE = 9


@hf.activity(max_losses=1_000)
async def step(number: int) -> int:
    await asyncio.sleep(0.001)
    return number + 1


@hf.workflow
async def deadly(after: int) -> None:
    """Ends its worker in the turn after so many steps. (`os.kill` would be found by the guard.)"""
    for number in range(after):
        await step(number)
    os._exit(DEADLY_CODE)


@hf.workflow
async def innocent(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await step(number)
        await asyncio.sleep(0.01)
    return number


@hf.workflow
async def patient() -> str:
    """Waits for an event for ever, and takes no turn meanwhile."""
    return await hf.event("word", str)
