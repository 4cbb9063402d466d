"""A workflow that is started for a later time, and a program that runs it (`tests.crash.program`)."""

from contextlib import suppress

from tests.crash.program import KillAt, ran, run_program

import holdfast as hf
from holdfast.runtime.platform import Platform

LATER_SECONDS = 0.4


@hf.activity(name="step", max_losses=1_000)
async def step(number: int) -> int:
    ran(f"step {number}")
    return number + 1


@hf.workflow(name="later")
async def later() -> tuple[int, str, int]:
    began_ms = round(hf.now().timestamp() * 1_000)
    word = await hf.event("word", str)
    return began_ms, word, await step(1)


async def finish(store: str, _workflow: str, hook: KillAt | None) -> tuple[int, str, int]:
    """Start the workflow for a later time, or find it, and wait for its result."""
    engine = hf.Engine(store, workflows=[later], activities=[step], _platform=Platform(fault_hook=hook))
    async with engine:
        handle: hf.Handle[tuple[int, str, int]] = await engine.start(later, id="it", start_at=LATER_SECONDS)
        with suppress(hf.InstanceClosed):
            await handle.raise_event("word", "kept", id="only")
        return await handle.result()


def main() -> None:
    run_program(finish)
