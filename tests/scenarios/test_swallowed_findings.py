# ruff: noqa: BLE001, TID251, S311 - the mistakes are on purpose
"""G12: a mistake that workflow code catches does not count: the turn is refused, and the instance is blocked."""

import asyncio
import random
import time
from pathlib import Path

import pytest
from tests.scenarios.support import engine_of, history_of, rows, together

import holdfast as hf


@hf.workflow
async def swallows_at_once() -> float:
    try:
        return time.time()
    except Exception:
        return 0.0


@hf.workflow
async def swallows_later() -> float:
    hf.on_query("begun")(lambda: True)
    await hf.event("go")
    try:
        return time.time()
    except BaseException:
        return 0.0


@hf.workflow
async def records() -> bool:
    return hf.side_effect(lambda: time.time() > random.random(), bool)


@hf.workflow
async def fails_with_it() -> None:
    async def reads_the_clock() -> float:
        return time.time()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(reads_the_clock())
    except* hf.errors.ForbiddenInWorkflow as found:
        raise LookupError("no time") from found


@hf.workflow
async def has_handlers() -> str:
    @hf.on_query
    def when() -> float:
        try:
            return time.time()
        except Exception:
            return 0.0

    @hf.on_update
    def note() -> float:
        return time.time()

    await hf.event("end")
    return "done"


ALL = (records, swallows_at_once, swallows_later, fails_with_it, has_handlers)


def test_G12_a_finding_that_the_code_swallows_blocks_the_instance(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            with pytest.raises(hf.WorkflowBlocked, match=r"called time\.time"):
                await engine.run(swallows_at_once, id="at-once")
            later = await engine.start(swallows_later, id="later")
            await later.raise_event("go")
            with pytest.raises(hf.WorkflowBlocked, match=r"called time\.time \(.*test_swallowed_findings.py"):
                await later.result(timeout=10)
            assert await later.query("begun") is True
            [(number,)] = rows(path, "SELECT number FROM instances WHERE id = 'later'")
            assert len(history_of(path, number)) == 2, "nothing of the turn is recorded"

    together(scenario())


def test_G12_a_workflow_or_an_update_that_fails_for_a_finding_fails(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            with pytest.raises(hf.WorkflowFailed, match="LookupError: no time"):
                await engine.run(fails_with_it, id="fails")
            handle = await engine.start(has_handlers, id="it")
            with pytest.raises(hf.QueryFailed, match=r"called time\.time"):
                await handle.query("when")
            with pytest.raises(hf.UpdateFailed, match=r"called time\.time"):
                await handle.update("note")
            await handle.raise_event("end")
            assert await handle.result(timeout=10) == "done"

    together(scenario())


def test_G12_a_side_effect_may_read_clocks_and_random_numbers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            assert await engine.run(records, id="it") is True

    together(scenario())
