"""A store with external attempts in every phase and rows of clients, made by real runs, for tests that damage it."""

import asyncio
from pathlib import Path

import holdfast as hf
from holdfast.client.activity_reports import ActivityReports
from holdfast.client.requests import insert_row, submit_request
from holdfast.core.activity_events import ReportKind, ReportState
from holdfast.storage.members.contract_rows import InsertRequest

PATIENCE_SECONDS = 30.0


@hf.activity(external=True, heartbeat=3_600, queue="gpu")
async def train(number: int) -> int: ...  # type: ignore[empty-body]


@hf.workflow
async def trains(number: int) -> int:
    return await train(number)


PHASES = ("ready", "queued", "preparing", "running", "stopping", "released", "done", "retried")
"""The ids of the instances, by the phase of their attempt."""
REPORTS: dict[str, tuple[ReportKind, ...]] = {
    "ready": (),
    "queued": (ReportKind.QUEUED,),
    "preparing": (ReportKind.QUEUED, ReportKind.PREPARING),
    "running": (ReportKind.RUNNING, ReportKind.HEARTBEAT),
    "stopping": (ReportKind.RUNNING, ReportKind.CANCEL),
    "released": (ReportKind.QUEUED, ReportKind.RELEASE),
    "done": (ReportKind.RUNNING, ReportKind.COMPLETED),
    "retried": (ReportKind.RUNNING, ReportKind.FAILED),
}


async def make_contract_store(store: str | Path) -> None:
    """Instances of all phases, started by requests; one request is refused, and one report waits for RUNNING."""
    async with hf.Engine(store, workflows=[trains], activities=[train]) as engine:
        calls = engine._calls
        reports = ActivityReports(calls, source="test")
        for phase in PHASES:
            asked = InsertRequest(request_id=f"r-{phase}", workflow="trains", instance_id=phase, input="[7]")
            assert (await submit_request(calls, asked, PATIENCE_SECONDS)).state == "ACCEPTED"
        refused = InsertRequest(request_id="r-refused", workflow="trains", input='["x"]')
        assert (await submit_request(calls, refused, PATIENCE_SECONDS)).state == "REFUSED"
        await insert_row(calls, InsertRequest(request_id="r-unserved", workflow="nobody has it"))
        while len(offered := await reports.open_activities(limit=99)) < len(PHASES):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for activity in offered:
            phase = activity.workflow_exec_id
            for kind in REPORTS[phase]:
                payload = "7" if kind is ReportKind.COMPLETED else None
                answer = await reports.report(
                    activity.activity_exec_id, kind, claim=f"claim {phase}", payload=payload, seconds=PATIENCE_SECONDS
                )
                assert answer.is_applied, (phase, kind, answer)
            if phase == "queued":
                early = await reports.complete(
                    activity.activity_exec_id, claim="claim queued", payload="8", seconds=PATIENCE_SECONDS
                )
                assert early.state is ReportState.WAITING
        assert await engine.get("done").result() == 7
