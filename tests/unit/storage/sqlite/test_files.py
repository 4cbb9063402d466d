"""The files of an open SQLite store: what happens when they are removed, replaced, or read by a second library."""

import asyncio
import logging
import os
import shutil
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.forking.processes import program
from tests.scenarios.support import rows, until

import holdfast as hf
from holdfast.core.leases import Heartbeat, WorkerKey
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome, StartedInstance
from holdfast.storage.records import CommitId, InstanceId
from holdfast.storage.relational.apply.dispatch import apply_members
from holdfast.storage.sqlite import files
from holdfast.storage.sqlite import writer as sqlite_writer
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.storage.sqlite.write_lock import WriteLock, lock_waits
from holdfast.testing.conformance.bench import HERE, ManualClock, start

SUFFIXES = ("", "-wal", "-shm")
READ = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("PRAGMA user_version").fetchone(), flush=True)
sys.stdin.readline()
connection.close()
"""


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"")
    other.rename(path)


def on_a_store(folder: Path, case: Callable[[SqliteStore], Awaitable[None]]) -> None:
    async def run() -> None:
        store = SqliteStore(folder / "shop.db", clock=ManualClock())
        await store.open()
        try:
            await case(store)
        finally:
            await store.close()

    asyncio.run(run())


def file_of(store: SqliteStore, suffix: str) -> Path:
    return store.companion_path.with_name(store.companion_path.name + suffix)


def ids_at(path: Path) -> set[str]:
    """What is found by a program that opens the store now."""
    return {str(row[0]) for row in rows(path, "SELECT id FROM instances")}


def descriptors_of(folder: Path) -> list[str]:
    """Files below a folder that this process has open."""
    targets = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sorted(target for target in targets if target.startswith(str(folder)))


@pytest.mark.parametrize("harm", [remove, replace])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_store_whose_files_were_removed_or_replaced_acknowledges_nothing_and_says_so_once(
    tmp_path: Path, suffix: str, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def case(store: SqliteStore) -> None:
        await store.commit(CommitId(1), [start("a")])
        store.heartbeat(Heartbeat(WorkerKey("anna"), lease_ms=10_000), HERE)
        file = file_of(store, suffix)
        harm(file)
        done = "removed" if harm is remove else "replaced"
        for number in (2, 3):
            with pytest.raises(hf.errors.StoreReplaced, match=rf"{file.name} was {done}"):
                await store.commit(CommitId(number), [start("b")])
        with pytest.raises(hf.errors.StoreReplaced):
            store.heartbeat(Heartbeat(WorkerKey("anna"), lease_ms=10_000), HERE)
        with pytest.raises(hf.errors.StoreReplaced):
            await store.find_instance(InstanceId("a"))

    on_a_store(tmp_path, case)
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_client_that_only_waits_notices_it_by_asking(
    tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def case(store: SqliteStore) -> None:
        await store.commit(CommitId(1), [start("a")])
        await store.check_files()
        file_of(store, suffix).unlink()
        with pytest.raises(hf.errors.StoreReplaced, match="was removed"):
            await store.check_files()
        with pytest.raises(hf.errors.StoreReplaced, match="was removed"):
            await store.find_instance(InstanceId("a"))

    on_a_store(tmp_path, case)
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]


def test_a_store_that_waits_for_its_write_lock_to_close_does_not_delay_other_stores(tmp_path: Path) -> None:
    async def run() -> None:
        slow, other = (SqliteStore(tmp_path / name, clock=ManualClock()) for name in ("slow.db", "other.db"))
        await slow.open()
        elsewhere = WriteLock(slow.companion_path)
        with elsewhere.held():
            closing_slow = asyncio.create_task(slow.close())
            await until(lambda: lock_waits._waits)
            async with asyncio.timeout(10):
                await other.open()
                await other.close()
            assert not closing_slow.done()
        await closing_slow
        elsewhere.close()

    asyncio.run(run())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_worker_that_only_beats_notices_it(tmp_path: Path, suffix: str) -> None:
    async def case(store: SqliteStore) -> None:
        store.heartbeat(Heartbeat(WorkerKey("anna"), lease_ms=10_000), HERE)
        file_of(store, suffix).unlink()
        with pytest.raises(hf.errors.StoreReplaced, match="was removed"):
            store.heartbeat(Heartbeat(WorkerKey("anna"), lease_ms=10_000), HERE)

    on_a_store(tmp_path, case)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_worker_that_only_beats_writes_nothing_to_files_that_are_gone(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(store: SqliteStore) -> None:
        store.heartbeat(Heartbeat(WorkerKey("anna"), lease_ms=10_000), HERE)

        def written(*_: object) -> None:
            pytest.fail("it was written")

        monkeypatch.setattr(sqlite_writer, "apply_worker_heartbeat", written)
        file_of(store, suffix).unlink()
        with pytest.raises(hf.errors.StoreReplaced, match="was removed"):
            store.heartbeat(Heartbeat(WorkerKey("anna"), lease_ms=10_000), HERE)

    on_a_store(tmp_path, case)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_that_are_removed_during_a_commit_are_noticed_before_it_is_acknowledged(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(store: SqliteStore) -> None:
        def remove_and_apply(transaction: Any, members: Sequence[Member]) -> list[Outcome]:
            file_of(store, suffix).unlink()
            return apply_members(transaction, members)

        monkeypatch.setattr(sqlite_writer, "apply_members", remove_and_apply)
        with pytest.raises(hf.errors.StoreReplaced, match="was removed"):
            await store.commit(CommitId(1), [start("a")])

    on_a_store(tmp_path, case)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nothing_is_written_to_files_that_were_replaced_before(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shared memory may be in use by others, with a WAL that is not this one."""

    async def case(store: SqliteStore) -> None:
        def written(transaction: Any, members: Sequence[Member]) -> list[Outcome]:
            pytest.fail(f"{members} were written to {transaction}")

        replace(file_of(store, suffix))
        monkeypatch.setattr(sqlite_writer, "apply_members", written)
        with pytest.raises(hf.errors.StoreReplaced):
            await store.commit(CommitId(1), [start("a")])

    on_a_store(tmp_path, case)


