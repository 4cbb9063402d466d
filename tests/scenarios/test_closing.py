"""A client that is closed while somebody waits: one typed error, whatever was waited for."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, rows, together, until
from tests.support.inside import worker_of

import holdfast as hf
from holdfast.background import BackgroundTask, Duty


@hf.workflow
async def listens() -> str:
    @hf.on_update
    async def never() -> None:
        await asyncio.sleep(3_600)

    del never
    return await hf.event("word", str)


async def _watch(handle: hf.Handle[Any]) -> None:
    async for _ in handle.watch():
        pass


WAITS: dict[str, Callable[[hf.Handle[Any]], Coroutine[Any, Any, Any]]] = {
    "result": lambda handle: handle.result(),
    "result with a time-out": lambda handle: handle.result(timeout=60),
    "update": lambda handle: handle.update("never"),
    "watch": _watch,
}


@pytest.mark.parametrize("name", WAITS)
@pytest.mark.parametrize("kind", ["engine", "client"])
def test_who_waits_while_the_client_is_closed_gets_one_typed_error(
    tmp_path: Path, name: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "shop.db"
    caplog.set_level(logging.ERROR)

    async def scenario() -> None:
        async with engine_of(path, listens) as other:
            await other.start(listens, id="a")
            client = await engine_of(path).__aenter__() if kind == "engine" else await hf.connect(path)
            waiting = asyncio.create_task(WAITS[name](client.get("a")))
            await until(lambda: client._session.results._waiting or client._session.changes._waiting)
            await client.close()
            with pytest.raises(hf.errors.ClientClosed, match="was closed during this call"):
                await waiting
            with pytest.raises(hf.errors.ClientClosed, match="is closed; make another one"):
                await client.get("a").result()
            await other.get("a").raise_event("word", "on")
            assert await other.get("a").result(timeout=10) == "on", "nothing happened to the instance"
        check_tables(path)

    together(scenario())
    assert not caplog.records


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_query_that_waits_while_the_client_is_closed_is_no_trouble_of_the_store(
    tmp_path: Path, is_cancelled: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shop.db"
    caplog.set_level(logging.ERROR)

    def refuse(*_: object) -> None:
        pytest.fail("the client closes")

    async def scenario() -> None:
        async with engine_of(path, listens) as engine:
            await engine.start(listens, id="a")
        client = await hf.connect(path)
        waiting = asyncio.create_task(client.get("a").query("nobody_answers", timeout=60))
        await until(lambda: rows(path, "SELECT 1 FROM questions") and client._session.changes._waiting)
        if is_cancelled:
            waiting.cancel()
        monkeypatch.setattr(client._local.committer, "submit", refuse)
        await client.close()
        with pytest.raises(asyncio.CancelledError if is_cancelled else hf.errors.ClientClosed):
            await waiting

    together(scenario())
    assert not caplog.records


def test_W10_a_stop_that_is_cancelled_ends_there_and_may_be_repeated() -> None:
    """What the worker cancels itself, to stop, must not swallow what others cancel."""

    async def scenario() -> None:
        async with engine_of(":memory:", listens) as engine:
            worker = worker_of(engine)
            may_end = asyncio.Event()

            async def reluctant() -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    await may_end.wait()

            task = BackgroundTask(Duty.MAINTENANCE, reluctant)
            task.start()
            worker._tasks.append(task)
            stopping = asyncio.create_task(worker.stop())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            stopping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stopping
            may_end.set()

    asyncio.run(scenario())


@hf.workflow
async def swallows() -> str:
    """What it leaves over ends for no reason: neither cancelling nor letting go of it is heard."""

    async def swallower() -> None:
        while True:
            with suppress(BaseException):
                await hf.wait_until(lambda: False)

    waiting = asyncio.create_task(swallower())
    await asyncio.sleep(0)
    return f"ended {waiting.done()}"


class Ticker:
    """Measures how long the event loop stands still."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self.longest_seconds = 0.0
        self._tick()

    def _tick(self) -> None:
        now = self._loop.time()
        self.longest_seconds = max(self.longest_seconds, now - self._last)
        self._last = now
        self._loop.call_later(0.01, self._tick)


def test_G12_code_that_swallows_its_end_holds_the_event_loop_for_a_moment_only() -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", swallows) as engine:
            for number in range(3):
                await engine.start(swallows, id=f"it-{number}")
            ticker = Ticker()
        assert ticker.longest_seconds < 2.0, "the limit of a teardown is 0.2 s, that of a turn is 10 s"

    together(scenario())


@pytest.mark.slow
def test_G12_code_that_swallows_its_end_is_bounded_for_all_instances_together() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with engine_of(":memory:", swallows) as engine:
            for number in range(20):
                await engine.start(swallows, id=f"it-{number}")
            began = loop.time()
        assert loop.time() - began < 3.5, "slow teardowns have 1 s together; 20 of them take 6 s"

    asyncio.run(scenario())
