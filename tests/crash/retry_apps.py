"""A workflow that is blocked and retried on request, and a program that runs it (`tests.crash.program`)."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from tests.crash.program import KillAt, ran, run_program

import holdfast as hf
from holdfast.errors import ForbiddenInWorkflow
from holdfast.runtime.platform import FaultPoint, Platform
from holdfast.storage.members.instances import RetryBlocked
from holdfast.storage.members.member import Member

REPAIRED = "HOLDFAST_TEST_REPAIRED"
"""The environment variable that says that the code is repaired. Workflow code must not depend on one."""
EXPECTED = [1, "kept", 2]
PAUSE_SECONDS = 0.002


@hf.activity(name="step", max_losses=1_000)
async def step(number: int) -> int:
    ran(f"step {number}")
    return number + 1


@hf.workflow(name="blocked")
async def blocked() -> list[int | str]:
    number = await step(0)
    if REPAIRED not in os.environ:
        with suppress(ForbiddenInWorkflow):  # a turn that suppresses it is blocked
            time.time()  # noqa: TID251 - that is what is forbidden
    word = await hf.event("word", str)
    return [number, word, await step(number)]


async def state_when(handle: hf.Handle[object], *expected: str) -> str:
    """The state of the instance as soon as it is one of the expected ones."""
    while True:
        state = (await handle.describe()).state
        if state in expected:
            return state
        await asyncio.sleep(PAUSE_SECONDS)


def engine_at(store: str, hook: KillAt | None) -> hf.Engine:
    return hf.Engine(store, workflows=[blocked], activities=[step], _platform=Platform(fault_hook=hook))


async def finish(store: str, workflow: str, hook: KillAt | None) -> object:
    """Start the workflow, have it blocked twice, repair its code and retry it."""
    async with engine_at(store, hook) as engine:
        handle: hf.Handle[object] = await engine.start(workflow, id="it")
        await handle.raise_event("word", "kept", id="only")
        await state_when(handle, "BLOCKED")
        await handle.retry_blocked()
        await state_when(handle, "BLOCKED")
        os.environ[REPAIRED] = "yes"
        await handle.retry_blocked()
        return await handle.result()


async def recover(store: str, workflow: str) -> object:
    """The result after a process was killed. A worker tries an instance that is BLOCKED once when it starts."""
    async with engine_at(store, None) as engine:
        handle: hf.Handle[object] = await engine.start(workflow, id="it")
        with suppress(hf.InstanceClosed):
            await handle.raise_event("word", "kept", id="only")
        return await handle.result()


async def request(store: str, point: str) -> None:
    """Request a retry in a process without the workflow, and die by SIGKILL before or after its commit."""

    def hook(reached: FaultPoint, members: Sequence[Member]) -> None:
        if reached == point and any(isinstance(member, RetryBlocked) for member in members):
            os.kill(os.getpid(), signal.SIGKILL)

    async with hf.Engine(store, _platform=Platform(fault_hook=hook)) as engine:
        await engine.get("it").retry_blocked()


def main() -> None:
    run_program(finish)


def request_main() -> None:
    store, point = sys.argv[1:]
    asyncio.run(request(store, point))
