"""A workflow that is paused and resumed, and a program that runs it (`tests.crash.program`)."""

import asyncio
from contextlib import suppress

from tests.crash.program import KillAt, ran, run_program

import holdfast as hf
from holdfast.errors import InstanceNotRunning, NothingExhausted
from holdfast.runtime.platform import Platform

EXPECTED = [0, 1, 2, "failed: the bank is down", "kept"]


@hf.activity(name="step", max_losses=1_000)
async def step(number: int) -> int:
    ran(f"step {number}")
    return number


@hf.activity(name="charge", retry=hf.Retry(attempts=1), max_losses=1_000, on_exhausted="pause")
async def charge() -> int:
    ran("charge")
    raise ValueError("the bank is down")


@hf.workflow(name="pauses")
async def pauses() -> list[int | str]:
    numbers: list[int | str] = list(await asyncio.gather(*(step(number) for number in range(3))))
    try:
        await charge()
    except ValueError as error:
        numbers.append(f"failed: {error}")
    return [*numbers, await hf.event("word", str)]


def engine_at(store: str, hook: KillAt | None) -> hf.Engine:
    return hf.Engine(store, workflows=[pauses], activities=[step, charge], _platform=Platform(fault_hook=hook))


async def drive(engine: hf.Engine, workflow: str) -> object:
    """Start the workflow, pause and resume it, and let the failure through that pauses it."""
    handle: hf.Handle[object] = await engine.start(workflow, id="it")
    with suppress(hf.InstanceClosed, InstanceNotRunning):
        await handle.pause("by a person", family=True)
        await handle.raise_event("word", "kept", id="only")
        with suppress(NothingExhausted):
            await handle.resume(fail=True)
        with suppress(hf.InstanceNotPaused):
            await handle.resume(extend=None)
    async for change in handle.watch():
        if change.state == "PAUSED":
            with suppress(NothingExhausted, hf.InstanceNotPaused, hf.InstanceClosed):
                await handle.resume(fail=True)
    return await handle.result()


async def finish(store: str, workflow: str, hook: KillAt | None) -> object:
    async with engine_at(store, hook) as engine:
        return await drive(engine, workflow)


async def recover(store: str, workflow: str) -> object:
    """The result after a process was killed: a person resumes what is PAUSED."""
    return await finish(store, workflow, None)


def main() -> None:
    run_program(finish)
