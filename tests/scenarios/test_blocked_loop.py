"""A worker whose event loop is closed or blocked: others go on with its work (W1)."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, rows, together, until
from tests.support.inside import key_of, worker_of

import holdfast as hf

LONG_SECONDS = 30.0


class Gate:
    """Where an activity or a workflow blocks its event loop: the first time, until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._opened = threading.Event()
        self.entries = 0

    def block_once(self) -> str:
        self.entries += 1
        self.entered.set()
        if self.entries == 1:
            assert self._opened.wait(LONG_SECONDS)
            return "first"
        return "again"

    def open(self) -> None:
        self._opened.set()


class Elsewhere:
    """An event loop in another thread, and what its program gave or raised."""

    def __init__(self, program: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._program = program
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self._thread.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._program())
        except BaseException as error:  # noqa: BLE001 - raised by `end`
            self._error = error

    def end(self) -> None:
        self._thread.join(LONG_SECONDS)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error


@hf.workflow
async def listens() -> str:
    return await hf.event("word", str)


def worker_rows(path: Path) -> list[tuple[Any, ...]]:
    return rows(path, "SELECT key, state FROM workers ORDER BY registered_at_ms")


def test_W1_a_closed_loop_ends_the_lease_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The engine was never closed, and its lease has a minute left."""
    path = tmp_path / "shop.db"
    left: list[hf.Engine] = []

    async def leaves_it_open() -> None:
        engine = engine_of(path, listens, lease=60)
        left.append(engine)
        await engine.__aenter__()
        await engine.start(listens, id="a")

    async def scenario() -> None:
        async with engine_of(path, listens) as engine:
            await until(lambda: "INACTIVE" in dict(worker_rows(path)).values())
            await engine.get("a").raise_event("word", "hello")
            assert await engine.get("a").result(timeout=10) == "hello"
        await left[0]._kill()

    with caplog.at_level(logging.ERROR, "holdfast"):
        Elsewhere(leaves_it_open).end()
        together(scenario())
    assert ["its event loop was closed while it ran" in record.message for record in caplog.records] == [True]
    check_tables(path)


def test_W1_a_blocked_loop_loses_its_instances_keeps_its_attempts_and_goes_on_afterwards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "shop.db"
    gate, may_end = Gate(), threading.Event()
    keys: list[str] = []

    @hf.activity
    async def blocks() -> str:
        return gate.block_once()

    @hf.workflow
    async def calls() -> str:
        return await blocks()

    async def is_blocked() -> None:
        async with engine_of(path, listens, calls, blocks, lease=1, turn_limit_ms=50) as engine:
            keys.append(key_of(worker_of(engine)))
            await engine.start(listens, id="idle")
            assert await engine.run(calls, id="busy") == "first"
            keys.append(key_of(worker_of(engine)))
            later = await engine.start(listens, id="later")
            await later.raise_event("word", "here")
            assert await later.result(timeout=10) == "here"
            await asyncio.to_thread(may_end.wait, LONG_SECONDS)

    async def scenario() -> None:
        async with engine_of(path, listens, calls) as engine:
            await engine.get("idle").raise_event("word", "hello")
            assert await engine.get("idle").result(timeout=10) == "hello"
            assert rows(path, "SELECT state, owner, losses FROM attempts") == [("RUNNING", keys[0], 0)]
            assert dict(worker_rows(path))[keys[0]] == "ACTIVE"
            gate.open()
            assert await engine.get("busy").result(timeout=10) == "first"
            may_end.set()

    with caplog.at_level(logging.WARNING, "holdfast"):
        elsewhere = Elsewhere(is_blocked)
        assert gate.entered.wait(LONG_SECONDS)
        together(scenario())
        elsewhere.end()
    assert keys[0] == keys[1], "it kept its key"
    assert gate.entries == 1, "its attempt was not run again"
    messages = [record.getMessage() for record in caplog.records]
    assert any(f"blocked in {__file__}:" in message and "in block_once" in message for message in messages)
    assert any("released for other workers, and its activities stay" in message for message in messages)
    check_tables(path)


def test_W1_a_loop_that_is_blocked_for_longer_than_its_timeout_loses_its_lease(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    gate, may_end = Gate(), threading.Event()
    keys: list[str] = []

    @hf.activity
    async def blocks() -> str:
        return gate.block_once()

    @hf.workflow
    async def calls() -> str:
        return await blocks()

    async def is_blocked() -> None:
        async with engine_of(path, listens, calls, blocks, lease=60, loop_timeout=1, turn_limit_ms=50) as engine:
            keys.append(key_of(worker_of(engine)))
            assert await engine.run(calls, id="busy") == "again"
            worker = worker_of(engine)
            await until(lambda: key_of(worker) != keys[0])
            await engine.start(listens, id="later")
            await engine.get("later").raise_event("word", "here")
            assert await engine.get("later").result(timeout=10) == "here"
            await asyncio.to_thread(may_end.wait, LONG_SECONDS)

    async def scenario() -> None:
        async with engine_of(path, listens, calls, blocks) as engine:
            assert await engine.get("busy").result(timeout=20) == "again"
            assert dict(worker_rows(path))[keys[0]] == "INACTIVE"
            gate.open()
            may_end.set()

    elsewhere = Elsewhere(is_blocked)
    assert gate.entered.wait(LONG_SECONDS)
    together(scenario())
    elsewhere.end()
    assert rows(path, "SELECT state, losses FROM attempts ORDER BY attempt") == [("TIMED_OUT", 0), ("COMPLETED", 1)]
    check_tables(path)


def test_W1_G12_workflow_code_that_cannot_be_interrupted_is_counted_when_its_instances_are_released(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "shop.db"
    gate = Gate()

    @hf.workflow
    async def hangs() -> str:
        await asyncio.sleep(0.01)
        return gate.block_once()

    async def is_blocked() -> None:
        async with engine_of(path, listens, hangs, lease=1, turn_limit_ms=50) as engine:
            await engine.start(listens, id="idle")
            assert await engine.run(hangs, id="hung") == "again", "its own turn was stale, and it claimed it again"

    elsewhere = Elsewhere(is_blocked)
    assert gate.entered.wait(LONG_SECONDS)

    async def scenario() -> None:
        async with await hf.connect(path):
            await until(lambda: rows(path, "SELECT 1 FROM instances WHERE owner IS NULL AND id = 'hung'"))
        assert rows(path, "SELECT id, losses FROM instances ORDER BY id") == [("hung", 1), ("idle", 0)]

    with caplog.at_level(logging.ERROR, "holdfast"):
        together(scenario())
        gate.open()
        elsewhere.end()
    assert not any(record.levelno >= logging.ERROR for record in caplog.records), "not blocked: its turn was stale"


@pytest.mark.parametrize("timeout", [0.5, 0, -1, "soon"])
def test_W1_a_loop_timeout_that_makes_no_sense_is_refused(timeout: Any) -> None:
    with pytest.raises(hf.errors.InvalidOption, match="loop_timeout"):
        engine_of(":memory:", listens, loop_timeout=timeout)