@pytest.mark.parametrize("suffixes", [("-wal",), ("-wal", "-shm"), ("-wal", "-shm", "-lock", "-gate")])
def test_what_was_acknowledged_before_the_wal_was_removed_is_saved(tmp_path: Path, suffixes: tuple[str, ...]) -> None:
    async def case(store: SqliteStore) -> None:
        await store.commit(CommitId(1), [start("a")])
        for suffix in suffixes:
            file_of(store, suffix).unlink()
        with pytest.raises(hf.errors.StoreReplaced, match="What was acknowledged is on disk"):
            await store.commit(CommitId(2), [start("b")])

    on_a_store(tmp_path, case)
    assert ids_at(tmp_path / "shop.db") == {"a"}


def test_a_wal_that_was_removed_is_not_saved_over_a_database_that_others_have_changed(tmp_path: Path) -> None:
    async def case(store: SqliteStore) -> None:
        await store.commit(CommitId(1), [start("a")])
        file_of(store, "-wal").unlink()
        before = store.companion_path.read_bytes()
        os.utime(store.companion_path, ns=(1, 1))
        with pytest.raises(hf.errors.StoreReplaced, match="may be missing"):
            await store.commit(CommitId(2), [start("b")])
        assert store.companion_path.read_bytes() == before

    on_a_store(tmp_path, case)


