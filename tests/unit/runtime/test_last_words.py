"""What a worker runs is kept where others find it when the worker is gone (G12)."""

from pathlib import Path

import pytest

from holdfast.core.liveness import WorkerKey
from holdfast.runtime.last_words import LastWords

ANNA, BERT = WorkerKey("anna"), WorkerKey("bert")


def test_G12_what_runs_when_a_worker_is_gone_is_what_it_said_last(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"
    anna, bert = LastWords(store), LastWords(store)
    anna.open(ANNA)
    assert bert.of(ANNA) is None
    anna.slot[0] = 7
    assert bert.of(ANNA) == 7
    anna.slot[0] = 0
    assert bert.of(ANNA) is None
    anna.slot[0] = 2**53
    bert.forget(ANNA)
    assert bert.of(ANNA) is None
    anna.slot[0] = 8  # nobody hears it, and nothing breaks


def test_a_clean_end_leaves_nothing_and_a_hanging_worker_what_it_hangs_in(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"
    words = LastWords(store)
    words.open(ANNA)
    words.slot[0] = 5
    words.leave()
    words.slot[0] = 0
    words.open(BERT)
    words.slot[0] = 6
    assert words.of(ANNA) == 5
    assert words.of(BERT) == 6
    words.close()
    assert words.of(BERT) is None
    assert [path.name for path in store.with_name("shop.db-turns").iterdir()] == [ANNA]


def test_a_folder_that_cannot_be_made_accuses_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "shop.db-turns").write_bytes(b"in the way")
    words = LastWords(tmp_path / "shop.db")
    words.open(ANNA)
    words.slot[0] = 5
    assert words.of(ANNA) is None
    assert "cannot be kept" in caplog.text
