"""A backup of a SQLite store that is in use (R1): one moment of it, complete, checked, and never half a file."""

import asyncio
import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.scenarios.kinds import are_files
from tests.scenarios.support import engine_of, rows, together

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.audit.backup import BackupPhase
from holdfast.errors import UsageError

LARGE = 200_000
INSTANCES = 8


@pytest.fixture(autouse=True)
def on_files(store_kind: None) -> None:
    del store_kind
    if not are_files():
        pytest.skip("only SQLite files are copied")


@hf.activity
async def echo(text: str) -> str:
    return text


@hf.workflow
async def greet(name: str) -> int:
    return len(await echo(name * LARGE))


@hf.workflow
async def waits() -> str:
    return await hf.event("word", str)


async def filled(store: Path) -> None:
    async with engine_of(store, greet, echo) as engine:
        for number in range(INSTANCES):
            await engine.run(greet, "x", id=f"before-{number}")


def ids_in(store: Path) -> set[str]:
    return {name for (name,) in rows(store, "SELECT id FROM instances")}


def test_R1_writers_are_not_blocked_and_their_commits_are_not_in_the_backup(tmp_path: Path) -> None:
    store, copy = tmp_path / "shop.db", tmp_path / "backup.db"
    steps: list[tuple[BackupPhase, int, int]] = []
    written: list[int] = []

    async def main() -> None:
        await filled(store)
        async with engine_of(store, greet, echo) as engine:
            loop = asyncio.get_running_loop()

            def progress(phase: BackupPhase, done: int, total: int) -> None:
                """Between two steps the engine of this process commits, and waits for the acknowledgement."""
                if phase is BackupPhase.COPY and len(written) < 3:
                    running = engine.run(greet, "y", id=f"during-{len(written)}")
                    written.append(asyncio.run_coroutine_threadsafe(running, loop).result(30))
                steps.append((phase, done, total))

            report = await asyncio.to_thread(hf.backup, store, copy, progress=progress)
            assert report.instances == INSTANCES
            assert report.is_verified
            assert not report.problems

    together(main())
    assert written == [LARGE] * 3
    assert ids_in(copy) == {f"before-{number}" for number in range(INSTANCES)}, "one moment, that of its begin"
    assert len(ids_in(store)) == INSTANCES + 3
    assert audit(copy) == []
    copied = [(done, total) for phase, done, total in steps if phase is BackupPhase.COPY]
    assert len(copied) >= 3, "the store is copied in several steps"
    assert [done for done, _ in copied] == sorted({done for done, _ in copied}), "commits do not begin it again"
    assert copied[-1][0] == copied[-1][1]
    assert {phase for phase, _, _ in steps} == set(BackupPhase)


def test_R1_a_backup_has_what_is_only_in_the_wal_and_a_worker_runs_on_it(tmp_path: Path) -> None:
    store, copy = tmp_path / "shop.db", tmp_path / "backup.db"

    async def take() -> None:
        async with engine_of(store, waits) as engine:
            await engine.start(waits, id="it")
            await asyncio.to_thread(hf.backup, str(store), str(copy))

    async def use() -> None:
        async with hf.connect(copy) as client:
            await client.restored(force=True)  # this process had the worker, and still runs
        async with engine_of(copy, waits) as engine:
            await engine.get("it").raise_event("word", "found")
            assert await engine.get("it").result(timeout=30) == "found"

    together(take())
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("backup")) == ["backup.db"]
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    together(use())
    assert audit(copy) == []


def test_R1_an_existing_file_is_replaced_only_on_request_and_never_a_store_with_a_wal(tmp_path: Path) -> None:
    store, copy = tmp_path / "shop.db", tmp_path / "backup.db"
    together(filled(store))
    copy.write_text("something of mine")
    with pytest.raises(UsageError, match="exists; name another file"):
        hf.backup(store, copy)
    assert copy.read_text() == "something of mine"
    hf.backup(store, copy, replace=True)
    assert ids_in(copy) == ids_in(store)
    with pytest.raises(UsageError, match="is the store itself"):
        hf.backup(store, store, replace=True)
    for kept in ("-wal", "-shm", "-journal", "-lock", "-gate"):
        with pytest.raises(UsageError, match="belongs to the database"):
            hf.backup(store, f"{store}{kept}", replace=True)
    with pytest.raises(UsageError, match="name of the backup is empty"):
        hf.backup(store, "")
    with pytest.raises(UsageError, match="there is no folder"):
        hf.backup(store, tmp_path / "missing" / "backup.db")
    Path(f"{copy}-wal").write_bytes(b"x")
    with pytest.raises(UsageError, match="belongs to a database at"):
        hf.backup(store, copy, replace=True)
    with pytest.raises(UsageError, match="is not a file"):
        hf.backup(store, tmp_path, replace=True)


