"""Old commit ids in a SQLite file go a piece at a time, and only what is old is written about (C1)."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

import holdfast as hf
from holdfast.storage.contract import COMMITS_KEPT_MS
from holdfast.storage.members.outcomes import StartedInstance
from holdfast.storage.records import CommitId
from holdfast.storage.sqlite import store as sqlite_store
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.storage.sqlite.write_lock import WriteLock
from holdfast.testing.conformance.bench import Bench, ManualClock, start

COMMITS = 7
PIECE = 3


def on_a_store(folder: Path, patch: pytest.MonkeyPatch, case: Callable[[SqliteStore, Bench], Awaitable[None]]) -> None:
    """A store with some commits, which is cleaned up in small pieces."""
    patch.setattr(sqlite_store, "PIECE", PIECE)

    async def scenario() -> None:
        clock = ManualClock()
        store = SqliteStore(folder / "shop.db", clock=clock, durability="none")
        await store.open()
        try:
            bench = Bench(store, clock)
            for number in range(COMMITS):
                await bench.one(start(f"i{number}"))
            await case(store, bench)
        finally:
            await store.close()

    asyncio.run(scenario())


async def left(store: SqliteStore) -> list[int]:
    return [number for number in range(1, COMMITS + 1) if await store.was_committed(CommitId(number))]


def test_C1_pieces_follow_each_other_to_the_end_and_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(store: SqliteStore, bench: Bench) -> None:
        bench.clock.now_ms += COMMITS_KEPT_MS + 1
        found: list[tuple[bool, list[int]]] = [(await store.prune(), await left(store)) for _ in range(3)]
        assert found == [(True, [4, 5, 6, 7]), (True, [7]), (False, [])]
        await bench.one(start("new"))
        assert not await store.prune()
        assert await store.was_committed(bench.last_id)
        bench.clock.now_ms += COMMITS_KEPT_MS + 1
        assert not await store.prune()
        assert not await store.was_committed(bench.last_id)

    on_a_store(tmp_path, monkeypatch, case)


def test_C1_where_nothing_is_old_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(store: SqliteStore, bench: Bench) -> None:
        del bench
        lock = WriteLock(store.companion_path)
        with lock.held():  # whoever wanted to write would wait for ever
            assert [await store.prune() for _ in range(4)] == [True, True, False, True]
        lock.close()
        assert len(await left(store)) == COMMITS

    on_a_store(tmp_path, monkeypatch, case)


def test_C1_a_clean_up_waits_for_its_turn_on_the_thread_of_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker goes on meanwhile, and a group that comes then waits behind it."""

    async def case(store: SqliteStore, bench: Bench) -> None:
        bench.clock.now_ms += COMMITS_KEPT_MS + 1
        lock = WriteLock(store.companion_path)
        with lock.held():
            cleaning = asyncio.create_task(store.prune())
            await asyncio.sleep(0)
            writing = asyncio.create_task(bench.one(start("new")))
            await asyncio.sleep(0)
            assert not cleaning.done()
            assert not writing.done()
        assert await cleaning
        assert isinstance(await writing, StartedInstance)
        assert await left(store) == [4, 5, 6, 7]
        lock.close()

    on_a_store(tmp_path, monkeypatch, case)


def test_L13_a_clean_up_that_fails_is_told_and_leaves_the_store_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(store: SqliteStore, bench: Bench) -> None:
        bench.clock.now_ms += COMMITS_KEPT_MS + 1
        writer = vars(store)["_writer"]
        with monkeypatch.context() as patch:

            def full(*_: object) -> None:
                raise apsw.FullError("disk full")

            patch.setattr(writer, "_begin", full)
            with pytest.raises(hf.StoreError, match="could not be cleaned up: disk full"):
                await store.prune()
        assert isinstance(await bench.one(start("new")), StartedInstance)
        assert await store.prune()
        assert await left(store) == [4, 5, 6, 7]

    on_a_store(tmp_path, monkeypatch, case)
