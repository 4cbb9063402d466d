"""A worker with code that harms it: ``python -m tests.crash.harmful STORE LEASE JUDGE LIMIT_MS [hang]``.

It says its key, runs until a line comes on its standard input, and says the key that it has then.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Iterable
from typing import Any

import holdfast as hf
from holdfast.runtime.surroundings import Surroundings

HANGS = "HOLDFAST_TEST_HANGS"
HANG_SECONDS = 3.0
DEADLY_CODE = 9


@hf.activity(max_losses=1_000)
async def step(number: int) -> int:
    await asyncio.sleep(0.001)
    return number + 1


@hf.workflow
async def deadly(after: int) -> None:
    """Takes its worker down in the turn after so many steps. (`os.kill` would be found by the guard.)"""
    for number in range(after):
        await step(number)
    os._exit(DEADLY_CODE)


@hf.workflow
async def hanging() -> str:
    """Hangs in a call of C that nothing can interrupt, where it is told to."""
    if HANGS in os.environ:
        threading.Event().wait(HANG_SECONDS)
        return "came back"
    return "elsewhere"


@hf.workflow
async def innocent(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await step(number)
        await asyncio.sleep(0.01)
    return number


WORKFLOWS: list[hf.Workflow[..., Any]] = [deadly, hanging, innocent]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def main(arguments: Iterable[str]) -> None:
    store, lease, judge, limit, *hang = arguments
    if hang:
        os.environ[HANGS] = "1"
    world = Surroundings(judge_same_host=judge == "judge", turn_limit_ms=int(limit))
    async with hf.Engine(
        store, workflows=WORKFLOWS, activities=[step], lease=float(lease), surroundings=world
    ) as engine:
        assert engine.worker is not None
        say(engine.worker.key)
        await asyncio.to_thread(sys.stdin.readline)
        say(engine.worker.key)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
