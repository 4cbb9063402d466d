"""What a process logs while its server is away: one line a minute, whichever of its loops meets the error."""

import asyncio
import logging

import pytest
from tests.postgres.fixtures import NewCluster
from tests.scenarios.support import engine_of, together, until

import holdfast as hf
from holdfast.runtime import signals as telling
from holdfast.storage.postgres.connection import ReconnectingConnection


@hf.activity
async def double(number: int) -> int:
    return 2 * number


@hf.workflow
async def doubles() -> int:
    total = 0
    async for number in hf.events("number", int):
        if not number:
            break
        total += await double(number)
    return total


@pytest.mark.slow
def test_a_server_that_is_away_is_one_line_for_all_loops_and_its_return_is_one(
    new_cluster: NewCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ReconnectingConnection.__init__.__kwdefaults__ or {}, "tries", 1)
    monkeypatch.setattr(telling, "QUIET_MS", 500)
    caplog.set_level(logging.INFO, logger="holdfast")
    cluster = new_cluster()

    def said(start: str) -> list[str]:
        return [text for text in (record.getMessage() for record in caplog.records) if text.startswith(start)]

    async def scenario() -> int:
        async with engine_of(cluster.url(), double, doubles, lease=8) as engine, engine_of(cluster.url()) as other:
            assert other._session.trouble is engine._session.trouble
            handle = await engine.start(doubles, id="it")
            await handle.raise_event("number", 1)
            waiting = asyncio.create_task(handle.result())
            await asyncio.to_thread(cluster.stop)
            with pytest.raises(hf.StoreError):
                await handle.raise_event("number", 2)
            await until(lambda: (series := engine._session.trouble._series.get("")) is not None and series.count >= 30)
            await asyncio.to_thread(cluster.start)
            await until(lambda: said("the store can be used again"))
            await handle.raise_event("number", 3)
            await handle.raise_event("number", 0)
            return await waiting

    assert together(scenario(), 60) == 8
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1, errors
    assert len(said("the store can be used again")) == 1
    assert len(said("a connection to")) == 1
