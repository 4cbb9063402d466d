"""The page about metrics names every metric with its labels, and no other."""

import re
from pathlib import Path

from holdfast.cli.metrics import StoreValues, families
from holdfast.client.metrics import WorkerGauges
from holdfast.core.lifecycle import InstanceState
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.storage.records import OpenCount, QueueRow

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "metrics.md").read_text(encoding="utf-8")
GAUGES = WorkerGauges(
    key=None, cache_size=0, slots_free=1, slots_taken=0, lease_seconds=0.0, is_beating=True, is_leaving=False
)


def served() -> dict[str, set[str]]:
    """Every metric with the names of its labels, of a worker that has seen everything once."""
    metrics = WorkerMetrics(lambda: 0.0, lambda: 0)
    metrics.instances_started["w"] += 1
    metrics.instances_closed["w", "FAILED"] += 1
    metrics.activities["a"].completed += 1
    counts = [OpenCount(workflow="w", state=InstanceState.BLOCKED, instances=1)]
    values = StoreValues(counts, [QueueRow(queue="q", ready=1, later=0, running=0, oldest_at_ms=0)], 1)
    found: dict[str, set[str]] = {}
    for family in families(metrics, GAUGES, values):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
    return found


def test_M3_the_page_names_every_metric_and_its_labels() -> None:
    rows = re.findall(r"^\| `(holdfast_\w+)` \| (.*?) ?\| ", PAGE, re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows} == served()


def test_M3_the_alerts_name_metrics_that_exist() -> None:
    histograms = {f"{name}{end}" for name in served() for end in ("", "_count", "_sum", "_bucket")}
    assert set(re.findall(r"holdfast_\w+", PAGE)) <= histograms
