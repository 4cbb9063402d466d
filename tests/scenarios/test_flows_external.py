"""External activities as nodes of flows (C4, K10): their result, their responses, and items for each response."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.scenarios.flow_stage import CACHES, Stage, played, staged

import holdfast as hf
from holdfast.client.activity_reports import ActivityReports, OpenActivity, error_text
from holdfast.core.activity_events import ReportKind

EXTERNAL = """
activities:
  start:  {trigger: true}
  quotes: {run: ask, input: ["'hats'"], after: start}
  price:  {run: held, input: {name: item, value: index}, each: quotes.responses, after: quotes}
  train:  {run: train, input: [quotes.output], after: [quotes, price], hold: true}
output: [quotes.output, price.output, train.output]
"""
"""Its key: price, quotes, start, train."""


@hf.activity(name="ask", external=True, queue="gpu", heartbeat=30, retry=hf.Retry(attempts=1))
async def ask(what: str) -> AsyncIterator[str]: ...  # type: ignore[empty-body]


@hf.activity(name="train", external=True, queue="gpu", start_to_close=60)
async def train(names: list[str]) -> int: ...  # type: ignore[empty-body]


def reports_of(stage: Stage) -> ActivityReports:
    return ActivityReports(stage.engine._calls, source="a test")


async def offered(reports: ActivityReports, name: str) -> OpenActivity:
    for _ in range(1_000):
        if found := await reports.open_activities(limit=10, names=[name]):
            return found[0]
        await asyncio.sleep(0.01)
    raise AssertionError(f"{name} was never offered")


async def say(reports: ActivityReports, task: OpenActivity, kind: ReportKind, payload: object = None) -> None:
    text = None if payload is None else msgspec.json.encode(payload).decode()
    answer = await reports.report(task.activity_exec_id, kind, payload=text, seconds=10)
    assert answer.is_applied, answer


@CACHES
@played
async def test_K10_the_responses_of_an_external_activity_are_items_as_they_arrive(cache_size: int) -> None:
    async with staged(EXTERNAL, ask, train, cache_size=cache_size) as stage:
        handle = await stage.start("f", {})
        reports = reports_of(stage)
        task = await offered(reports, "ask")
        assert task.responses == 0
        await say(reports, task, ReportKind.RUNNING)
        await say(reports, task, ReportKind.RESPONSE, "q0")
        await stage.troupe.began("q0")
        await stage.until_key("8869")
        stage.troupe.gate("q0").set()
        await say(reports, task, ReportKind.RESPONSE, "q1")
        await stage.troupe.began("q1")
        stage.troupe.gate("q1").set()
        await say(reports, task, ReportKind.COMPLETED)
        task = await offered(reports, "train")
        assert msgspec.json.decode(task.input) == [["q0", "q1"]]
        await say(reports, task, ReportKind.RUNNING)
        await say(reports, task, ReportKind.COMPLETED, 7)
        await stage.until_key("6665")
        stage.check()
        await handle.release("train")
        assert await handle.result() == [["q0", "q1"], [0, 1], 7]
        await stage.until_key("6664")


@CACHES
@played
async def test_K10_an_external_stream_that_fails_fails_its_consumer(cache_size: int) -> None:
    async with staged(EXTERNAL, ask, train, cache_size=cache_size) as stage:
        handle = await stage.start("f", {})
        reports = reports_of(stage)
        task = await offered(reports, "ask")
        await say(reports, task, ReportKind.RUNNING)
        await say(reports, task, ReportKind.RESPONSE, "q0")
        await stage.troupe.began("q0")
        await reports.fail(task.activity_exec_id, claim=None, error=error_text("no more"), seconds=10)
        with pytest.raises(hf.WorkflowFailed, match="no more"):
            await handle.result()
        await stage.until_key("7763")
