"""Parents and children for the scenarios of their ends, and what is looked at in the tables."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, rows, until

import holdfast as hf
from holdfast.audit.auditor import audit

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])


@hf.activity
async def undo(what: str) -> str:
    return f"undid {what}"


@hf.activity
async def hangs() -> None:
    await asyncio.sleep(3600)


@hf.workflow
async def sleeps() -> str:
    await asyncio.sleep(3600)
    return "slept"


@hf.workflow
async def cleans_up() -> str:
    try:
        await hangs()
    except asyncio.CancelledError:
        await undo("the booking")
        raise
    return "done"


@hf.workflow
async def awaits_one() -> str:
    return await cleans_up()


@hf.workflow
async def says_how_it_ended() -> str:
    handle = await hf.start(sleeps)
    try:
        return await handle
    except hf.HoldfastError as error:
        return f"{type(error).__name__}: {error}"


@hf.workflow
async def times_out() -> list[str]:
    handle = await hf.start(cleans_up)
    found: list[str] = []
    try:
        async with asyncio.timeout(0.01):
            await handle
    except TimeoutError:
        found.append("too late")  # at once: nobody waits for the clean-up
    try:
        await handle
    except hf.WorkflowCancelled as error:
        found.append(str(error))
    return found


@hf.workflow
async def races() -> str:
    slow, fast = asyncio.ensure_future(sleeps()), asyncio.ensure_future(says("fast"))
    await asyncio.wait((slow, fast), return_when=asyncio.FIRST_COMPLETED)
    slow.cancel()
    return fast.result()


@hf.workflow
async def says(word: str) -> str:
    return word


@hf.workflow
async def shields() -> str:
    kept = asyncio.ensure_future(answers())
    try:
        await asyncio.shield(kept)
    except asyncio.CancelledError:
        return await kept
    return "not cancelled"


@hf.workflow
async def answers() -> str:
    return await hf.event("answer", str)


@hf.workflow
async def starts(workflow: str, parent_close: Any, detached: bool, then: str) -> str:
    handle = await hf.start(workflow, parent_close=parent_close, detached=detached)
    if then == "return":
        await hf.event("go")
        return handle.id
    if then == "fail":
        await hf.event("go")
        raise ValueError("no")
    if then == "continue":
        await hf.event("go")
        hf.continue_as_new("says_nothing", None, False, "await")
    if then == "detached wait":
        try:
            async with asyncio.timeout(0.01):
                await handle
        except TimeoutError:
            return handle.id
    await handle
    return "awaited"


@hf.workflow
async def says_nothing() -> None:
    return


@hf.workflow
async def cancels_its_child() -> list[str]:
    handle = await hf.start(cleans_up)
    await hf.event("go")
    handle.cancel("too old")
    handle.cancel("asked again")
    found: list[str] = []
    try:
        await handle
    except hf.WorkflowCancelled as error:
        found.append(str(error))
    handle.cancel("it has ended")
    return found


@hf.workflow
async def never_begun() -> str:
    handle = await hf.start("nobody has this")
    handle.cancel("changed my mind")
    try:
        await handle
    except hf.WorkflowCancelled as error:
        return str(error)
    return "ran"


@hf.workflow
async def has_many(count: int, workflow: str) -> None:
    for _ in range(count):
        await hf.start(workflow)
    await hf.event("go")


@hf.workflow
async def tree(levels: int) -> None:
    for _ in range(2 if levels else 0):
        await hf.start(tree, levels - 1)
    await hf.event("never")


ALL = (
    *(undo, hangs, sleeps, cleans_up, awaits_one, says_how_it_ended, times_out, races, says, shields, answers, starts),
    *(says_nothing, cancels_its_child, never_begun, has_many, tree),
)


def states(path: Path) -> dict[str, str]:
    return dict(rows(path, "SELECT id, state FROM instances"))


async def settled(path: Path, wanted: dict[str, str]) -> None:
    try:
        async with asyncio.timeout(10):
            await until(lambda: states(path) == wanted)
    except TimeoutError:
        assert states(path) == wanted
    check_tables(path)
    assert audit(path) == []


async def is_at(handle: hf.Handle[Any], status: str) -> None:
    while (await handle.describe()).state != status:  # noqa: ASYNC110 - no signal tells of it
        await asyncio.sleep(0.002)
