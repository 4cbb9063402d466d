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


graph = hf.Flow.parse("""
flow: graph
activities:
  start: {trigger: true}
  a:     {run: add, input: [start.input.number], after: start}
  items: {run: add, each: "[1, 2, 3]", input: [item], limit: 2, after: a}
  wait:  {wait: {timer: 1ms}, after: a}
  bad:   {run: add, input: [a.output.nothing], after: a}
  mend:  {run: add, input: [a.output], after: {bad: {catch: [ExpressionError]}}}
  again: {cycle: a, after: mend, when: "again.output == null", limit: 1}
  over:  {run: add, input: [0], after: {again: {catch: [CycleLimitExceeded]}}}
output: mend.output
""")


@pytest.mark.parametrize(
    ("workflow", "given"), [(adds, 2), (has_children, 2), (graph, {"number": 1})], ids=["adds", "has_children", "graph"]
)
def test_an_instance_leaves_nothing_to_the_collector(workflow: hf.Workflow[..., int], given: object) -> None:
    async def scenario() -> list[object]:
        known, activities = [adds, has_children], [add, add_in_a_thread]
        async with hf.Engine(":memory:", workflows=known, activities=activities, flows=[graph]) as engine:
            for _ in range(INSTANCES):  # the first turns are watched more closely
                await engine.run(workflow, given)
            gc.collect()
            gc.disable()
            try:
                for _ in range(INSTANCES):
                    await engine.run(workflow, given)
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
