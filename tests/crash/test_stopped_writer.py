"""A process that is stopped while it writes: others read on, say who is in the way, and go on when it does or dies."""

import asyncio
import logging
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.crash.apps import ACTIVITIES, WORKFLOWS, sequence
from tests.crash.program import BODIES
from tests.forking.freezing import await_stop
from tests.forking.processes import Process, run
from tests.scenarios.support import check_tables, rows, together, until
from tests.support.inside import key_of, worker_of

import holdfast as hf
from holdfast.storage.sqlite import write_lock as patience

LEASE_SECONDS = 1.0
"""Shorter than the stop: the worker that waits has to fence itself, too, and take a new key afterwards."""
pytestmark = pytest.mark.slow


@contextmanager
def stopped_writer(store: Path) -> Generator[Process]:
    """A process that is stopped inside its commit; it is killed on the way out if it is still there."""
    with Process("tests.crash.stopper:main", store) as process:
        assert process.stdout.readline() == "stopping\n"
        await_stop(process)
        yield process


def command(store: Path, name: str) -> str:
    """What ``holdfast`` says; it must not wait."""
    done = run("holdfast.cli:main", name, "--store", store, seconds=20)
    assert done.code == 0, done.complaints
    return done.said


@pytest.mark.parametrize("ending", [signal.SIGCONT, signal.SIGKILL], ids=["goes_on", "dies"])
def test_W7_a_stopped_writer_holds_up_writers_only_and_only_while_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ending: signal.Signals
) -> None:
    store = tmp_path / "shop.db"
    monkeypatch.setenv(BODIES, f"{store}.bodies")
    monkeypatch.setattr(patience, "WARN_AFTER_TICKS", 1)
    caplog.set_level(logging.WARNING, logger="holdfast")

    def warnings(text: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if text in record.getMessage()]

    async def scenario() -> None:
        workflows = list(WORKFLOWS.values())
        async with hf.Engine(store, lease=LEASE_SECONDS, workflows=workflows, activities=ACTIVITIES) as engine:
            assert await engine.run(sequence, id="before") == 4
            key = key_of(worker_of(engine))
            with stopped_writer(store) as holder:
                starting = asyncio.create_task(engine.start(sequence, id="meanwhile"))
                await until(lambda: warnings("writing waits"))
                assert f"process {holder.pid} has it and is stopped" in warnings("writing waits")[0]
                await until(lambda: warnings("lost its lease"))
                assert not starting.done()
                assert (await engine.get("before").describe()).state == "COMPLETED", "the loop and reading go on"
                assert "before" in await asyncio.to_thread(command, store, "list")
                await asyncio.to_thread(command, store, "verify")
                late = asyncio.create_task(engine.start(sequence, id="fenced"))
                client = await hf.connect(store)
                assert await client.get("before").result(timeout=5) == 4, "nobody has to wait to open the store"
                holder.send_signal(ending)
                assert await (await starting).result(timeout=20) == 4
                assert await (await late).result(timeout=20) == 4
                await client.close()
                if ending is signal.SIGCONT:
                    assert await engine.get("stopped").result(timeout=20) == 4
                    assert await asyncio.to_thread(holder.wait) == 0
            await until(lambda: warnings("the wait for"))
            worker = worker_of(engine)
            await until(lambda: key_of(worker) != key)
        assert len(warnings("writing waits")) <= 3, "once for each who waits, not again and again"
        check_tables(store)
        there = rows(store, "SELECT count(*) FROM instances WHERE id = 'stopped'")
        assert there == [(1 if ending is signal.SIGCONT else 0,)], "all of its transaction or nothing"

    together(scenario(), seconds=60)
