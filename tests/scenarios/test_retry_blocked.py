"""A blocked instance that is retried on request (G12): `handle.retry_blocked`."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, rows, together, until
from tests.support.inside import try_blocked, worker_of

import holdfast as hf
from holdfast.audit.auditor import audit

switch: dict[str, Any] = {}
"""What the code depends on although it must not: a test can break and mend it without another build."""


@hf.activity(name="first")
async def first(number: int) -> int:
    return number + 1


@hf.activity(name="other")
async def other(number: int) -> int:
    return number + 100


@hf.workflow(name="flow")
async def flow() -> int:
    switch["turns"] = switch.get("turns", 0) + 1
    number = await (other(0) if switch.get("broken") else first(0))
    await asyncio.sleep(0.2)
    return await first(number)


@pytest.fixture(autouse=True)
def _mended() -> None:
    switch.clear()


def state(path: Path) -> str:
    [(found,)] = rows(path, "SELECT state FROM instances")
    return str(found)


async def half_way(path: Path) -> None:
    async with engine_of(path, flow, first, other) as engine:
        assert rows(path, "SELECT 1 FROM timers") == []  # a first read may outlast the timer
        await engine.start(flow, id="it")
        await until(lambda: rows(path, "SELECT 1 FROM timers"))


def test_G12_the_same_build_tries_a_blocked_instance_again_on_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        await half_way(path)
        switch["broken"] = True
        async with engine_of(path, flow, first, other) as engine:
            handle = engine.get("it")
            await until(lambda: state(path) == "BLOCKED")
            await handle.retry_blocked()
            await until(lambda: state(path) == "BLOCKED")
            tried = switch["turns"]
            await try_blocked(worker_of(engine))
            assert switch["turns"] == tried, "the same build does not try it again without a request"
            with pytest.raises(hf.WorkflowBlocked):
                await handle.result(timeout=10)
            switch["broken"] = False
            await handle.retry_blocked()
            assert await handle.result(timeout=10) == 2
            with pytest.raises(hf.InstanceClosed, match="is COMPLETED, so it cannot be retried"):
                await handle.retry_blocked()
            check_tables(path)
            assert audit(path) == []

    together(scenario())


def test_G12_a_client_without_code_asks_and_a_worker_in_another_process_tries(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        await half_way(path)
        switch["broken"] = True
        async with engine_of(path, flow, first, other), hf.connect(path) as client:
            await until(lambda: state(path) == "BLOCKED")
            switch["broken"] = False
            await client.get("it").retry_blocked()
            assert await client.get("it").result(timeout=10) == 2

    together(scenario())


def test_G12_a_request_without_a_worker_waits_for_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        await half_way(path)
        switch["broken"] = True
        async with engine_of(path, flow, first, other):
            await until(lambda: state(path) == "BLOCKED")
        switch["broken"] = False
        async with hf.connect(path) as client:
            await client.get("it").retry_blocked()
            assert state(path) == "RUNNING"
        async with engine_of(path, flow, first, other) as engine:
            assert await engine.get("it").result(timeout=10) == 2

    together(scenario())


def test_G12_an_instance_that_is_not_blocked_refuses_the_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "it.db", flow, first, other) as engine:
            handle = await engine.start(flow, id="it")
            with pytest.raises(hf.InstanceNotBlocked, match="'it' is RUNNING, not BLOCKED"):
                await handle.retry_blocked()
            with pytest.raises(hf.InstanceNotFound):
                await engine.get("other").retry_blocked()
            assert await handle.result(timeout=10) == 2

    together(scenario())


@hf.workflow(name="flow")
async def fails_first() -> int:
    if switch.get("broken"):
        while True:  # noqa: ASYNC110 - a turn that never waits is blocked
            await asyncio.sleep(0)
    return await first(1)


def test_G12_an_instance_whose_first_turn_was_blocked_is_retried(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        switch["broken"] = True
        async with engine_of(path, fails_first, first) as engine:
            handle = await engine.start(fails_first, id="it")
            await until(lambda: state(path) == "BLOCKED")
            switch["broken"] = False
            await handle.retry_blocked()
            assert await handle.result(timeout=10) == 2
            assert audit(path) == []

    together(scenario())