def test_R1_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    store, copy = tmp_path / "shop.db", tmp_path / "backup.db"
    together(filled(store))

    def progress(phase: BackupPhase, done: int, total: int) -> None:
        if phase is BackupPhase.VERIFY and done == total:
            copy.write_text("something of mine")

    with pytest.raises(UsageError, match="was made by another program meanwhile"):
        hf.backup(store, copy, progress=progress)
    assert copy.read_text() == "something of mine"
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_R1_a_copy_with_problems_is_not_kept_unless_the_audit_is_left_out(tmp_path: Path) -> None:
    store, copy = tmp_path / "shop.db", tmp_path / "backup.db"
    together(filled(store))
    connection: Any = apsw.Connection(str(store))
    connection.execute("DELETE FROM history WHERE number = 2 AND turn = 0")
    connection.close()
    report = hf.backup(store, copy)
    assert Counter(problem.instance for problem in report.problems)["before-1"] > 0
    assert not copy.exists()
    report = hf.backup(store, copy, verify=False)
    assert not report.is_verified
    assert not report.problems
    assert ids_in(copy) == ids_in(store)


def test_R1_a_store_of_an_earlier_release_is_copied_and_stays_of_that_release(tmp_path: Path) -> None:
    store, copy = tmp_path / "shop.db", tmp_path / "backup.db"
    together(filled(store))
    connection: Any = apsw.Connection(str(store))
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    report = hf.backup(store, copy)
    assert not report.is_verified
    assert rows(copy, "PRAGMA user_version") == [(7,)]


@pytest.mark.parametrize("content", [b"", b"not a database", None])
def test_R1_a_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes | None) -> None:
    store, copy = tmp_path / "shop.db", tmp_path / "backup.db"
    if content is not None:
        store.write_bytes(content)
    with pytest.raises(hf.StoreError):
        hf.backup(store, copy)
    assert not copy.exists()


def test_R1_two_backups_into_one_file_are_refused_and_a_dead_one_leaves_room_for_the_next(tmp_path: Path) -> None:
    store, copy, partial = (tmp_path / name for name in ("shop.db", "backup.db", "backup.db.partial"))
    together(filled(store))
    with partial.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="another process is writing the backup"):
            hf.backup(store, copy)
        assert partial.exists(), "it belongs to the other process"
    partial.write_bytes(b"half a backup")
    hf.backup(store, copy)
    assert not partial.exists()
    assert audit(copy) == []


class FullFile(apsw.VFSFile):
    """A file on a disk without space."""

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: ARG002 - SQLite's name
        raise apsw.FullError("no space")


class FullDisk(apsw.VFS):
    """The default file system, without space for further pages."""

    def __init__(self) -> None:
        self._base = apsw.vfs_names()[0]
        super().__init__("full-disk", self._base)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return FullFile(self._base, name, flags)


def test_R1_a_full_disk_is_named_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, copy = tmp_path / "shop.db", tmp_path / "backup.db"
    together(filled(store))
    disk = FullDisk()
    opened = apsw.Connection

    def connect(path: str, **more: Any) -> apsw.Connection:
        return opened(path, vfs="full-disk", **more) if path.endswith(".partial") else opened(path, **more)

    monkeypatch.setattr("apsw.Connection", connect)
    with pytest.raises(hf.StoreError, match=r"no space for the copy .*backup\.db"):
        hf.backup(store, copy)
    monkeypatch.undo()
    disk.unregister()
    assert sorted(each.name for each in tmp_path.glob("backup*")) == []
    hf.backup(store, copy)
    assert audit(copy) == []


KILLED = """
import os, signal, sys
import holdfast as hf

def progress(phase, done, total):
    if (phase.name, done > 0) == (sys.argv[3], True):
        os.kill(os.getpid(), signal.SIGKILL)

hf.backup(sys.argv[1], sys.argv[2], progress=progress)
"""


@pytest.mark.slow
@pytest.mark.parametrize("phase", BackupPhase)
def test_R1_a_backup_that_is_killed_leaves_no_file_of_that_name(tmp_path: Path, phase: BackupPhase) -> None:
    store, copy = tmp_path / "shop.db", tmp_path / "backup.db"
    together(filled(store))
    words = [sys.executable, "-c", KILLED, str(store), str(copy), phase.name]
    done = subprocess.run(words, check=False, capture_output=True, env={**os.environ, "PYTHONPATH": "src"})
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not copy.exists()
    assert audit(store) == []
    hf.backup(store, copy)
    assert audit(copy) == []
