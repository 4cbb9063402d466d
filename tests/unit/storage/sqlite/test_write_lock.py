"""The turnstile between writers: in turn, released by death, and with a word about who is in the way."""

import logging
import os
import shutil
import threading
from pathlib import Path

import pytest

from holdfast.storage.sqlite import write_lock as patience
from holdfast.storage.sqlite.write_lock import WriteLock


def test_a_lock_is_had_by_one_and_not_taken_by_another_without_waiting(tmp_path: Path) -> None:
    one, other = WriteLock(tmp_path / "shop.db"), WriteLock(tmp_path / "shop.db")
    assert one.take(wait=False)
    assert not other.take(wait=False)
    one.release()
    assert other.take(wait=False)
    for lock in (one, other):
        lock.close()


def test_a_thread_that_waits_shortly_gets_the_lock_when_it_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SOON_MS", 600_000)
    one, other, third = (WriteLock(tmp_path / "shop.db") for _ in range(3))
    assert one.take(wait=False)
    taken: list[bool] = []
    waiting = threading.Thread(target=lambda: taken.append(other.take(wait=False, soon=True)), daemon=True)
    waiting.start()
    while one._gate.address[1:] not in Path("/proc/net/unix").read_text(encoding="ascii"):
        assert waiting.is_alive()
    assert not third.take(wait=False, soon=True), "one process waits at the gate, the others do not wait at all"
    one.release()
    waiting.join(20)
    assert taken == [True], "the datagram of the release ends the wait"
    assert not one.take(wait=False)
    other.release()
    for lock in (one, other, third):
        lock.close()


def test_a_thread_that_waits_shortly_does_not_wait_for_a_holder_that_is_stopped(tmp_path: Path) -> None:
    one, other = WriteLock(tmp_path / "shop.db"), WriteLock(tmp_path / "shop.db")
    assert one.take(wait=False)
    assert not other.take(wait=False, soon=True)
    one.release()
    assert other.take(wait=False, soon=True)
    for lock in (one, other):
        lock.close()


def test_the_holder_of_a_lock_is_known_by_its_pid(tmp_path: Path) -> None:
    lock = WriteLock(tmp_path / "shop.db")
    file = tmp_path / "shop.db-lock"
    assert patience.holder_of(file) is None
    with lock.held():
        assert patience.holder_of(file) == os.getpid()
    assert patience.holder_of(file) is None
    assert patience.holder_of(tmp_path / "no such file") is None
    lock.close()


def test_a_long_wait_is_warned_of_once_and_its_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warned, taken = threading.Event(), threading.Event()
    monkeypatch.setattr(patience, "TICK_SECONDS", 0.001)
    monkeypatch.setattr(patience, "lock_waits", patience.LockWaitMonitor())
    monkeypatch.setattr("holdfast.storage.sqlite.write_lock.lock_waits", patience.lock_waits)
    caplog.set_level(logging.WARNING, logger="holdfast")

    def hear(record: logging.LogRecord) -> bool:
        del record
        warned.set()
        return True

    logging.getLogger("holdfast").addFilter(hear)
    one, other = WriteLock(tmp_path / "shop.db"), WriteLock(tmp_path / "shop.db")

    def wait() -> None:
        other.take(wait=True)
        taken.set()

    try:
        one.take(wait=True)
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert warned.wait(10)
        assert not taken.is_set()
        one.release()
        assert taken.wait(10)
        waiting.join()
    finally:
        logging.getLogger("holdfast").removeFilter(hear)
        one.close()
        other.close()
    first, last = [record.getMessage() for record in caplog.records]
    assert f"process {os.getpid()} has it" in first
    assert last.endswith("writing goes on")


@pytest.mark.parametrize("suffix", ["-lock", "-gate"])
def test_a_lock_file_that_was_removed_is_made_again_and_excludes_everyone(
    tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, old = WriteLock(tmp_path / "shop.db"), WriteLock(tmp_path / "shop.db")
    (tmp_path / f"shop.db{suffix}").unlink()
    new = WriteLock(tmp_path / "shop.db")  # has the new file; the others have the old one open
    new.take(wait=True)
    assert not one.take(wait=False)
    assert not old.take(wait=False)
    new.release()
    (tmp_path / f"shop.db{suffix}").unlink()
    assert one.take(wait=True)
    assert not old.take(wait=False)
    assert not new.take(wait=False)
    one.release()
    for lock in (one, old, new):
        lock.close()
    assert len(caplog.records) == (suffix == "-lock"), "the gate is looked at when somebody has to wait"


def test_a_lock_whose_folder_was_removed_is_still_one(tmp_path: Path) -> None:
    """What became of the store is found by its own check."""
    (tmp_path / "shop").mkdir()
    one, other = WriteLock(tmp_path / "shop" / "a.db"), WriteLock(tmp_path / "shop" / "a.db")
    shutil.rmtree(tmp_path / "shop")
    assert one.take(wait=True)
    assert not other.take(wait=False)
    one.release()
    for lock in (one, other):
        lock.close()
