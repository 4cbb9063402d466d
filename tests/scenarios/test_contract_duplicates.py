"""Rows of clients that are inserted and handled twice change nothing (C2), and wake a worker of their own process."""

import asyncio
from pathlib import Path

import pytest
from tests.scenarios.contract_store import PATIENCE_SECONDS, train, trains

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.client.activity_reports import ActivityReports
from holdfast.client.requests import submit_request
from holdfast.core.activity_events import ReportKind
from holdfast.runtime.duties import contract_rows
from holdfast.runtime.platform import Platform
from holdfast.storage.contract import NullNotifier
from holdfast.storage.members.contract_rows import InsertRequest
from holdfast.testing import Environment

NEVER_SECONDS = 3_600.0


def silent(*_: object) -> NullNotifier:
    return NullNotifier()


async def serve(engine: hf.Engine, number: int) -> int:
    """Start an instance by a row, and serve its activity by rows."""
    calls = engine._calls
    reports = ActivityReports(calls)
    asked = InsertRequest(request_id=f"r{number}", workflow="trains", instance_id=f"i{number}", input="[7]")
    assert (await submit_request(calls, asked, PATIENCE_SECONDS)).state == "ACCEPTED"
    manual = InsertRequest(request_id=f"m{number}", workflow="trains", manual=True)
    assert (await submit_request(calls, manual, PATIENCE_SECONDS)).state == "TRACE"
    while not (offered := await reports.open_activities(limit=9)):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    exec_id = offered[0].activity_exec_id
    for sequence, kind in enumerate((ReportKind.QUEUED, ReportKind.RUNNING, ReportKind.HEARTBEAT), start=1):
        answer = await reports.report(exec_id, kind, claim="c", sequence=sequence, seconds=PATIENCE_SECONDS)
        assert answer.is_applied
    done = await reports.complete(exec_id, claim="c", payload=str(number), seconds=PATIENCE_SECONDS)
    assert done.is_applied
    late = await reports.complete(exec_id, claim="c", payload="-1", seconds=PATIENCE_SECONDS)
    assert late.is_refused
    result: int = await engine.get(f"i{number}").result()
    return result


def test_C2_rows_that_are_inserted_and_handled_twice_change_nothing(tmp_path: Path) -> None:
    async def scenario() -> list[int]:
        async with Environment(tmp_path / "twice.db", workflows=[trains], activities=[train]) as env:
            env.duplicate()
            return [await serve(env, number) for number in (1, 2)]

    assert asyncio.run(scenario()) == [1, 2]
    assert audit(tmp_path / "twice.db") == []


def test_C2_a_row_of_its_own_process_wakes_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract_rows, "POLL_SECONDS", NEVER_SECONDS)

    async def scenario() -> int:
        platform = Platform(make_notifier=silent)  # nothing else wakes the worker
        engine = hf.Engine(tmp_path / "woken.db", workflows=[trains], activities=[train], _platform=platform)
        async with engine:
            return await serve(engine, 3)

    assert asyncio.run(scenario()) == 3
