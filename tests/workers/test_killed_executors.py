"""kill -9 of workers that handle rows, and of executors in each state: every row is handled exactly once (C2, C4)."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest
from tests.scenarios.support import together
from tests.workers.processes import ROOT, Process, worker
from tests.workers.support import attempts, sound, told

import holdfast as hf
from holdfast.client.activity_reports import ActivityReports
from holdfast.client.requests import insert_row
from holdfast.core.activity_events import ReportKind
from holdfast.storage.members.contract_rows import InsertReport, InsertRequest

APP = "tests.workers.external_app"
INSTANCES = 10
VALUES = 30
KILLS = 8


def test_C2_killed_workers_handle_every_row_exactly_once(store: str) -> None:
    async def scenario() -> None:
        async with await hf.connect(store) as client:
            with worker(store, app=APP):
                reports = ActivityReports(client._calls)
            names = [f"it{number}" for number in range(INSTANCES)]
            process = Process(store, "worker", APP)
            try:
                for name in names:
                    await insert_row(
                        client._calls, InsertRequest(request_id=name, workflow="compare", input=f"[{VALUES}]")
                    )
                found: dict[str, str] = {}
                while len(found) < INSTANCES:
                    opened = await reports.open_activities(limit=100)
                    found = {one.workflow_exec_id: one.activity_exec_id for one in opened}
                    await asyncio.sleep(0.05)
                for kill in range(KILLS):
                    first, last = VALUES * kill // KILLS, VALUES * (kill + 1) // KILLS
                    rows = [
                        report(name, found[name], sequence, None if sequence == 1 else str(sequence - 2))
                        for sequence in range(first + 1, last + 1)
                        for name in names
                    ]
                    await asyncio.gather(*(insert_row(client._calls, row) for row in rows))
                    await asyncio.sleep(0.03 * kill)
                    await asyncio.to_thread(process.end)
                    process = Process(store, "worker", APP)
                for name in names:
                    await insert_row(client._calls, report(name, found[name], VALUES + 1, None))
                for name in names:
                    assert await client.get(name).result(timeout=60) == list(range(VALUES - 1))
                states: Counter[str] = Counter()
                for name in names:
                    for sequence in range(1, VALUES + 2):
                        answer = await reports.store.read_report(f"{name}/{sequence}")
                        states[answer.state if answer else "missing"] += 1
                assert states == {"APPLIED": INSTANCES * (VALUES + 1)}
            finally:
                process.end()

    together(scenario(), 120)
    sound(store)


def report(name: str, exec_id: str, sequence: int, payload: str | None) -> InsertReport:
    """RUNNING first, COMPLETED last, and responses between them."""
    kind = ReportKind.RUNNING if sequence == 1 else ReportKind.RESPONSE
    return InsertReport(
        event_id=f"{name}/{sequence}",
        activity_exec_id=exec_id,
        transition=kind if sequence <= VALUES else ReportKind.COMPLETED,
        claim="c",
        sequence=sequence,
        payload=payload,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workflow", "reported", "after"),
    [
        ("reserve", ["QUEUED"], [("READY", 899)]),
        ("reserve", ["QUEUED", "PREPARING"], [("READY", 899)]),
        ("learn", ["RUNNING"], [("TIMED_OUT", 889), ("READY", 999)]),
        ("learn", ["RUNNING", "HEARTBEAT", "CANCEL"], [("CANCELLED", 889)]),
    ],
    ids=["queued", "preparing", "running", "cancelled"],
)
def test_C4_the_attempt_of_a_killed_executor_goes_on_by_its_deadlines(
    store: str, workflow: str, reported: list[str], after: list[tuple[str, int]]
) -> None:
    async def scenario() -> None:
        async with await hf.connect(store) as client:
            with worker(store, app=APP):
                await client.start(workflow, 1, id="it")
                killed = await asyncio.to_thread(
                    subprocess.run,
                    [sys.executable, "-m", "tests.workers.dying_executor", store, *reported],
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    capture_output=True,
                    check=False,
                    timeout=60,
                )
                assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()

                async def has_gone_on() -> bool:
                    return [(each.state, each.ledger // 10**12) for each in await attempts(client, "it")] == after

                await told(has_gone_on)

    together(scenario(), 60)
    sound(store)
