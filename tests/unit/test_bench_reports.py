"""The reports of published measurements: ratios and losses, the plan, drawings, and the markers of pages."""

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from benchmarks import recorded, scale
from benchmarks.chart import RatioRow, line_chart, ratio_chart
from benchmarks.peers import table
from benchmarks.peers.environments import CONTENDERS, ENVIRONMENTS

ROOT = Path(__file__).parents[2]


def cell(*values: float, name: str = "steps_per_s", problem: str = "", **more: float) -> table.Cell:
    return {"samples": [{name: value, **more} for value in values], "problem": problem}


CELLS: table.Cells = {
    "Holdfast, SQLite": {
        "B1": cell(1000, 400, 900),
        "B2": cell(2.0, name="p50_ms"),
        "B5": cell(50, name="events_per_s"),
    },
    "DBOS, SQLite": {
        "B1": cell(100, 10, 90),
        "B2": cell(1.0, name="p50_ms"),
        "B5": cell(9, name="events_per_s", failed=3, count=200),
    },
    "Restate": {"B1": cell(problem="not done in 150 s")},
}
REPORT: dict[str, Any] = {
    "taken": "2030-01-31",
    "seconds": 60,
    "scale": 1.0,
    "machine": {"processor": "p", "cores": "2", "memory": "1 GB", "system": "s", "load at the start": "0.1"},
    "versions": {"Holdfast": "1"},
    "packages": ["dbos==1"],
    "skipped": ["absurd was not measured"],
    "cells": CELLS,
}


def test_ratios_are_those_of_one_round_and_above_one_means_faster() -> None:
    throughput, latency = table.COLUMNS[0], table.COLUMNS[1]
    assert table.ratios(CELLS, "Holdfast, SQLite", "DBOS, SQLite", throughput) == [10.0, 40.0, 10.0]
    assert table.ratios(CELLS, "Holdfast, SQLite", "DBOS, SQLite", latency) == [0.5]


def test_workflows_that_fail_give_no_ratio_and_are_shown() -> None:
    events = table.BY_WORKLOAD["B5"]
    assert table.ratios(CELLS, "Holdfast, SQLite", "DBOS, SQLite", events) == []
    assert table.shown_cell("B5", CELLS["DBOS, SQLite"]["B5"]) == "3 of 200 fail"
    assert table.shown_cell("B1", CELLS["Restate"]["B1"]) == "not done in 150 s"
    assert table.shown_cell("B1", CELLS["DBOS, SQLite"]["B1"]) == "90 (10..100)"


def test_the_report_names_the_losses_and_what_was_not_measured() -> None:
    text = table.markdown(REPORT)
    assert "Losses: Holdfast is slower in B2 Holdfast, SQLite against DBOS, SQLite (0.5)." in text
    assert "absurd was not measured" in text
    assert "| Holdfast, SQLite over DBOS, SQLite | 10 (10..40) | 0.5 | - |" in text
    assert table.losses({}) == "Losses: in none of these comparisons is Holdfast slower."


def test_every_engine_has_a_module_and_pinned_packages() -> None:
    for contender in CONTENDERS:
        assert (ROOT / "benchmarks" / "peers" / "engines" / f"{contender.engine}.py").exists()
        assert contender.engine == "holdfast" or contender.engine in ENVIRONMENTS
    assert all("@" in package[1:] for found in ENVIRONMENTS.values() for package in found.node)
    assert all("==" in package for found in ENVIRONMENTS.values() for package in found.python)


def test_the_code_that_runs_beside_other_engines_needs_nothing_of_holdfast() -> None:
    program = "import sys, benchmarks.peers.sample; sys.exit(any(name.startswith('holdfast') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["B1", "B2", "B3", "B4", "B5", "B6", "B7"])
def test_a_small_sample_of_holdfast_as_one_of_the_engines(tmp_path: Path, workload: str) -> None:
    words = ["holdfast", workload, str(tmp_path / "it.db"), str(tmp_path), "0.05"]
    command = [sys.executable, "-m", "benchmarks.peers.sample", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert '"failed": 0' in done.stdout or workload not in ("B5", "B6")
    assert '"steps_missing": 0' in done.stdout or workload != "B7"


def test_the_plan_follows_from_the_cost_of_a_step() -> None:
    cost = scale.Cost(step_us=100, worker_us=50, stored_bytes=1_000, wal_bytes=2_000)
    found = scale.plan(scale.Load(100_000, cores=10, wal_mb_per_s=400, use=0.5, days=2), cost)
    assert found.database_cores == pytest.approx(10)
    assert found.by_processor == pytest.approx(50_000)
    assert found.by_disk == pytest.approx(200_000)
    assert (found.databases, found.workers, found.connections) == (2, 10, 60)
    assert found.wal_mb_per_s == pytest.approx(200)
    assert (found.stored_gb_per_day, found.stored_gb) == pytest.approx((8_640, 17_280))
    slow_disk = scale.plan(scale.Load(100_000, cores=10, wal_mb_per_s=20, use=0.5), cost)
    assert slow_disk.databases == 10


@pytest.mark.parametrize("words", [[], ["--step-us", "75", "--cores", "64"]])
def test_the_calculation_can_be_run_again(words: list[str]) -> None:
    command = [sys.executable, "-m", "benchmarks.scale", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "worker processes" in done.stdout
    assert ("x 75 us" in done.stdout) == bool(words)


@pytest.mark.parametrize("words", [["--step-us", "0"], ["--use", "1.5"], ["--cores", "0"], ["--days", "inf"]])
def test_nonsense_is_refused(words: list[str]) -> None:
    command = [sys.executable, "-m", "benchmarks.scale", *words]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=60).returncode != 0


def test_drawings_are_svg_with_every_line_and_point() -> None:
    lines = {"one & two": [(1.0, 5.0), (10.0, 7.0), (100.0, 0.0)], "three": [(1.0, 1.0)]}
    drawn = ET.fromstring(line_chart("a < b", "x", "y", lines, is_log_x=True))  # noqa: S314 - our own text
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}polyline"))) == 2
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}circle"))) == 4
    ratios = ratio_chart("c", [RatioRow("slower", 0.5, 0.4, 2.0), RatioRow("faster", 300.0, 90.0, 400.0)])
    bars = [each.attrib for each in ET.fromstring(ratios).iter("{http://www.w3.org/2000/svg}rect")][1:]  # noqa: S314
    assert [bar["fill"] for bar in bars] == ["#b3402e", "#2e7d5b"]
    assert float(bars[0]["x"]) + float(bars[0]["width"]) == pytest.approx(float(bars[1]["x"]), abs=0.2)


def test_text_between_the_markers_of_a_page_is_replaced() -> None:
    page = "a\n<!-- peers -->\nold\n<!-- /peers -->\nb\n"
    assert recorded._replaced(page, "peers", "new\n") == "a\n<!-- peers -->\nnew\n<!-- /peers -->\nb\n"
    with pytest.raises(ValueError, match="no markers for growth"):
        recorded._replaced(page, "growth", "")


def test_every_recorded_drawing_is_on_a_page() -> None:
    pages = "".join(path.read_text("utf-8") for path in recorded.DOCS.glob("*.md"))
    drawings = [path for path in recorded.files() if path.suffix == ".svg"]
    assert drawings
    assert [path.name for path in drawings if f"(drawings/{path.name})" not in pages] == []
