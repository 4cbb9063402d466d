"""Rows that a hostile or mistaken client inserts, and backlogs that no worker here can handle (C6)."""

from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.by_rows import ByRows
from tests.scenarios.support import engine_of, rows, together, until

import holdfast as hf
from holdfast.runtime.duties import contract_rows
from holdfast.storage.records import RowPage


@hf.activity(external=True, heartbeat=60)
async def train(number: int) -> int: ...  # type: ignore[empty-body]


@hf.workflow
async def trains(number: int) -> int:
    return await train(number)


@hf.workflow
async def doubles(number: int) -> int:
    return 2 * number


def test_C6_rows_that_only_other_workers_can_handle_do_not_hold_up_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract_rows, "BATCH", 5)

    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, doubles) as engine:
            for number in range(3):
                others = [by_rows.request("elsewhere") for _ in range(12)]
                assert await by_rows.ask("doubles", input=f"[{number}]", instance_id=f"i{number}") == ("ACCEPTED", None)
                assert await engine.get(f"i{number}").result(timeout=20) == 2 * number
                assert {by_rows.answer_to(one)[0] for one in others} == {"NEW"}

    together(scenario())


def test_C6_a_long_backlog_is_passed_at_intervals_that_grow_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract_rows, "BATCH", 10)
    monkeypatch.setattr(contract_rows, "LOOK_BACK", 4)
    position = contract_rows._Pass()
    assert position.begin(0) == 0
    assert position.end(RowPage(rows=[], others=10, last_row=10, has_more=True), 0), "a full page"
    assert position.begin(0) == 10
    assert not position.end(RowPage(rows=[], others=9, last_row=19), 0)
    assert position.begin(1) == 15, "behind most rows of others: one with a lower number may have been committed late"
    assert not position.end(RowPage(rows=[1], others=4, last_row=21), 1)
    assert position.begin(1) == 17
    assert not position.end(RowPage(rows=[1], others=4, last_row=21), 1)
    assert position.begin(9) == 17
    assert not position.end(RowPage(rows=[], others=4, last_row=21), 9)
    assert position.begin(10) == 0, "19 rows, half a millisecond each"
    assert not position.end(RowPage(rows=[1], others=3, last_row=22), 10)
    assert position.begin(10) == 0, "a short backlog is read each time"
    assert position.end(RowPage(rows=[1], last_row=30, has_more=True, has_unread=True), 10)
    assert position.begin(10) == 0, "rows whose values were not read are read again"


def test_C10_a_worker_without_the_activity_does_not_commit_for_reports_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An expired attempt with NEW reports is left alone, at each poll, until a worker with the activity comes."""

    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, trains, train) as engine:
            await engine.start(trains, 1, id="it")
            exec_id = await by_rows.offer("it")
            assert (await by_rows.report(exec_id, "RUNNING"))[0] == "APPLIED"
        rows(path, "UPDATE attempts SET expires_at_ms = 1, heartbeat_at_ms = 1")
        report = by_rows.insert(exec_id, "HEARTBEAT")
        async with engine_of(path, doubles) as engine:
            store = engine._session.store
            [attempt] = await store.expired_attempts(9)
            worker: Any = engine._session.worker
            monkeypatch.setattr(worker.contract_rows, "_commit", None)
            assert not await worker.contract_rows.expire(attempt)
            assert by_rows.answer(report)[0] == "NEW"
            assert by_rows.attempts("it") == [("RUNNING", 889)]

    together(scenario())


def test_C8_the_sequences_of_refused_claims_are_not_stored(tmp_path: Path) -> None:
    """Otherwise each of them would make every later commit of the attempt larger."""

    async def scenario() -> None:
        by_rows = ByRows(path := tmp_path / "it.db")
        async with engine_of(path, trains, train) as engine:
            handle = await engine.start(trains, 1, id="it")
            exec_id = await by_rows.offer("it")
            assert (await by_rows.report(exec_id, "RUNNING", claim="mine", sequence=1))[0] == "APPLIED"
            refused = [by_rows.insert(exec_id, "HEARTBEAT", claim=f"c{number}", sequence=1) for number in range(20)]
            await until(lambda: all(by_rows.answer(one)[0] == "REFUSED" for one in refused))
            assert (await by_rows.report(exec_id, "HEARTBEAT", claim="mine", sequence=2))[0] == "APPLIED"
            assert rows(path, "SELECT sequences FROM offers") == [('{"mine": 2}',)]
            assert (await by_rows.report(exec_id, "COMPLETED", claim="mine", sequence=3, payload="4"))[0] == "APPLIED"
            assert await handle.result(timeout=20) == 4

    together(scenario())
