"""A connection that does not queue for the write lock, as that of another program: groups wait for it, none is lost."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast as hf
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Failed, Outcome, StartedInstance
from holdfast.storage.records import CommitId
from holdfast.storage.relational.apply.dispatch import apply_members
from holdfast.storage.relational.transaction import Transaction
from holdfast.storage.sqlite import foreign_writes
from holdfast.storage.sqlite import writer as sqlite_writer
from holdfast.storage.sqlite.foreign_writes import ForeignWriteProbe, holder_of_write_lock
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.testing.conformance.bench import ManualClock, start

HELD_SECONDS = 0.3


def on_a_store(folder: Path, case: Callable[[SqliteStore], Awaitable[None]]) -> None:
    async def run() -> None:
        store = SqliteStore(folder / "shop.db", clock=ManualClock())
        await store.open()
        try:
            await case(store)
        finally:
            await store.close()

    asyncio.run(run())


class OtherProgram:
    """Holds SQLite's own lock until it is ended."""

    def __init__(self, folder: Path) -> None:
        self._connection: Any = apsw.Connection(str(folder / "shop.db"))
        self._connection.execute("PRAGMA wal_autocheckpoint = 0")
        self.begin()

    def begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def end(self) -> None:
        self._connection.execute("COMMIT")

    def end_later(self) -> None:
        threading.Timer(HELD_SECONDS, self.end).start()


def created(outcomes: Sequence[Outcome]) -> list[bool]:
    return [isinstance(outcome, StartedInstance) and outcome.created for outcome in outcomes]


def test_a_group_waits_on_the_writer_s_thread_while_the_loop_runs(tmp_path: Path) -> None:
    async def case(store: SqliteStore) -> None:
        program = OtherProgram(tmp_path)
        committing = asyncio.create_task(store.commit(CommitId(1), [start("a")]))
        for _ in range(10):
            await asyncio.sleep(0.01)
        assert not committing.done()
        assert await store.prune() is False, "it reads, and finds nothing to delete"
        program.end()
        assert created(await committing) == [True]
        assert created(await store.commit(CommitId(2), [start("b")])) == [True]

    on_a_store(tmp_path, case)


def test_pruning_waits_there_as_well(tmp_path: Path) -> None:
    async def case(store: SqliteStore) -> None:
        other: Any = apsw.Connection(str(tmp_path / "shop.db"))
        other.execute("INSERT INTO commits VALUES (1, -100000000)")
        program = OtherProgram(tmp_path)
        pruning = asyncio.create_task(store.prune())
        for _ in range(10):
            await asyncio.sleep(0.01)
        assert not pruning.done()
        program.end()
        await pruning
        assert not await store.was_committed(CommitId(1))

    on_a_store(tmp_path, case)


def test_L13_a_part_of_a_halved_group_waits_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The id of the group is on disk with its first part, so the rest cannot be handed over as a group."""
    programs: list[OtherProgram] = []

    def apply(transaction: Transaction, members: Sequence[Member]) -> list[Outcome]:
        if len(members) > 1:
            raise ValueError("poison")
        if isinstance(members[0], Start) and members[0].id == "bad":
            raise ValueError("poison")
        return apply_members(transaction, members)

    async def case(store: SqliteStore) -> None:
        writer: Any = vars(store)["_writer"]
        begin = writer._begin
        begun: list[int] = []

        def begin_late() -> Any:
            begun.append(1)
            if len(begun) == 3:  # the whole group, its first half, and now the second
                programs.append(OtherProgram(tmp_path))
                programs[0].end_later()
            return begin()

        monkeypatch.setattr(sqlite_writer, "apply_members", apply)
        monkeypatch.setattr(writer, "_begin", begin_late)
        good, bad = await store.commit(CommitId(1), [start("good"), start("bad")])
        assert created([good]) == [True]
        assert isinstance(bad, Failed)
        assert programs

    on_a_store(tmp_path, case)


def test_a_wait_is_logged_once_and_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(foreign_writes, "WARN_AFTER_MS", 50)
    monkeypatch.setattr(foreign_writes, "BUSY_TIMEOUT_MS", 500)

    async def case(store: SqliteStore) -> None:
        program = OtherProgram(tmp_path)
        with pytest.raises(hf.StoreError, match=r"could not be written: .*locked"):
            await store.commit(CommitId(1), [start("a")])
        assert len([text for text in caplog.messages if "transaction of another program" in text]) == 1
        program.end()
        assert created(await store.commit(CommitId(2), [start("a")])) == [True]
        assert "writing goes on" in caplog.messages[-1]

    with caplog.at_level(logging.WARNING, "holdfast"):
        on_a_store(tmp_path, case)


def test_the_holder_of_a_lock_that_nobody_has_is_not_known(tmp_path: Path) -> None:
    assert holder_of_write_lock(tmp_path / "missing.db") is None

    async def case(store: SqliteStore) -> None:
        assert holder_of_write_lock(store.companion_path) is None

    on_a_store(tmp_path, case)


def test_the_probe_looks_only_after_commits_of_others_and_survives_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_writes, "PROBE_SECONDS", 0.001)
    versions: list[int | Exception | None] = [1, 1, 2, None, None, hf.StoreError("gone"), 2, 2]
    looked: list[str] = []
    calls: list[str | None] = []

    async def scenario() -> None:
        done = asyncio.Event()

        def version() -> int | None:
            found = versions.pop(0)
            looked.append(str(found))
            if not versions:
                done.set()
                probe.stop()
            if isinstance(found, Exception):
                raise found
            return found

        def has_rows() -> bool:
            looked[-1] += " looks"
            return len(looked) != 3

        probe = ForeignWriteProbe(version, has_rows, calls.append)
        probe.start()
        await done.wait()

    asyncio.run(asyncio.wait_for(scenario(), 10))
    assert looked == ["1 looks", "1", "2 looks", "None looks", "None looks", "gone", "2 looks", "2"]
    assert calls == [None] * 4
