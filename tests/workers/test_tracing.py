"""``holdfast worker --otel``: one trace over real processes, one of which is killed (M4, M5)."""

import asyncio
import json
from typing import Any

from tests.support.spans import Traces
from tests.workers.processes import LONGEST_SECONDS, Process, await_note, open_gate

import holdfast as hf
from holdfast.audit.auditor import audit

APP = "tests.workers.tracing_app"
CONSOLE = {
    "OTEL_TRACES_EXPORTER": "console",
    "OTEL_METRICS_EXPORTER": "console",
    "OTEL_BSP_SCHEDULE_DELAY": "20",
}


def objects_in(text: str) -> list[dict[str, Any]]:
    """The spans and metrics that the console exporters have written."""
    decoder, found, at = json.JSONDecoder(), list[dict[str, Any]](), 0
    while (at := text.find("{", at)) >= 0:
        written, at = decoder.raw_decode(text, at)
        found.append(written)
    return found


def test_M5_one_trace_over_a_client_a_killed_worker_and_its_successor(store: str) -> None:
    traces = Traces()
    client_spans = traces.provider

    async def begin() -> None:
        async with hf.connect(store, tracing=client_spans) as client:
            await client.start("order", 1, id="it")

    async def finish() -> None:
        async with hf.connect(store) as client:
            assert await client.get("it").result(timeout=LONGEST_SECONDS) == 0

    asyncio.run(begin())
    with Process(store, "worker", APP, "--otel", env=CONSOLE) as first:
        await_note(store, "began", "hang", 1)
        first.kill()
    with Process(store, "worker", APP, "--otel", env=CONSOLE) as second:
        await_note(store, "began", "hang", 2)
        open_gate(store, "hang 2")
        asyncio.run(finish())
        written = second.stopped()
    objects = objects_in(written)
    spans = [each for each in objects if "context" in each]
    assert "holdfast_instances_closed" in json.dumps([each for each in objects if "resource_metrics" in each])
    start = traces.only("start order")
    assert {span["context"]["trace_id"] for span in spans} == {f"0x{start.trace:032x}"}
    runs = [span for span in spans if span["name"] == "run order"]
    assert [run["attributes"]["holdfast.execution"] for run in runs] == [1, 2]
    assert {run["parent_id"] for run in runs} == {f"0x{start.id:016x}"}
    assert [span["name"] for span in spans if span["parent_id"] == runs[0]["context"]["span_id"]].count("gated") == 2
    [child] = [span for span in spans if span["name"] == "run child"]
    assert child["parent_id"] == runs[1]["context"]["span_id"]
    assert len({span["context"]["span_id"] for span in spans}) == len(spans)
    assert audit(store) == []