@pytest.mark.slow
@pytest.mark.parametrize("is_open", [False, True])
def test_a_wal_that_was_only_made_counts_if_somebody_has_it_open(tmp_path: Path, is_open: bool) -> None:
    """A program that reads the database makes an empty one."""
    path = tmp_path / "shop.db"

    async def case(store: SqliteStore) -> None:
        await store.commit(CommitId(1), [start("a")])
        for suffix in ("-wal", "-shm"):
            file_of(store, suffix).unlink()
        with program([sys.executable, "-c", READ, str(path)], cwd=tmp_path) as other:
            assert other.stdout is not None
            other.stdout.readline()
            if not is_open:
                other.communicate("leave\n")
            assert file_of(store, "-wal").stat().st_size == 0
            with pytest.raises(hf.errors.StoreReplaced, match="may be missing" if is_open else "is on disk"):
                await store.commit(CommitId(2), [start("b")])
            if is_open:
                other.communicate("leave\n")

    on_a_store(tmp_path, case)
    assert is_open or ids_at(path) == {"a"}


@pytest.mark.parametrize("database", [False, True])
def test_a_wal_of_others_is_neither_written_over_nor_deleted(tmp_path: Path, database: bool) -> None:
    async def case(store: SqliteStore) -> None:
        await store.commit(CommitId(1), [start("a")])
        before = store.companion_path.read_bytes()
        if database:
            before = b"another database"
            replace(store.companion_path)
            store.companion_path.write_bytes(before)
        file_of(store, "-wal").unlink()
        file_of(store, "-wal").write_bytes(b"of others")
        with pytest.raises(hf.errors.StoreReplaced, match="may be missing"):
            await store.commit(CommitId(2), [start("b")])
        await store.close()
        assert file_of(store, "-wal").read_bytes() == b"of others"
        assert store.companion_path.read_bytes() == before

    on_a_store(tmp_path, case)


def test_a_loss_that_nothing_noticed_is_noticed_by_the_close(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def case(store: SqliteStore) -> None:
        await store.commit(CommitId(1), [start("a")])
        replace(file_of(store, "-wal"))

    on_a_store(tmp_path, case)
    assert (tmp_path / "shop.db-wal").read_bytes() == b""
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]


def test_a_store_that_lost_its_files_has_to_be_closed_before_this_process_opens_it_again(tmp_path: Path) -> None:
    async def case(store: SqliteStore) -> None:
        await store.commit(CommitId(1), [start("a")])
        file_of(store, "-wal").unlink()
        with pytest.raises(hf.errors.StoreReplaced):
            await store.commit(CommitId(2), [start("b")])
        refused = SqliteStore(store.companion_path, clock=ManualClock())
        with pytest.raises(hf.StoreError, match="close that first"):
            await refused.open()
        await refused.close()
        await store.close()
        again = SqliteStore(store.companion_path, clock=ManualClock())
        await again.open()
        try:
            (outcome,) = await again.commit(CommitId(3), [start("c")])
            assert isinstance(outcome, StartedInstance)
        finally:
            await again.close()

    on_a_store(tmp_path, case)
    assert ids_at(tmp_path / "shop.db") == {"a", "c"}


# ---------------------------------------------------------------- a second library, and copies


def peek(path: Path) -> None:
    """As a program does that looks at its own store: with Python's sqlite3, which is another library than apsw's."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM instances").fetchone()


def copy_and_peek(path: Path) -> None:
    """Closing the file drops SQLite's locks; the next one to close a connection takes itself for the last one."""
    shutil.copyfile(path, path.with_name("copy"))
    peek(path)


