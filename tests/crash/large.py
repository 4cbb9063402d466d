"""A workflow with large inputs, and a program that runs it (`tests.crash.program`)."""

from tests.crash.program import KillAt, run_program

import holdfast as hf
from holdfast.runtime.platform import Platform

TEXT = "x" * 50_000


@hf.activity(retry=hf.Retry(attempts=3, initial=0.001), max_losses=100)
async def measure(text: str) -> int:
    if hf.activity_info().attempt == 1:
        raise ConnectionError
    return len(text)


@hf.workflow
async def measures(text: str) -> int:
    return await measure(text) + await measure(text) + await measure(text + "y")


async def finish(store: str, workflow: str, hook: KillAt | None) -> object:
    world = Platform(fault_hook=hook)
    async with hf.Engine(store, workflows=[measures], activities=[measure], _platform=world) as engine:
        return await engine.run(workflow, TEXT, id="it")


def main() -> None:
    run_program(finish)
