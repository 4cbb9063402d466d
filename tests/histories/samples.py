"""Workflows whose histories are recorded once and replayed for ever, on every Python.

Never change one of these: add another. ``python -m tests.histories.samples record`` writes the histories of those that
have none yet; ``replay`` replays all and fails on the first difference.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.authoring.registry import Registry
from holdfast.core.history import decode_events
from holdfast.core.run import ExecutionId
from holdfast.replay.guard import Unguarded
from holdfast.replay.run import WorkflowRun
from holdfast.storage.records import InstanceId

RECORDED = Path(__file__).parent / "recorded"


@hf.activity
async def add(left: int, right: int) -> int:
    await asyncio.sleep(0.001 * (left % 3))
    return left + right


@hf.activity(retry=hf.Retry(attempts=1))
async def fail(message: str) -> int:
    raise LookupError(message)


@hf.workflow
async def sequence() -> int:
    total = 0
    for number in range(5):
        total = await add(total, number)
    return total


@hf.workflow
async def races() -> list[Any]:
    """The tools of asyncio whose order differs between Pythons unless somebody cares."""
    found: list[Any] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(0.005):
            await asyncio.sleep(1)
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.sleep(1), 0.005)
    found.append(await asyncio.wait_for(add(1, 1), 10))
    done, pending = await asyncio.wait(
        [asyncio.create_task(add(2, 2)), asyncio.create_task(asyncio.sleep(1))],
        return_when=asyncio.FIRST_COMPLETED,
    )
    found.append(len(done))
    for task in pending:
        task.cancel()
    for next_done in asyncio.as_completed([add(number, number) for number in range(4)]):
        found.append(await next_done)
    gathered = await asyncio.gather(add(3, 4), fail("gone"), return_exceptions=True)
    found.append(gathered[0])
    return [len(found), sum(value for value in found if isinstance(value, int))]


@hf.workflow
async def groups() -> list[int]:
    results: list[int] = []
    queue: asyncio.Queue[int] = asyncio.Queue()

    async def produce(number: int) -> None:
        queue.put_nowait(await add(number, 10))

    with suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail("first"))
            group.create_task(asyncio.sleep(60))
    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(produce(number))
    while not queue.empty():
        results.append(queue.get_nowait())
    return sorted(results)


@hf.workflow
async def chances() -> list[int]:
    drawn = [hf.random().randrange(1_000) for _ in range(3)]
    await asyncio.sleep(0.001)
    drawn.append(hf.side_effect(lambda: 7, int))
    return [*drawn, hf.uuid4().version or 0]


@hf.activity
async def count(end: int) -> AsyncIterator[int]:
    for number in range(end):
        await asyncio.sleep(0.001)
        yield number


@hf.workflow
async def listening() -> list[Any]:
    """Events: one for each of two waits, a wait that gives up, a list of them, and one to itself."""
    heard: list[Any] = list(await asyncio.gather(hf.event("pair", int), hf.event("pair", int)))
    with suppress(TimeoutError):
        async with asyncio.timeout(0.005):
            await hf.event("never")
    async for word in hf.events("word", str):
        heard.append(word)
        if word == "stop":
            break
    hf.raise_event(hf.info().id, "echo", len(heard))
    return [*heard, await hf.event("echo", int)]


@hf.workflow
async def streaming() -> list[int]:
    """A stream that is read to its end, and one that is left."""
    taken = [number async for number in count(6)]
    async for number in count(1_000):
        taken.append(await add(number, 100))
        if number == 2:
            break
    return taken


@hf.workflow
async def keeping() -> int:
    """Status, key-values and a condition over both."""
    hf.set_status("adding")

    async def put(number: int) -> None:
        hf.state[f"sum-{number}"] = await add(number, number)

    tasks = [asyncio.create_task(put(number)) for number in range(3)]
    await hf.wait_until(lambda: len(hf.state) == 3, timeout=3_600)
    del hf.state["sum-0"]
    hf.set_status({"tasks": len(tasks)})
    return sum(hf.state.get(key, int, 0) for key in hf.state)


@hf.workflow
async def continuing(left: int = 2, total: int = 0) -> int:
    total = await add(left, total)
    hf.state["total"] = total
    if left:
        hf.continue_as_new(left - 1, total)
    return total


@hf.workflow
async def compensating() -> None:
    """Cancelled while it waits for two things at a time; cleans up in several steps."""
    booked = await add(1, 1)
    try:
        await asyncio.gather(asyncio.sleep(86_400), hf.event("never"))
    finally:
        hf.set_status("cleaning up")
        await asyncio.shield(add(booked, -booked))
        await asyncio.gather(add(1, 2), add(3, 4))


@hf.workflow
async def doubles(number: int) -> int:
    return await add(number, number)


@hf.workflow
async def breaks(message: str) -> None:
    await fail(message)


@hf.workflow
async def dozes() -> str:
    return await hf.event("never", str)


@hf.workflow
async def relatives() -> list[object]:
    """Children that return, fail, are refused, lose against a time-out, and are left behind."""
    found: list[object] = list(await asyncio.gather(doubles(2), doubles(3)))
    try:
        await breaks("a cup")
    except hf.WorkflowFailed as error:
        found.append(str(error.cause))
    chosen = await hf.start(doubles, 4, id="chosen")
    with suppress(hf.InstanceConflict):
        await hf.start(doubles, 5, id="chosen")
    found.append(await chosen)
    slow = await hf.start(dozes)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await slow
    try:
        await slow
    except hf.WorkflowCancelled as error:
        found.append(type(error).__name__)
    await hf.start("dozes", detached=True)
    return found


async def speak(handle: hf.Handle[Any]) -> None:
    for number in (1, 2):
        await handle.raise_event("pair", number)
    for word in ("go", "on", "stop"):
        await handle.raise_event("word", word, id=word)


async def cancel(handle: hf.Handle[Any]) -> None:
    while "event" not in str((await handle.describe()).waiting_for):  # noqa: ASYNC110 - recorded once, by hand
        await asyncio.sleep(0.005)
    await handle.cancel("recorded so")


WORKFLOWS: list[hf.Workflow[..., Any]] = [
    sequence,
    races,
    groups,
    chances,
    listening,
    streaming,
    keeping,
    continuing,
    compensating,
    relatives,
]
CHILDREN: list[hf.Workflow[..., Any]] = [doubles, breaks, dozes]
"""What others start: not recorded by themselves."""
ACTIVITIES: list[hf.Activity[..., Any]] = [add, fail, count]
MEANWHILE: dict[str, Callable[[hf.Handle[Any]], Awaitable[None]]] = {"listening": speak, "compensating": cancel}
"""What is done to an instance while it runs, when it is recorded."""


async def record() -> None:
    """Run what has no history yet, and keep it."""
    async with hf.Engine(":memory:", workflows=[*WORKFLOWS, *CHILDREN], activities=ACTIVITIES) as engine:
        for workflow in WORKFLOWS:
            target = RECORDED / f"{workflow.name}.jsonl"
            if target.exists():
                continue
            handle = await engine.start(workflow.name, id=workflow.name)
            if workflow.name in MEANWHILE:
                await MEANWHILE[workflow.name](handle)
            with suppress(hf.WorkflowCancelled):
                await handle.result()
            instance = await engine._session.store.find_instance(InstanceId(workflow.name))
            if instance is not None:
                rows = await engine._session.store.read_history(instance.number, 1)
                root = f"{RECORDED.parents[2]}/".encode()  # tracebacks name files; whose folder it was does not matter
                target.write_bytes(b"".join(row.events.replace(root, b"") + b"\n" for row in rows))


def replay() -> list[str]:
    """Replay every recorded history with the code above. The names of those that were replayed."""
    registry = Registry((), WORKFLOWS, ACTIVITIES)
    names: list[str] = []
    for source in sorted(RECORDED.glob("*.jsonl")):
        events = [event for line in source.read_bytes().splitlines() for event in decode_events(line)]
        run = WorkflowRun(
            registry.workflow(source.stem), ExecutionId("it", source.stem, 1), registry.resolve, Unguarded
        )
        run.replay(events)
        run.evict()
        names.append(source.stem)
    return names


if __name__ == "__main__":
    if sys.argv[1:] == ["record"]:
        asyncio.run(record())
    print(*replay())  # noqa: T201 - a program's output
