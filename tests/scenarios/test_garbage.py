"""What has ended is freed at once: nothing is left in circles that only the collector could open."""

import asyncio
import gc
from collections import Counter

import pytest

import holdfast as hf

INSTANCES = 20


@hf.activity
async def add(number: int) -> int:
    return number + 1


@hf.activity
def add_in_a_thread(number: int) -> int:
    return number + 1


@hf.workflow
async def adds(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add(number)
        number = await add_in_a_thread(number)
    await asyncio.sleep(0.001)
    async with asyncio.timeout(60):
        await asyncio.gather(add(1), add(2))
    return number


@hf.workflow
async def has_children(steps: int) -> int:
    handle = await hf.start(adds, steps)
    return await handle + await adds(steps)


@pytest.mark.parametrize("workflow", [adds, has_children])
def test_an_instance_leaves_nothing_to_the_collector(workflow: hf.Workflow[[int], int]) -> None:
    async def scenario() -> list[object]:
        known = [adds, has_children]
        async with hf.Engine(":memory:", workflows=known, activities=[add, add_in_a_thread]) as engine:
            for _ in range(INSTANCES):  # the first turns are watched more closely
                await engine.run(workflow, 2)
            gc.collect()
            gc.disable()
            try:
                for _ in range(INSTANCES):
                    await engine.run(workflow, 2)
                gc.set_debug(gc.DEBUG_SAVEALL)
                gc.collect()
                return list(gc.garbage)
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
                gc.enable()

    left = asyncio.run(scenario())
    ours = Counter(type(one).__qualname__ for one in left if type(one).__module__.startswith("holdfast"))
    assert not ours
    assert len(left) < INSTANCES, Counter(type(one).__qualname__ for one in left)
