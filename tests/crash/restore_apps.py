"""A store with work of every kind in it, and a program that restores it (`tests.crash.program`)."""

import asyncio
from typing import Any

from tests.crash.program import KillAt, ran, run_program

import holdfast as hf
from holdfast.client import restoring
from holdfast.client.activity_reports import ActivityReports
from holdfast.client.client import calls_of
from holdfast.compose import restorable
from holdfast.core.activity_events import ReportKind
from holdfast.runtime.committer import Committer
from holdfast.testing.simulation.simulation import kill_engine

# mypy: disable-error-code="empty-body"

INSTANCES = 7
SECONDS = 30.0
STALE = "claim of the lost time"
RESULT = 70


@hf.activity(max_losses=1, name="step")
async def step(number: int) -> int:
    ran(f"step {number}")
    return number + 1


@hf.activity(max_losses=1, name="step")
async def hanging(number: int) -> int:
    ran(f"hangs {number}")
    await asyncio.Event().wait()
    return number


@hf.activity(external=True, start_to_close=600)
async def outside(number: int) -> int: ...


@hf.workflow(name="local")
async def local(number: int) -> int:
    return await step(number)


@hf.workflow(name="remote")
async def remote(number: int) -> int:
    return await outside(number)


def engine_at(store: str, body: Any = step) -> hf.Engine:
    return hf.Engine(store, workflows=[local, remote], activities=[body, outside])


async def prepare(store: str) -> dict[str, str]:
    """Leave a store as a backup of a busy system has it. Returns the exec ids of the external attempts by instance."""
    engine = engine_at(store, hanging)
    await engine.__aenter__()
    for number in range(INSTANCES):
        await engine.start(local, number, id=f"local-{number}")
    reports = ActivityReports(calls_of(engine))
    for name in ("ready", "queued", "running", "reported"):
        await engine.start(remote, 1, id=name)
    found: dict[str, str] = {}
    while len(found) < 4:
        found = {each.workflow_exec_id: each.activity_exec_id for each in await reports.open_activities(limit=9)}
        await asyncio.sleep(0.01)
    for name, kind in (("queued", "QUEUED"), ("running", "RUNNING"), ("reported", "RUNNING")):
        answer = await reports.report(found[name], ReportKind(kind), claim=STALE, seconds=SECONDS)
        assert answer.is_applied, answer
    await kill_engine(engine)
    async with hf.connect(store) as client:
        late = ActivityReports(calls_of(client))
        await late.insert(found["reported"], ReportKind.COMPLETED, claim=STALE, payload=str(RESULT), event_id="late")
    return found


async def complete(store: str) -> dict[str, object]:
    """Run everything to its end, with an executor for what is offered. Returns the results by instance."""
    async with engine_at(store) as engine:
        reports = ActivityReports(calls_of(engine))
        names = ["ready", "queued", "running", "reported", *(f"local-{number}" for number in range(INSTANCES))]
        waiting = asyncio.gather(*(engine.get(name).result(timeout=SECONDS) for name in names))
        while not waiting.done():
            for offer in await reports.open_activities(limit=9):
                for kind, payload in ((ReportKind.RUNNING, None), (ReportKind.COMPLETED, str(RESULT + 1))):
                    await reports.report(offer.activity_exec_id, kind, claim="new", payload=payload, seconds=SECONDS)
            await asyncio.sleep(0.01)
        return dict(zip(names, await waiting, strict=True))


async def finish(store: str, name: str, hook: KillAt | None) -> object:
    """Restore the store in small batches, each of which is a commit."""
    del name
    restoring.BATCH = 3  # type: ignore[misc]
    async with hf.connect(store) as client:
        calls = calls_of(client)
        committer = Committer(calls.session, fault_hook=hook)
        report = await restoring.restore(restorable(calls.store), committer, force=True)
        return report.instances, report.external_attempts


def main() -> None:
    run_program(finish)
