"""Workflows of the open contract and a program that runs them (`tests.crash.program`): rows start them and serve them.

The executor has a script for each offer. Its rows have fixed ids, so that an executor which was killed sends the same
rows again.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.crash.program import KillAt, run_program

import holdfast as hf
from holdfast import compose
from holdfast.client.activity_reports import ActivityReports, error_text
from holdfast.client.requests import insert_row, wait_for_request
from holdfast.core.activity_events import ReportKind
from holdfast.core.lifecycle import AttemptState
from holdfast.runtime.platform import Platform
from holdfast.storage.members.contract_rows import InsertRequest
from holdfast.storage.relational.raw_tables import RawOffer

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.02
QUICKLY = hf.Retry(attempts=50, initial=0.01, maximum=0.01)
_K = ReportKind

# mypy: disable-error-code="empty-body"


@hf.activity(external=True, start_to_close=600)
async def staged(number: int) -> int: ...


@hf.activity(external=True, start_to_close=600)
def streamed(number: int) -> AsyncIterator[int]: ...


@hf.activity(external=True, start_to_close=600)
async def early(number: int) -> int: ...


@hf.activity(external=True, start_to_close=600, retry=QUICKLY)
async def retried(number: int) -> int: ...


@hf.activity(external=True, start_to_close=600)
async def released(number: int) -> int: ...


@hf.activity(external=True, start_to_close=600)
async def cancelled(number: int) -> int: ...


@hf.activity(external=True, start_to_close=600)
async def stopped(number: int) -> int: ...


@hf.activity(external=True, heartbeat=0.2, retry=QUICKLY)
async def expired(number: int) -> int: ...


@hf.activity(external=True, start_to_close=600, max_claims=2)
async def dead(number: int) -> int: ...


@hf.activity(external=True, start_to_close=600, claim_timeout=0.1, max_claims=2)
async def silent(number: int) -> int: ...


@hf.activity(external=True, queue="fleet", heartbeat=0.5, retry=QUICKLY)
async def launched(number: int) -> int: ...


@hf.activity(external=True, queue="fleet", heartbeat=0.5, retry=QUICKLY)
async def launched_again(number: int) -> int: ...


EXTERNAL: list[hf.Activity[..., Any]] = [
    *(staged, streamed, early, retried, released, cancelled, stopped, expired, dead, silent, launched, launched_again)
]
COMPLETE = (_K.RUNNING, _K.COMPLETED)
SCRIPT: dict[str, Callable[[RawOffer], tuple[ReportKind, ...]]] = {
    "staged": lambda _: (_K.QUEUED, _K.PREPARING, _K.RUNNING, _K.HEARTBEAT, _K.NOTE, _K.COMPLETED),
    "streamed": lambda _: (_K.RUNNING, _K.RESPONSE, _K.RESPONSE, _K.RESPONSE, _K.COMPLETED),
    "early": lambda _: (_K.QUEUED, _K.COMPLETED, _K.RUNNING),
    "retried": lambda offer: (_K.RUNNING, _K.FAILED) if offer.attempt == 1 else COMPLETE,
    "released": lambda offer: (_K.QUEUED, _K.RELEASE, _K.COMPLETED) if offer.entry == 1 else COMPLETE,
    "cancelled": lambda _: (_K.QUEUED, _K.CANCEL),
    "stopped": lambda _: (_K.RUNNING, _K.CANCEL, _K.HEARTBEAT, _K.STOPPED),
    "expired": lambda offer: (_K.RUNNING,) if offer.attempt == 1 else COMPLETE,
    "dead": lambda _: (_K.QUEUED, _K.RELEASE),
    "silent": lambda _: (_K.QUEUED,),
}
"""The reports of the executor about each offer."""


async def ended(call: Any) -> object:
    try:
        return await call
    except (hf.ActivityCancelled, hf.ClaimsExhausted) as error:
        return type(error).__name__


@hf.workflow(name="results")
async def results(number: int) -> list[object]:
    values = [value async for value in streamed(number)]
    return [await staged(number), values, await early(number), await hf.event("go", int)]


@hf.workflow(name="endings")
async def endings(number: int) -> list[object]:
    calls = (retried, released, cancelled, stopped)
    return [await ended(call(number)) for call in calls]


@hf.workflow(name="expiry")
async def expiry(number: int) -> list[object]:
    return [await ended(expired(number))]


@hf.workflow(name="dead letters")
async def dead_letters(number: int) -> list[object]:
    return [await ended(dead(number))]


@hf.workflow(name="claim time-outs")
async def claim_timeouts(number: int) -> list[object]:
    return [await ended(silent(number))]


@hf.workflow(name="launches")
async def launches(number: int) -> list[object]:
    return [await launched(number), await launched_again(number)]


GRAPH = hf.Flow.parse(
    """
