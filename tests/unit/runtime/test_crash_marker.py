"""What a worker runs is kept where others find it when the worker is gone (G12)."""

import os
import shutil
from pathlib import Path

import pytest

from holdfast.core.leases import WorkerKey
from holdfast.runtime.crash_detection import NOBODY, REMOVED_AFTER_SECONDS, CrashMarker

ANNA, BERT, CARL = WorkerKey("anna"), WorkerKey("bert"), WorkerKey("carl")


def test_G12_the_marker_of_a_dead_worker_has_the_instance_that_it_ran_last(tmp_path: Path) -> None:
    anna, bert = CrashMarker(tmp_path / "turns"), CrashMarker(tmp_path / "turns")
    assert bert.read(ANNA) is None, "nothing was said, so nobody knows"
    anna.open(ANNA)
    assert bert.read(ANNA) == NOBODY
    anna.slot[0] = 7
    assert bert.read(ANNA) == 7
    anna.slot[0] = 0
    assert bert.read(ANNA) == NOBODY
    anna.slot[0] = 2**53
    bert.remove(ANNA)
    assert bert.read(ANNA) is None
    anna.slot[0] = 8  # nobody hears it, and nothing breaks


def test_G12_a_clean_stop_removes_the_marker_and_a_hanging_worker_keeps_it(tmp_path: Path) -> None:
    words = CrashMarker(tmp_path / "turns")
    words.open(ANNA)
    words.slot[0] = 5
    words.detach()
    words.slot[0] = 0
    words.open(BERT)
    words.slot[0] = 6
    assert words.read(ANNA) == 5
    assert words.read(BERT) == 6
    words.close()
    assert words.read(BERT) is None
    assert [path.name for path in (tmp_path / "turns").iterdir()] == [ANNA]


def test_G12_the_marker_of_a_replaced_key_names_no_instance(tmp_path: Path) -> None:
    words = CrashMarker(tmp_path / "turns")
    words.open(ANNA)
    words.open(BERT)
    assert words.read(ANNA) == NOBODY
    words.slot[0] = 6
    assert words.read(ANNA) == NOBODY


def test_G12_old_markers_are_removed(tmp_path: Path) -> None:
    words = CrashMarker(tmp_path / "turns")
    for key, age in ((ANNA, REMOVED_AFTER_SECONDS + 60), (BERT, REMOVED_AFTER_SECONDS - 60)):
        words.open(key)
        file = tmp_path / "turns" / key
        long_ago = file.stat().st_mtime - age
        os.utime(file, (long_ago, long_ago))
    words.open(CARL)
    assert (words.read(ANNA), words.read(BERT), words.read(CARL)) == (None, NOBODY, NOBODY)


@pytest.mark.parametrize("how", ["in the way", "of somebody else"])
def test_G12_without_a_usable_folder_there_is_no_marker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "in the way":
        (tmp_path / "turns").write_bytes(b"in the way")
    else:
        tmp_path.chmod(0o777)
        (tmp_path / "turns").mkdir(mode=0o777)
        monkeypatch.setattr(os, "getuid", lambda: (tmp_path / "turns").stat().st_uid + 1)
    words = CrashMarker(tmp_path / "turns")
    words.open(ANNA)
    words.slot[0] = 5
    assert words.read(ANNA) is None
    assert "cannot be kept" in caplog.text


def test_G12_a_folder_that_was_removed_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    words, others = CrashMarker(tmp_path / "turns"), CrashMarker(tmp_path / "turns")
    words.restore()
    assert not (tmp_path / "turns").exists(), "nothing was said yet"
    words.open(ANNA)
    shutil.rmtree(tmp_path / "turns")
    assert others.read(ANNA) is None
    words.restore()
    words.restore()
    words.slot[0] = 7
    assert others.read(ANNA) == 7
    assert len(caplog.records) == 1
