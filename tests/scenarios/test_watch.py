"""``handle.watch()`` (G11): the changes of an instance as they are committed, for as many as like, until its end."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from tests.scenarios.support import engine_of, rows, skipping, together, until

import holdfast as hf
from holdfast.core.lifecycle import InstanceState

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])


@hf.activity
async def step(number: int) -> int:
    return number + 1


@hf.workflow
async def reports() -> str:
    hf.set_status("waiting")
    async for number in hf.events("number", int):
        hf.set_status({"seen": number})
        if number == 3:
            break
    await step(1)
    return "done"


@hf.workflow
async def goes_round(number: int) -> int:
    await hf.event("next")
    if number < 2:
        hf.continue_as_new(number + 1)
    return number


@hf.workflow
async def fails() -> None:
    raise LookupError("nothing there")


@hf.workflow
async def sleeps() -> str:
    await asyncio.sleep(86_400)
    return "rested"


def all_saw(number: int, seen: list[list[hf.Change]]) -> bool:
    return all(each[-1].custom_status == {"seen": number} for each in seen)


ALL = (step, reports, goes_round, fails, sleeps)


@CACHES
def test_G11_every_watcher_sees_what_is_committed_until_the_end(tmp_path: Path, cache_size: int) -> None:
    """One in the process of the worker, one of another engine, one without any code: all see the same end."""

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await hf.connect(path)
        try:
            async with (
                engine_of(path, *ALL, cache_size=cache_size) as engine,
                engine_of(path, cache_size=cache_size) as other,
            ):
                handle = await engine.start(reports, id="it")
                seen: list[list[hf.Change]] = [[], [], [], []]

                async def watch(side: hf.Client, into: list[hf.Change]) -> None:
                    async for change in side.get("it").watch():
                        into.append(change)

                async with asyncio.TaskGroup() as group:
                    for side, into in zip((engine, engine, other, client), seen, strict=True):
                        group.create_task(watch(side, into))
                    for number in (1, 2, 3):
                        await until(lambda: all(seen))
                        await handle.raise_event("number", number)
                        await until(partial(all_saw, number, seen))
                for each in seen:
                    assert each[0].state is InstanceState.RUNNING
                    assert each[-1].state is InstanceState.COMPLETED
                    assert each[-1].is_closed
                    assert each[-1].last_event == "workflow_completed"
                    turns = [change.turn for change in each]
                    assert turns == sorted(turns)
                    assert [change.is_closed for change in each].count(True) == 1
                assert seen[0][0].custom_status == "waiting"
        finally:
            await client.close()

    together(scenario())


@CACHES
def test_G4_the_next_execution_is_a_change_like_any_other(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(goes_round, 1, id="it")
            executions: list[int] = []
            async for change in handle.watch():
                executions.append(change.execution)
                if change.turn == 1 and change.state is InstanceState.RUNNING:
                    await handle.raise_event("next")
            assert executions[0] == 1
            assert executions[-1] == 2
            assert executions == sorted(executions)

    together(scenario())


def test_what_has_ended_is_one_change_and_what_is_not_there_an_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            handle = await engine.start(fails, id="it")
            with pytest.raises(hf.WorkflowFailed):
                await handle.result()
            (only,) = [change async for change in handle.watch()]
            assert (only.state, only.last_event) == (InstanceState.FAILED, "workflow_failed")
            with pytest.raises(hf.InstanceNotFound, match="'nobody'"):
                await anext(aiter(engine.get("nobody").watch()))

    together(scenario())


def test_A9_a_watcher_sees_the_end_that_came_from_outside(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await hf.connect(path)
        try:
            handle = await client.start("unknown", id="it")
            seen: list[InstanceState] = []
            async for change in handle.watch():
                seen.append(change.state)
                if change.state is InstanceState.REQUESTED:
                    await handle.terminate("enough")
            assert seen == [InstanceState.REQUESTED, InstanceState.TERMINATED]
        finally:
            await client.close()

    together(scenario())


def test_a_watcher_who_leaves_early_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            handle = await engine.start(reports, id="it")
            watching = handle.watch()
            assert (await anext(watching)).custom_status == "waiting"
            await watching.aclose()
            assert rows(path, "SELECT state FROM instances") == [("RUNNING",)]

    together(scenario())


def test_time_skips_while_an_environment_is_watched() -> None:
    async def scenario() -> None:
        async with skipping(*ALL) as env:
            handle = await env.start(sleeps, id="it")
            last = [change.last_event async for change in handle.watch()]
            assert last == ["timer_started", "workflow_completed"]

    asyncio.run(scenario())