flow: graph
activities:
  start:  {trigger: true}
  quotes: {run: streamed, input: [start.input.number], after: start}
  price:  {run: early, input: [item], each: quotes.responses, after: quotes}
  go:     {wait: {event: go}, after: price}
output: [quotes.output, price.output, go.output]
"""
)
"""External activities as nodes: items start while the executor still sends responses (K10)."""
EXPECTED: dict[str, list[object]] = {
    "results": [70, [71, 72, 73], 70, 8],
    "graph": [[71, 72, 73], [70, 70, 70], 8],
    "endings": [70, 70, "ActivityCancelled", "ActivityCancelled"],
    "expiry": [70],
    "dead letters": ["ClaimsExhausted"],
    "claim time-outs": ["ClaimsExhausted"],
    "launches": [70, 70],
}


class RowLauncher:
    """Launches programs that insert their rows at once. The first launch of one activity fails."""

    def __init__(self) -> None:
        self.reports: asyncio.Future[ActivityReports] = asyncio.get_running_loop().create_future()

    async def launch(self, task: hf.LaunchTask) -> None:
        reports = await self.reports
        if task.activity_name == "launched_again" and task.attempt == 1:
            raise OSError("no machine is free")
        await asyncio.gather(
            *(
                reports.insert(task.activity_exec_id, kind, claim=task.claim, payload="70", sequence=number)
                for number, kind in enumerate(COMPLETE, start=1)
            )
        )


def payload_of(offer: RawOffer, kind: ReportKind, number: int) -> str | None:
    if kind is _K.RESPONSE:
        return str(70 + number)
    return "70" if kind is _K.COMPLETED and offer.name != "streamed" else json.dumps(None)


async def may_begin(reports: ActivityReports, exec_id: str) -> bool:
    """Whether an offer can be claimed, or was claimed by an executor that was killed. A retry is available later."""
    found = await reports.find(exec_id)
    if found is None or found.state is not AttemptState.READY or not found.is_current:
        return True
    return any(exec_id == each.activity_exec_id for each in await reports.open_activities(limit=99))


async def serve(store: str, reports: ActivityReports) -> None:
    """Serve every offer by its script, from the beginning, until cancelled."""
    served: set[str] = set()
    while True:
        tables = compose.open_tables(store)
        try:
            offers = [offer for offer in tables.offers() if isinstance(offer, RawOffer)]
        finally:
            tables.close()
        for offer in offers:
            if offer.name not in SCRIPT or offer.exec_id in served or not await may_begin(reports, offer.exec_id):
                continue
            served.add(offer.exec_id)
            for number, kind in enumerate(SCRIPT[offer.name](offer)):
                event_id = await reports.insert(
                    offer.exec_id,
                    kind,
                    claim="executor",
                    payload=payload_of(offer, kind, number),
                    error=error_text("not yet") if kind is _K.FAILED else None,
                    event_id=f"{offer.exec_id}-{number}",
                )
                await reports.answer(event_id, PATIENCE_SECONDS)
        await asyncio.sleep(PAUSE_SECONDS)


async def finish(store: str, workflow: str, hook: KillAt | None) -> object:
    """Start the workflow by a row and serve its activities, or continue where an earlier process was killed."""
    launcher = RowLauncher()
    engine = hf.Engine(
        store,
        workflows=[results, endings, expiry, dead_letters, claim_timeouts, launches],
        activities=EXTERNAL,
        flows=[GRAPH],
        launchers={"fleet": launcher},
        _platform=Platform(fault_hook=hook),
    )
    async with engine:
        calls = engine._calls
        reports = ActivityReports(calls)
        launcher.reports.set_result(reports)
        serving = asyncio.create_task(serve(store, reports))
        await insert_row(
            calls, InsertRequest(request_id="start", workflow=workflow, instance_id="it", input='{"number": 7}')
        )
        await insert_row(calls, InsertRequest(request_id="start", workflow="ignored"))
        go = InsertRequest(request_id="go", kind="event", instance_id="it", event_name="go", input="8")
        await insert_row(calls, go)
        await wait_for_request(calls, "start", PATIENCE_SECONDS)
        result = await engine.get("it").result()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        return result


def main() -> None:
    run_program(finish)
