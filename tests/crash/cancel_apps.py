"""A workflow whose activities are cancelled from outside, and a program that runs it (`tests.crash.program`)."""

import asyncio

from tests.crash.program import KillAt, ran, run_program

import holdfast as hf
from holdfast.runtime.platform import Platform

CALLS = 2
EXPECTED = ["cancelled 0", "cancelled 1", 7]


@hf.activity(name="hold", max_losses=1_000)
async def hold(number: int) -> int:
    ran(f"hold {number}")
    await asyncio.sleep(3_600)
    return number


@hf.activity(name="step", max_losses=1_000)
async def step() -> int:
    ran("step 0")
    return 7


@hf.workflow(name="held")
async def held() -> list[str | int]:
    found: list[str | int] = []
    for number in range(CALLS):
        try:
            found.append(await hold(number))
        except hf.ActivityCancelled:
            found.append(f"cancelled {number}")
    return [*found, await step()]


async def finish(store: str, workflow: str, hook: KillAt | None) -> object:
    """Start the workflow and cancel its calls, or continue where an earlier process was killed."""
    engine = hf.Engine(store, workflows=[held], activities=[hold, step], _platform=Platform(fault_hook=hook))
    async with engine:
        handle = await engine.start(workflow, id="it")
        for number in range(1, CALLS + 1):
            while True:
                try:
                    await handle.cancel_activity(f"hold#{number}")
                except hf.ActivityNotFound:
                    await asyncio.sleep(0.002)  # it is not called yet
                except (hf.ActivityClosed, hf.InstanceClosed):
                    break
                else:
                    break
        return await handle.result()


def main() -> None:
    run_program(finish)
