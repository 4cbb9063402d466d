"""``holdfast bench`` measures beside a store, says where, and leaves nothing."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.commands import Command

from holdfast.cli.bench import SHARES, Row, _rows
from holdfast.testing.scratch_stores import FOLDER_MARK

FIGURES = [
    "insert_ms",
    "inserts_per_s",
    "rows_per_s",
    "one_step_p50_ms",
    "one_step_p99_ms",
    "row_steps_per_s",
    "steps_per_s",
    "cpu_us_per_step",
]


@pytest.mark.slow
def test_the_table_has_every_figure_and_the_given_file_stays_as_it_is(filled: Command) -> None:
    before = {path: path.read_bytes() for path in filled.folder.iterdir() if path.is_file()}
    done = filled("bench", "--seconds", "1")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == ["figure", "median", "unit", "least..most", "over", "the", "bare", "limit"]
    assert len(lines) == 1 + len(FIGURES)
    assert "x two bare commits" in done.out
    assert f"in the folder {filled.folder / 'holdfast.db'}{FOLDER_MARK}" in done.err
    assert "which is removed at the end" in done.err
    assert {path: path.read_bytes() for path in filled.folder.iterdir() if path.is_file()} == before
    assert list(filled.folder.glob(f"*{FOLDER_MARK}*")) == []


@pytest.mark.slow
def test_json_has_the_values_of_each_round_and_the_file_need_not_exist(holdfast: Command) -> None:
    done = holdfast("bench", "--seconds", "1", "--store", "new.db", "--json")
    report = json.loads(done.out)
    assert list(report["figures"]) == FIGURES
    assert report["store"] == "new.db"
    assert all(len(figure["rounds"]) == 3 for figure in report["figures"].values())
    assert all(min(figure["rounds"]) > 0 for figure in report["figures"].values())
    assert not (holdfast.folder / "new.db").exists()
    assert [path.name for path in holdfast.folder.iterdir()] == ["shop.py"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--seconds", "0"], "--seconds is from 1 to 600, not 0"),
        (["--seconds", "601"], "--seconds is from 1 to 600, not 601"),
        (["--seconds", "nan"], "--seconds is from 1 to 600, not nan"),
        (["--store", "."], "is a folder; name the file of a store in it"),
        (["--store", "nowhere/shop.db"], "there is no folder"),
        (["--store", "mysql://host/shop"], "neither the path of a SQLite file nor a postgresql:// URL"),
        (["--store", ":memory:"], "a store in memory ends with its process"),
        (["--store", "postgresql://host/shop?schma=x"], "did you mean schema?"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(holdfast: Command, words: list[str], sentence: str) -> None:
    before = sorted(holdfast.folder.iterdir())
    assert sentence in holdfast.refused("bench", *words)
    assert sorted(holdfast.folder.iterdir()) == before


@pytest.mark.slow
def test_the_table_fits_a_terminal_of_72_columns(holdfast: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    done = holdfast("bench", "--seconds", "1")
    assert [line for line in (done.out + done.err).splitlines() if len(line) > 72] == []


@pytest.mark.slow
def test_a_folder_that_was_left_is_named_and_not_removed(holdfast: Command) -> None:
    left = holdfast.folder / f"holdfast.db{FOLDER_MARK}0123"
    left.mkdir()
    done = holdfast("bench", "--seconds", "1", "--json")
    assert f"rm -r '{left}'" in done.err
    assert left.exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_measurement_that_is_stopped_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "holdfast", "bench", "--seconds", "30", "--store", str(tmp_path / "it.db")]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        try:
            os.close(theirs)
            seen = b""
            while b"round 1 of 3: workflows of one step" not in seen:  # the progress on a terminal
                seen += os.read(ours, 1_000)
            process.send_signal(number)
            assert process.wait(timeout=30) == 130
        finally:
            process.kill()
            os.close(ours)
    assert list(tmp_path.iterdir()) == []


def test_ratios_are_those_of_the_same_round() -> None:
    found = {name: [1.0, 10.0, 100.0] for name in FIGURES}
    found["one_step_p50_ms"] = [4.0, 40.0, 400.0]
    found["steps_per_s"] = [5.0, 50.0, 50.0]
    rows: dict[str, Row] = {row.name: row for row in _rows(found, is_remote=False)}
    assert rows["one_step_p50_ms"].over == "2 x two bare commits"
    assert rows["steps_per_s"].over == "5 x bare commits"
    assert rows["row_steps_per_s"].over == "1 x bare commits"


def test_a_store_with_a_server_has_a_round_trip() -> None:
    found = {name: [1.0] for name in ["ping_ms", *FIGURES]}
    assert [row.name for row in _rows(found, is_remote=True)] == ["ping_ms", *FIGURES]
    assert set(SHARES) == {"ping", "insert", "rows", "one step", "in a row", "in flight"}
