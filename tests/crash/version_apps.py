"""An instance that moves from version 1 to the newest, and a child by name (`tests.crash.program`)."""

from typing import Any

from tests.crash.program import KillAt, ran, run_program

import holdfast as hf
from holdfast.runtime.platform import Platform

EXPECTED = ["1", ["leaf", "2"], "2", 2]


@hf.activity(name="step", max_losses=1_000)
async def step(number: int) -> int:
    ran(f"step {number}")
    return number + 1


def leaf(version: str) -> hf.Workflow[..., Any]:
    async def body() -> list[str]:
        return ["leaf", hf.info().version]

    return hf.workflow(name="leaf", version=version)(body)


@hf.workflow(name="moves", version="1")
async def moves_1(before: list[Any] | None = None) -> list[Any]:
    assert before is None, "version 1 runs the first execution only"
    await step(0)
    below = await hf.start("leaf")
    return hf.continue_as_new([hf.info().version, await below.result()], version="newest")


@hf.workflow(name="moves", version="2")
async def moves_2(before: list[Any] | None = None) -> list[Any]:
    assert before is not None, "version 2 runs the second execution only"
    await step(1)
    return [*before, hf.info().version, hf.info().execution]


async def finish(store: str, _workflow: str, hook: KillAt | None) -> list[Any]:
    """Start version 1, or find its instance, and wait for the result of the newest version."""
    workflows: list[hf.Workflow[..., Any]] = [moves_1, moves_2, leaf("1"), leaf("2")]
    world = Platform(fault_hook=hook)
    async with hf.Engine(store, workflows=workflows, activities=[step], cache_size=0, _platform=world) as engine:
        handle = await engine.start(moves_1, id="it")
        found: list[Any] = await handle.result()
        return found


def main() -> None:
    run_program(finish)
