"""Random programs: a workflow that runs a tree of steps given as its input, and an oracle that knows the result.

A node is ``["add", n]`` (an activity), ``["flaky", n]`` (one that fails twice), ``["fail", n]`` (caught),
``["sleep", s]``, ``["sequence", ...]``, ``["gather", ...]``, ``["group", ...]``, ``["within", node]`` (a generous
time-out) or ``["late", node]`` (a time-out that strikes while a long sleep is waited for).
"""

import asyncio
from typing import Any

from tests.simulation.sample import add, broken, flaky

import holdfast as hf

Node = list[Any]
LATE = -1_000


@hf.workflow(name="program")
async def program(tree: list[Any]) -> int:
    return await run_node(tree)


async def run_node(node: Node) -> int:
    kind, *rest = node
    match kind:
        case "add":
            return await add(rest[0], 1)
        case "flaky":
            return await flaky(rest[0])
        case "fail":
            try:
                return await broken(rest[0])
            except LookupError:
                return -int(rest[0])
        case "sleep":
            await asyncio.sleep(rest[0])
            return 1
        case "sequence":
            return sum([await run_node(child) for child in rest])
        case "gather":
            return sum(await asyncio.gather(*(run_node(child) for child in rest)))
        case "group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(run_node(child)) for child in rest]
            return sum(task.result() for task in tasks)
        case "within":
            return await asyncio.wait_for(run_node(rest[0]), 100_000)
        case _:
            return await run_late(rest[0])


async def run_late(child: Node) -> int:
    """The child is done first; then a sleep far beyond the time-out."""
    value = await run_node(child)
    try:
        async with asyncio.timeout(0.5):
            await asyncio.sleep(86_400)
    except TimeoutError:
        return value + LATE
    return value


def value_of(node: Node) -> int:
    """What the program must return, worked out without running anything."""
    kind, *rest = node
    match kind:
        case "add":
            return int(rest[0]) + 1
        case "flaky":
            return 2 * int(rest[0])
        case "fail":
            return -int(rest[0])
        case "sleep":
            return 1
        case "late":
            return value_of(rest[0]) + LATE
        case _:
            return sum(value_of(child) for child in rest)
