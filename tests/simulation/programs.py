"""Random programs: a workflow that runs trees of steps given as its input, and an oracle that knows the result.

A story is a list of chapters; between two of them lies continue-as-new. A chapter is a tree: a leaf such as
``["add", 7]`` (the table `LEAVES`), or a branch:

- ``["sequence", tree, ...]``, ``["gather", tree, ...]`` and ``["group", tree, ...]``;
- ``["within", tree]``, a generous time-out, and ``["late", tree]``, one that strikes while a long sleep is waited for;
- ``["child", name, chapter, ...]``, a story of its own that is awaited, and ``["orphan", name, chapter, ...]``, one
  that nobody waits for and that goes on alone.
"""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.leaves import LEAVES, raises_of, sum_of_lists
from tests.simulation.sample import add

import holdfast as hf
from holdfast.testing.simulation.simulation import CANCELLED, CancelInstance, ClientAction, Job

Node = list[Any]
LATE: Final = -1_000
CHILDREN: Final = ("child", "orphan")


@hf.workflow(name="story")
async def story(chapters: list[Any], total: int = 0) -> int:
    hf.state["open"] = 1
    hf.attributes["left"] = len(chapters)
    hf.attributes["tags"] = [f"chapter {len(chapters)}", "story"]
    try:
        total += await run_node(chapters[0])
        if len(chapters) > 1:
            hf.continue_as_new(chapters[1:], total)
    except asyncio.CancelledError:
        hf.state["undone"] = await add(total, 1)
        raise
    finally:
        hf.state["open"] = 0
        hf.attributes["done"] = True
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
        case "child":
            return await (await hf.start(story, rest[1:], id=f"{hf.info().id}.{rest[0]}"))
        case "orphan":
            await hf.start(story, rest[1:], id=f"{hf.info().id}.{rest[0]}", detached=True)
            return 1
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


@dataclass(slots=True)
class Telling:
    """One instance of a story: the children that it starts have their own."""

    path: tuple[str, ...]
    """The ids of those that lead to it, and its own."""
    chapters: list[Node]
    leaves: list[tuple[str, int]]
    is_orphan: bool = False


def tellings(path: tuple[str, ...], chapters: list[Node], *, is_orphan: bool = False) -> list[Telling]:
    """A story and, recursively, those that it starts."""
    found = [Telling(path, chapters, [], is_orphan)]
    for chapter in chapters:
        _walk(chapter, found[0], found)
    return found


def _walk(node: Node, told: Telling, found: list[Telling]) -> None:
    kind, *rest = node
    if kind in LEAVES:
        told.leaves.append((kind, rest[0]))
    elif kind in CHILDREN:
        path = (*told.path, f"{told.path[-1]}.{rest[0]}")
        found += tellings(path, rest[1:], is_orphan=kind == "orphan")
    else:
        for child in rest:
            _walk(child, told, found)


def named(chapters: list[Node]) -> list[Node]:
    """The same story with another name for each child, so that no two have the same id."""
    numbers = itertools.count()

    def rename(node: Node) -> Node:
        kind, *rest = node
        if kind in LEAVES:
            return node
        name = [f"{next(numbers)}"] if kind in CHILDREN else []
        return [kind, *name, *(rename(child) for child in (rest[1:] if kind in CHILDREN else rest))]

    return [rename(chapter) for chapter in chapters]


def jobs_of(chapters: list[Node], *, cancel: bool = False, id: str = "it") -> list[Job]:  # noqa: A002 - as in a start
    """A story to simulate and its orphans, with what a client has to do for them and what has to come of them."""
    every = tellings((id,), chapters)
    actions: list[ClientAction] = [each for told in every for each in raises_of(told.leaves, told.path)]
    if cancel:
        actions.append(CancelInstance())
    return [_job(every[0], tuple(actions)), *(_job(told, ()) for told in every if told.is_orphan)]


def _job(told: Telling, actions: tuple[ClientAction, ...]) -> Job:
    notes = sum(kind == "note" for kind, _ in told.leaves)

    def kept(result: Any, state: Mapping[str, Any]) -> bool:
        """Every way out went through `finally`; a cancelled story made its amends, unless it never began."""
        if result == CANCELLED:
            return not state or (state["open"] == 0 and "undone" in state)
        return (state["open"], state.get("notes", 0)) == (0, notes)

    def found_by(result: Any, attributes: Mapping[str, Any]) -> bool:
        """Attributes are those of the last chapter that was begun (F2)."""
        if result == CANCELLED:
            return not attributes or attributes["done"] is True
        return attributes == {"left": 1, "tags": ["chapter 1", "story"], "done": True}

    *creators, id = told.path  # noqa: A001 - what it is
    return Job(
        id,
        story,
        (told.chapters,),
        total_of(told.chapters),
        actions=actions,
        kept=kept,
        found_by=found_by,
        creators=tuple(creators),
    )


def total_of(chapters: list[Node]) -> int:
    """What a story must give in the end."""
    alone = tellings(("it",), chapters)[0]
    return sum(value_of(chapter) for chapter in chapters) + sum_of_lists(alone.leaves)


def value_of(node: Node) -> int:
    """What a tree must give, worked out without running anything."""
    kind, *rest = node
    if kind in LEAVES:
        return LEAVES[kind].value(rest[0])
    if kind in CHILDREN:
        return total_of(rest[1:]) if kind == "child" else 1
    return sum(value_of(child) for child in rest) + (LATE if kind == "late" else 0)
