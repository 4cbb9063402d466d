"""A store with instances in every phase, made by real runs, for tests that damage copies of it."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast as hf
from holdfast.runtime.platform import FaultPoint, Platform
from holdfast.storage.members.member import Member
from holdfast.storage.members.turns import Turn

if TYPE_CHECKING:
    from holdfast.core.attributes import AttributeValue

LARGE = 200_000
NEVER = 3_600

hanging = asyncio.Event()


class Declined(Exception):
    """The bank said no."""


@hf.activity
async def step(number: int) -> int:
    return number


@hf.activity(retry=hf.Retry(attempts=2, initial=0.01, jitter=False))
async def decline(cents: int) -> int:
    raise Declined(f"no {cents}")


@hf.activity
async def write(length: int) -> str:
    return "x" * length


@hf.activity
async def hang() -> int:
    hanging.set()
    await asyncio.sleep(NEVER)
    return 0


@hf.workflow
async def completes(number: int) -> int:
    first = await step(number)
    await asyncio.sleep(0.001)
    return await step(first + 1)


@hf.workflow
async def fails(cents: int) -> int:
    return await decline(cents)


@hf.workflow
async def writes(length: int) -> str:
    return await write(length)


@hf.activity
async def read(text: str) -> int:
    return len(text)


@hf.workflow
async def reads(text: str) -> int:
    return await read(text)


@hf.workflow
async def sleeps(number: int) -> int:
    await step(number)
    await asyncio.sleep(NEVER)
    return number


@hf.workflow
async def hangs() -> int:
    return await hang()


@hf.workflow
async def gives_up() -> int:
    waiting = asyncio.create_task(hang())
    await step(1)
    waiting.cancel()
    return await step(2)


async def make_store(path: Path) -> None:
    """Instances: done, failed, large, large-input, again (the second of its id), given-up, ended (from outside),
    sleeping, overdue (it had a deadline), hanging (its worker left), requested (nobody began it).
    """
    asleep = asyncio.Event()

    def listen(point: FaultPoint, members: Sequence[Member]) -> None:
        turns = [member for member in members if isinstance(member, Turn) and member.turn > 0]
        if point is FaultPoint.AFTER_COMMIT and any(turn.effects and turn.effects.timers_started for turn in turns):
            asleep.set()

    world = Platform(fault_hook=listen)
    async with hf.Engine(path, modules=[sys.modules[__name__]], _platform=world) as engine:
        attributes: dict[str, AttributeValue] = {"customer": "acme", "tags": ["a", "b"], "cents": 5, "paid": True}
        await (await engine.start(completes, 1, id="done", attributes=attributes)).result()
        with suppress(hf.WorkflowFailed):
            await engine.run(fails, 5, id="failed")
        await engine.run(writes, LARGE, id="large")
        await engine.run(reads, "x" * LARGE, id="large-input")
        await engine.run(completes, 1, id="again")
        await engine.run(completes, 2, id="again", policy="reuse")
        await engine.run(gives_up, id="given-up")
        for name in ("ended", "sleeping"):
            asleep.clear()
            await engine.start(sleeps, 1, id=name, deadline=NEVER)
            await asleep.wait()
        await engine.get("ended").terminate("a test")
        with suppress(hf.WorkflowFailed):
            await engine.run(sleeps, 1, id="overdue", deadline=0.01)
        hanging.clear()
        await engine.start(hangs, id="hanging")
        await hanging.wait()
    client = await hf.connect(path)
    await client.start("completes", 1, id="requested")
    await client.close()
