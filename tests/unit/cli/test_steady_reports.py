"""Reports of ``holdfast activity run`` while the store fails: repeated under one id, until the command has to end."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.commands import sql

import holdfast as hf
from holdfast.cli import steady_reports
from holdfast.cli.steady_reports import SteadyReports
from holdfast.client import activity_reports
from holdfast.client.requests import insert_row
from holdfast.core.activity_events import ReportKind
from holdfast.errors import StoreReplaced


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """The errors that the next inserts have, each after its row was committed."""
    errors: list[Exception] = []

    async def lose_reply(*given: Any) -> bool:
        is_new = await insert_row(*given)
        if errors:
            raise errors.pop(0)
        return is_new

    monkeypatch.setattr(activity_reports, "insert_row", lose_reply)
    monkeypatch.setattr(steady_reports, "PAUSE_SECONDS", 0)
    return errors


def insert(path: Path, *, is_over: bool = False) -> str:
    async def run() -> str:
        async with hf.Engine(path) as engine:
            reports = SteadyReports(engine._calls, source=None, is_over=lambda: is_over)
            return await reports.insert("0" * 32, ReportKind.NOTE, payload="1")

    return asyncio.run(run())


def test_C2_a_report_is_repeated_under_its_id(
    tmp_path: Path, failures: list[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    failures += [hf.StoreError("the server is away")] * 3
    event_id = insert(tmp_path / "a.db")
    assert sql(tmp_path / "a.db", "SELECT event_id, payload FROM activity_events") == [(event_id, "1")]
    assert capsys.readouterr().err.splitlines() == [
        "holdfast: the store cannot be used, and is tried again: the server is away",
        "holdfast: the store can be used again",
    ]


def test_A5_a_command_that_has_to_end_does_not_wait_for_the_store(tmp_path: Path, failures: list[Exception]) -> None:
    failures += [hf.StoreError("the server is away")] * 3
    with pytest.raises(hf.StoreError, match="the server is away"):
        insert(tmp_path / "a.db", is_over=True)
    assert len(failures) == 2


def test_an_error_that_lasts_is_raised_at_once(tmp_path: Path, failures: list[Exception]) -> None:
    failures += [StoreReplaced("the file was removed"), hf.StoreError("unused")]
    with pytest.raises(StoreReplaced):
        insert(tmp_path / "a.db")
    assert len(failures) == 1


def test_an_outage_has_a_longest_time(
    tmp_path: Path, failures: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steady_reports, "LONGEST_OUTAGE_SECONDS", -1.0)
    failures += [hf.StoreError("the server is away")] * 3
    with pytest.raises(hf.StoreError, match="the server is away"):
        insert(tmp_path / "a.db")
