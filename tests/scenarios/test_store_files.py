"""An engine whose store files are removed or replaced: it stops by itself, with one typed error and one log line."""

import asyncio
import logging
import os
import shutil
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.kinds import are_files
from tests.scenarios.support import engine_of, together, until
from tests.support.inside import attempts_of, worker_of

import holdfast as hf
from holdfast.runtime import signals as changes
from holdfast.runtime import signals as waiting

SUFFIXES = ("", "-wal", "-shm")


@pytest.fixture(autouse=True)
def on_files(store_kind: None) -> None:
    del store_kind
    if not are_files():
        pytest.skip("a store on PostgreSQL has no files")


@hf.activity
async def hangs() -> None:
    await asyncio.Event().wait()


@hf.workflow
async def waits() -> str:
    return await hf.event("word", str)


@hf.workflow
async def hangs_on() -> None:
    await hangs()


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"")
    other.rename(path)


@pytest.mark.parametrize("harm", [remove, replace])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_engine_whose_files_are_gone_stops_with_one_error_and_one_line(
    tmp_path: Path, suffix: str, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(path, waits, hangs, hangs_on) as engine:
            result = asyncio.create_task((await engine.start(waits, id="a")).result())
            await engine.start(hangs_on, id="b")
            worker = worker_of(engine)
            await until(lambda: attempts_of(worker).running)
            harm(path.with_name(path.name + suffix))
            with pytest.raises(hf.errors.StoreReplaced):
                await engine.get("a").raise_event("word", "lost")
            with pytest.raises(hf.errors.StoreReplaced):
                await result
            with pytest.raises(hf.errors.StoreReplaced):
                await engine.run(waits, id="c")
            await until(lambda: not attempts_of(worker).running)

    together(scenario())
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]


def test_a_worker_that_is_idle_stops_too_and_its_run_raises_the_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with hf.connect(path) as client:
            worker = hf.Worker(client, workflows=[waits], lease=1)
            running = asyncio.create_task(worker.run())
            await until(lambda: worker.key)
            path.unlink()
            with pytest.raises(hf.errors.StoreReplaced, match="was removed"):
                await asyncio.wait_for(running, 20)

    together(scenario())
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]


def test_a_client_without_a_worker_gets_the_error_wherever_it_waits(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with hf.connect(path) as client:
            handle = await client.start("waits", id="a")
            result = asyncio.create_task(handle.result())
            await until(lambda: client._session.results._waiting)
            path.unlink()
            with pytest.raises(hf.errors.StoreReplaced):
                await handle.raise_event("word", "lost")
            with pytest.raises(hf.errors.StoreReplaced):
                await result

    together(scenario())


async def its_result(handle: hf.Handle[Any]) -> None:
    await handle.result()


async def its_changes(handle: hf.Handle[Any]) -> None:
    async for _ in handle.watch():
        pass


async def its_first_turn(handle: hf.Handle[Any]) -> None:
    await handle.query("progress")


@pytest.mark.parametrize("wait_for", [its_result, its_changes, its_first_turn])
@pytest.mark.parametrize("harm", [remove, replace])
def test_a_client_that_only_waits_notices_it_by_its_periodic_look(
    tmp_path: Path,
    harm: Callable[[Path], None],
    wait_for: Callable[[hf.Handle[Any]], Coroutine[Any, Any, None]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It has no worker and sends nothing: no commit and no heartbeat compares the files."""
    path = tmp_path / "shop.db"
    for module in (waiting, changes):
        monkeypatch.setattr(module, "POLL_SECONDS", 0.01)

    async def scenario() -> None:
        async with hf.connect(path) as client:
            handle = await client.start("waits", id="a")
            task = asyncio.create_task(wait_for(handle))
            await until(lambda: client._session.results._waiting or client._session.changes._waiting)
            harm(path)
            with pytest.raises(hf.errors.StoreReplaced):
                await asyncio.wait_for(task, 20)

    together(scenario())
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]


def test_companions_that_are_removed_are_made_again_and_the_work_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "shop.db"
    companions = [tmp_path / f"shop.db{suffix}" for suffix in ("-lock", "-wake", "-turns")]

    async def scenario() -> None:
        async with engine_of(path, waits) as engine:
            await engine.start(waits, id="a")
            for companion in companions:
                shutil.rmtree(companion) if companion.is_dir() else companion.unlink()
            await engine.get("a").raise_event("word", "on")
            assert await engine.get("a").result(timeout=20) == "on"
            await until(lambda: all(companion.exists() for companion in companions))

    together(scenario())
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert len(caplog.records) == len(companions)


def modes_in(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def test_the_files_of_a_store_are_for_their_owner_only_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    before = os.umask(0)

    async def scenario() -> None:
        async with engine_of(path, waits) as engine:
            await engine.start(waits, id="a")
            modes = modes_in(tmp_path)
            folders = {f"shop.db{suffix}": 0o700 for suffix in ("-wake", "-turns")}
            files = {f"shop.db{suffix}": 0o600 for suffix in ("", "-wal", "-shm", "-lock", "-gate")}
            assert modes == files | folders

    try:
        together(scenario())
    finally:
        os.umask(before)
