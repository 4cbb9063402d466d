"""Random programs: a workflow that runs trees of steps given as its input, and an oracle that knows the result.

A story is a list of chapters; between two of them lies continue-as-new. A chapter is a tree: a leaf such as
``["add", 7]`` (the table `LEAVES`), or a branch: ``["sequence", tree, ...]``, ``["gather", tree, ...]``,
``["group", tree, ...]``, ``["within", tree]`` (a generous time-out) or ``["late", tree]`` (a time-out that strikes
while a long sleep is waited for).
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.simulation.leaves import LEAVES, raises_of, sum_of_lists
from tests.simulation.sample import add

import holdfast as hf
from holdfast.testing.simulation.errands import Cancel, Errand
from holdfast.testing.simulation.run import CANCELLED, Job

Node = list[Any]
LATE: Final = -1_000


@hf.workflow(name="story")
async def story(chapters: list[Any], total: int = 0) -> int:
    hf.state["open"] = 1
    try:
        total += await run_node(chapters[0])
        if len(chapters) > 1:
            hf.continue_as_new(chapters[1:], total)
    except asyncio.CancelledError:
        hf.state["undone"] = await add(total, 1)
        raise
    finally:
        hf.state["open"] = 0
    return total


async def run_node(node: Node) -> int:
    kind, *rest = node
    match kind:
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
        case "late":
            return await run_late(rest[0])
        case _:
            return await LEAVES[kind].run(rest[0])


async def run_late(child: Node) -> int:
    """The child is done first; then a sleep far beyond the time-out."""
    value = await run_node(child)
    try:
        async with asyncio.timeout(0.5):
            await asyncio.sleep(86_400)
    except TimeoutError:
        return value + LATE
    return value


# ------------------------------------------------------------ the oracle


def job_of(chapters: list[Node], *, cancel: bool = False, id: str = "it") -> Job:  # noqa: A002 - as in a start
    """A story to simulate, with what a client has to do for it and what has to come of it."""
    leaves = [leaf for chapter in chapters for leaf in leaves_of(chapter)]
    errands: tuple[Errand, ...] = tuple(raises_of(leaves))
    notes = sum(kind == "note" for kind, _ in leaves)

    def kept(result: Any, state: Mapping[str, Any]) -> bool:
        """Every way out went through `finally`; a cancelled story made its amends, unless it never began."""
        if result == CANCELLED:
            return not state or (state["open"] == 0 and "undone" in state)
        return (state["open"], state.get("notes", 0)) == (0, notes)

    total = sum(value_of(chapter) for chapter in chapters) + sum_of_lists(leaves)
    return Job(id, story, (chapters,), total, errands=(*errands, Cancel()) if cancel else errands, kept=kept)


def leaves_of(node: Node) -> Iterator[tuple[str, int]]:
    """The leaves below a node, in the order of the text."""
    kind, *rest = node
    if kind in LEAVES:
        yield kind, rest[0]
    else:
        for child in rest:
            yield from leaves_of(child)


def value_of(node: Node) -> int:
    """What a tree must give, worked out without running anything."""
    kind, *rest = node
    if kind in LEAVES:
        return LEAVES[kind].value(rest[0])
    return sum(value_of(child) for child in rest) + (LATE if kind == "late" else 0)
