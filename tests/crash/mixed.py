"""Instances that end in several ways at once, and a program that runs them (`tests.crash.program`)."""

import asyncio

from tests.crash.program import KillAt, run_program
from tests.scenarios import stores

import holdfast as hf
from holdfast.runtime.platform import Platform


async def finish(store: str, name: str, hook: KillAt | None) -> None:
    """All of them, and what each must come to."""
    async with hf.Engine(store, modules=[stores], _platform=Platform(fault_hook=hook)) as engine:
        assert await engine.run(stores.completes, 1, id=name) == 2
        outcomes = await asyncio.gather(
            *(engine.run(stores.completes, number, id=f"done-{number}") for number in range(3)),
            engine.run(stores.fails, 5, id="failed"),
            engine.run(stores.gives_up, id="given-up"),
            return_exceptions=True,
        )
        assert outcomes[:3] == [1, 2, 3], outcomes
        assert isinstance(outcomes[3], hf.WorkflowFailed), outcomes
        assert outcomes[4] == 2, outcomes


def main() -> None:
    run_program(finish)
