"""A process that starts an id again, whose words are ``STORE POLICY NUMBER [POINT]``.

With a point it kills itself by SIGKILL exactly before or after the commit of that start. Otherwise it says which
instance it made, waits for it, and says how it ended.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import cast

import holdfast as hf
from holdfast.core.admission import IdPolicy
from holdfast.runtime.platform import FaultPoint, Platform
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member


@hf.activity
async def step(number: int) -> int:
    return number + 1


@hf.workflow
async def steps(number: int) -> int:
    for _ in range(number % 4):
        number = await step(number)
    await asyncio.sleep(0.02)
    return await step(number)


async def replace(store: str, policy: IdPolicy, number: int, point: str) -> None:
    def hook(reached: FaultPoint, members: Sequence[Member]) -> None:
        if reached == point and any(isinstance(member, Start) for member in members):
            os.kill(os.getpid(), signal.SIGKILL)

    async with hf.Engine(store, workflows=[steps], activities=[step], _platform=Platform(fault_hook=hook)) as engine:
        handle = await engine.start(steps, number, id="it", policy=policy)
        sys.stdout.write(f"{handle.number} ")
        try:
            sys.stdout.write(f"{await handle.result()}\n")
        except hf.WorkflowTerminated:
            sys.stdout.write("terminated\n")


def main() -> None:
    store, policy, number, *point = sys.argv[1:]
    asyncio.run(replace(store, cast("IdPolicy", policy), int(number), "".join(point)))
