"""A turn is bounded in time: code that never waits for anything durable parks its instance, and the worker lives."""

import asyncio

import pytest

import holdfast as hf
from holdfast.runtime.platform import Platform


@hf.workflow
async def busy() -> None:
    while True:  # noqa: ASYNC110 - what this test is about
        await asyncio.sleep(0)


@hf.workflow
async def fine() -> int:
    return 1


def test_G12_code_that_is_busy_beyond_its_limit_is_blocked_and_others_continue() -> None:
    world = Platform(turn_limit_ms=50, watch_turns=False)

    async def run() -> int:
        async with hf.Engine(":memory:", workflows=[busy, fine], _platform=world) as engine:
            handle = await engine.start(busy, id="busy")
            with pytest.raises(hf.WorkflowBlocked, match="still busy at its deadline"):
                await handle.result(timeout=20)
            return await engine.run(fine)

    assert asyncio.run(run()) == 1