@pytest.mark.parametrize("look", [peek, copy_and_peek])
def test_a_second_library_in_the_process_does_not_delete_the_wal(
    tmp_path: Path, look: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def case(store: SqliteStore) -> None:
        await store.commit(CommitId(1), [start("a")])
        before = file_of(store, "-wal").stat().st_ino
        for number in range(2, 5):
            look(store.companion_path)
            await store.commit(CommitId(number), [start(f"b{number}")])
        assert file_of(store, "-wal").stat().st_ino == before
        assert ids_at(store.companion_path) == {"a", "b2", "b3", "b4"}

    on_a_store(tmp_path, case)
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    assert "second SQLite library" in warning.getMessage()


def test_without_such_locks_the_lost_wal_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on every system: then what is acknowledged is still never lost silently."""
    monkeypatch.setattr(files, "SET_LOCK", None)

    async def case(store: SqliteStore) -> None:
        await store.commit(CommitId(1), [start("a")])
        peek(store.companion_path)
        with pytest.raises(hf.errors.StoreReplaced, match=r"shop\.db-wal was removed"):
            await store.commit(CommitId(2), [start("b")])

    on_a_store(tmp_path, case)
    assert ids_at(tmp_path / "shop.db") == {"a"}


@pytest.mark.parametrize("name", [":memory:", "other.db", "file:other.db?mode=rwc"])
def test_another_database_of_the_program_is_no_concern(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def case(store: SqliteStore) -> None:
        del store
        with closing(sqlite3.connect(name, uri=name.startswith("file:"))) as connection:
            connection.execute("CREATE TABLE things (name TEXT)")

    on_a_store(tmp_path, case)
    assert not caplog.records


# ---------------------------------------------------------------- opening and closing


def test_a_clean_close_leaves_no_wal_and_no_descriptor(tmp_path: Path) -> None:
    async def case(store: SqliteStore) -> None:
        store.heartbeat(Heartbeat(WorkerKey("anna"), lease_ms=10_000), HERE)
        await store.commit(CommitId(1), [start("a")])
        assert descriptors_of(tmp_path)

    on_a_store(tmp_path, case)
    assert descriptors_of(tmp_path) == []
    assert sorted(file.name for file in tmp_path.iterdir()) == ["shop.db", "shop.db-gate", "shop.db-lock"]


def test_the_first_of_two_stores_of_a_process_to_close_leaves_the_other_guarded(tmp_path: Path) -> None:
    async def case(store: SqliteStore) -> None:
        other = SqliteStore(store.companion_path, clock=ManualClock())
        await other.open()
        await other.commit(CommitId(1), [start("a")])
        await other.close()
        await store.commit(CommitId(2), [start("b")])
        copy_and_peek(store.companion_path)
        await store.commit(CommitId(3), [start("c")])

    on_a_store(tmp_path, case)
    assert ids_at(tmp_path / "shop.db") == {"a", "b", "c"}
    assert descriptors_of(tmp_path) == []


def test_files_that_do_not_belong_together_are_an_error_of_the_store(tmp_path: Path) -> None:
    """The database was removed, and the WAL and its index are in use by a process that has the old one open."""

    async def case(store: SqliteStore) -> None:
        await store.commit(CommitId(1), [start("a")])
        store.companion_path.unlink()
        other = SqliteStore(store.companion_path, clock=ManualClock())
        with pytest.raises(hf.StoreError, match="cannot be used as a store"):
            await other.open()
        await other.close()

    on_a_store(tmp_path, case)
    assert descriptors_of(tmp_path) == []


def test_a_relative_path_means_the_folder_that_was_current_when_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)

    async def case(store: SqliteStore) -> None:
        monkeypatch.chdir(elsewhere)
        await store.commit(CommitId(1), [start("a")])
        store.heartbeat(Heartbeat(WorkerKey("anna"), lease_ms=10_000), HERE)

    on_a_store(Path(), case)
    assert not list(elsewhere.iterdir())


def test_a_store_behind_a_symbolic_link_has_its_files_beside_the_database(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "shop.db").symlink_to(tmp_path / "data" / "real.db")

    async def case(store: SqliteStore) -> None:
        await store.commit(CommitId(1), [start("a")])
        assert store.companion_path == tmp_path / "data" / "real.db"

    on_a_store(tmp_path, case)
    assert ids_at(tmp_path / "data" / "real.db") == {"a"}
