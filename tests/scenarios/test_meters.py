"""Counts through the metrics API of OpenTelemetry: the same as those for Prometheus (M6)."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.scenarios.support import engine_of, together
from tests.support.spans import Traces

import holdfast as hf
from holdfast.client.metrics import observe
from holdfast.errors import UsageError

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "metrics.md"
OF_THE_STORE = {
    "holdfast_instances_open",
    "holdfast_instances_blocked",
    "holdfast_queue_depth",
    "holdfast_queue_oldest_seconds",
}


@hf.activity(retry=hf.Retry(attempts=2, initial=0.001, jitter=False))
async def flaky(number: int) -> int:
    if hf.activity_info().attempt == 1 and number % 2:
        raise ConnectionError("not yet")
    return number


@hf.workflow
async def adds(number: int) -> int:
    return sum([await flaky(each) for each in range(number)])


@hf.workflow
async def fails() -> None:
    raise ValueError("as it should be")


def points_of(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    data: Any = reader.get_metrics_data()
    metrics = [metric for each in data.resource_metrics for scope in each.scope_metrics for metric in scope.metrics]
    return {metric.name: list(metric.data.data_points) for metric in metrics}


def test_M6_the_instruments_show_what_prometheus_shows(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])

    async def scenario() -> dict[str, list[Any]]:
        async with engine_of(tmp_path / "shop.db", adds, fails, flaky, metrics=provider, cache_size=0) as engine:
            counted = observe(engine)
            assert await engine.run(adds, 4) == 6
            with pytest.raises(hf.WorkflowFailed):
                await engine.run(fails)
            points = points_of(reader)
            found = Counter({tuple(p.attributes.values()): p.value for p in points["holdfast_activity_attempts"]})
            expected = {(name, state): n for name, c in counted.activities.items() for state, n in c.ended().items()}
            assert found == expected == {("flaky", "COMPLETED"): 4, ("flaky", "FAILED"): 2}
            assert points["holdfast_commit_members"][0].count == sum(counted.commit_members.counts)
            assert points["holdfast_turn_seconds"][0].count == sum(counted.turn_seconds.counts)
            [ran] = points["holdfast_activity_seconds"]
            assert list(ran.bucket_counts) == counted.activities["flaky"].seconds.counts
            [waited] = points["holdfast_activity_wait_seconds"]
            assert waited.count == sum(counted.activities["flaky"].wait_seconds().counts)
            return points

    points = together(scenario())
    closed = {tuple(p.attributes.values()): p.value for p in points["holdfast_instances_closed"]}
    assert closed == {("adds", "COMPLETED"): 1, ("fails", "FAILED"): 1}
    assert {p.attributes["workflow"]: p.value for p in points["holdfast_instances_started"]} == {"adds": 1, "fails": 1}
    assert points["holdfast_replay_seconds"][0].count > 0
    assert {p.attributes["state"] for p in points["holdfast_worker_slots"]} == {"free", "taken"}
    assert points["holdfast_worker_lease_seconds"][0].value > 0
    named = re.findall(r"^\| `(holdfast_\w+)` ", PAGE.read_text("utf-8"), re.MULTILINE)
    assert set(points) == {name.removesuffix("_total") for name in named} - OF_THE_STORE


def test_M6_the_option_names_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="MeterProvider, not 'yes'"):
        engine_of(tmp_path / "shop.db", adds, metrics="yes")


def test_M6_metrics_and_traces_are_observed_together(tmp_path: Path) -> None:
    traces, reader = Traces(), InMemoryMetricReader()

    async def scenario() -> None:
        provider = MeterProvider(metric_readers=[reader])
        async with engine_of(tmp_path / "shop.db", adds, flaky, metrics=provider, tracing=traces.provider) as engine:
            assert await engine.run(adds, 2) == 1

    together(scenario())
    assert traces.names == {"start adds": 1, "run adds": 1, "flaky": 3}
    assert sum(p.value for p in points_of(reader)["holdfast_activity_attempts"]) == 3
