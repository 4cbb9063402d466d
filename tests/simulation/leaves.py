"""The leaves of random programs: what each does in a workflow, and what it must give."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.sample import add, broken, flaky

import holdfast as hf
from holdfast.testing.simulation.simulation import RaiseEvent

SOON: Final = hf.Retry(attempts=10, initial=0.05, maximum=0.5)
OF_A_LIST: Final = 3
"""How many events a ``collect`` takes."""


@hf.activity(resumable=True, retry=SOON)
async def count_on(end: int) -> AsyncIterator[int]:
    """Counts, and loses its breath once in the middle; the next attempt goes on."""
    for number in range(hf.activity_info().delivered, end):
        await asyncio.sleep(0.01)
        yield number
        if number == end // 2 and hf.activity_info().attempt == 1:
            raise ConnectionError("out of breath")


@hf.activity(retry=SOON)
async def count_anew(end: int) -> AsyncIterator[int]:
    """The same, but the next attempt begins again."""
    for number in range(end):
        await asyncio.sleep(0.01)
        yield number
        if number == end // 2 and hf.activity_info().attempt == 1:
            raise ConnectionError("out of breath")


async def fail(number: int) -> int:
    try:
        return await broken(number)
    except LookupError:
        return -number


async def sleep(number: int) -> int:
    await asyncio.sleep(number * number / 100)
    return 1


async def event(number: int) -> int:
    """Any of the events of this name: which one it gets does not change the sum."""
    del number
    return await hf.event("single", int)


async def patient(number: int) -> int:
    """A wait that gives up again and again never loses what comes between two of them."""
    del number
    while True:
        try:
            async with asyncio.timeout(0.3):
                return await hf.event("single", int)
        except TimeoutError:
            continue


async def collect(number: int) -> int:
    """However many collect at the same time, each sees its share in the order in which it was raised."""
    del number
    taken: list[int] = []
    async for value in hf.events("list", int):
        taken.append(value)
        if len(taken) == OF_A_LIST:
            break
    assert taken == sorted(set(taken)), f"out of order: {taken}"
    return sum(taken)


async def talk(number: int) -> int:
    """Raise an event to itself."""
    hf.raise_event(hf.info().id, "self", number)
    return await hf.event("self", int)


async def stream(number: int) -> int:
    return sum([value async for value in count_on(number)])


async def restart(number: int) -> int:
    values: list[int] = []
    source = count_anew(number)
    while True:
        try:
            async for value in source:
                values.append(value)
        except hf.StreamRestarted:
            values.clear()
        else:
            return sum(values)


async def abandon(number: int) -> int:
    """Cancel a task that cleans up with a durable step."""
    cleaned: list[int] = []

    async def stay() -> None:
        try:
            await add(number, 1)
            await asyncio.sleep(86_400)
        finally:
            cleaned.append(await add(number, 2))

    task = asyncio.create_task(stay())
    await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.wait([task])
    return cleaned[0]


async def note(number: int) -> int:
    hf.state["notes"] = hf.state.get("notes", int, 0) + 1
    return number


@dataclass(frozen=True, slots=True)
class Leaf:
    """One kind of leaf."""

    run: Callable[[int], Awaitable[int]]
    value: Callable[[int], int]


LEAVES: Final[dict[str, Leaf]] = {
    "add": Leaf(lambda number: add(number, 1), lambda number: number + 1),
    "flaky": Leaf(flaky, lambda number: number * 2),
    "fail": Leaf(fail, lambda number: -number),
    "sleep": Leaf(sleep, lambda _: 1),
    "event": Leaf(event, lambda number: number),
    "patient": Leaf(patient, lambda number: number),
    "collect": Leaf(collect, lambda _: 0),  # the sum of all of them: see `sum_of_lists`
    "talk": Leaf(talk, lambda number: number),
    "stream": Leaf(stream, lambda number: sum(range(number))),
    "restart": Leaf(restart, lambda number: sum(range(number))),
    "abandon": Leaf(abandon, lambda number: number + 2),
    "note": Leaf(note, lambda number: number),
}
STREAMS: Final[list[hf.Activity[..., Any]]] = [count_on, count_anew]


def raises_of(leaves: list[tuple[str, int]], path: tuple[str, ...]) -> Iterator[RaiseEvent]:
    """The events that have to be raised for these leaves of an instance: each list in ascending order."""
    place = 0
    for kind, number in leaves:
        if kind in ("event", "patient"):
            yield RaiseEvent("single", number, path)
        if kind == "collect":
            for _ in range(OF_A_LIST):
                yield RaiseEvent("list", place, path)
                place += 1


def sum_of_lists(leaves: list[tuple[str, int]]) -> int:
    """What all the ``collect`` of a story give together."""
    return sum(range(OF_A_LIST * sum(kind == "collect" for kind, _ in leaves)))
