"""The bare limit writes the store's own statements and rows; this finds out at once when the two drift apart."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchmarks import bare, bare_arrivals
from benchmarks.compare import report
from benchmarks.programs import EVENT, reader, sequence, step, tokens, waiter
from benchmarks.report import Found, in_pairs, ratio
from tests.scenarios.support import rows

import holdfast as hf
from holdfast.runtime.attempts.streams import MAX_TOGETHER

ROOT = Path(__file__).parents[2]
INSTANCES = 3
STEPS = 4
VALUES = MAX_TOGETHER + 7
"""More than come at once."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "sample",
    [
        "B1 bare",
        "B2 bare",
        "B5 bare",
        "B5 bare stored first",
        "TOKENS bare",
        "B1",
        "B1 pairs",
        "B2",
        "B5",
        "EVENTS",
        "TOKENS",
        "EXPIRY",
        "GRAPH",
        "LATTICE",
        "LATTICE small",
        "LOAD",
        "ENGINES 2",
        "APART",
        "APART one at a time",
    ],
)
def test_a_small_sample_of_a_benchmark_runs(sample: str) -> None:
    command = [sys.executable, "-m", "benchmarks", "--sample", sample, "--scale", "0.02"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_source_tree_is_compared_with_itself() -> None:
    command = [sys.executable, "-m", "benchmarks.compare", "src", "--pairs", "1", "--scale", "0.02"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1::2]] == ["B1", "B2", "B4", "GRAPH", "OPEN"]


def test_a_ratio_above_one_means_that_this_tree_is_faster() -> None:
    mine = [{"steps_per_s": 20.0, "cpu_us_per_step": 5.0}]
    other = [{"steps_per_s": 10.0, "cpu_us_per_step": 10.0}]
    lines = report("B1", ("steps_per_s", "cpu_us_per_step"), mine, other)
    assert [line.split()[4] for line in lines] == ["2.000", "2.000"]


def contents(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row, without times, owners, seeds and keys of the store."""
    found: dict[str, list[dict[str, Any]]] = {}
    for (table,) in rows(path, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"):
        if table in ("workers", "commits", "clock", "secrets"):
            continue
        columns = [name for (name,) in rows(path, f"SELECT name FROM pragma_table_info('{table}')")]  # noqa: S608
        kept = [name for name in columns if not name.endswith("_ms") and name not in ("owner", "events")]
        found[table] = [
            dict(zip(kept, row, strict=True))
            for row in rows(path, f"SELECT {', '.join(kept)} FROM {table}")  # noqa: S608
        ]
    return found


def events(path: Path) -> list[list[dict[str, Any]]]:
    """The history in order, without times and seeds."""
    turns = rows(path, "SELECT events FROM history ORDER BY number, execution, turn")
    return [
        [
            {name: value for name, value in event.items() if name not in ("time_ms", "seed")}
            for event in msgspec.json.decode(data)
        ]
        for (data,) in turns
    ]


@pytest.mark.parametrize("batched", [False, True])
def test_the_bare_limit_writes_the_rows_of_the_engine(tmp_path: Path, batched: bool) -> None:
    async def run() -> None:
        async with hf.Engine(tmp_path / "engine.db", workflows=[sequence], activities=[step]) as engine:
            for number in range(INSTANCES):
                await engine.run(sequence, STEPS, id=f"bare-{number + 1}")

    asyncio.run(run())
    loop = bare.BareLoop(tmp_path / "bare.db", batched=batched)
    bare.drive(loop, INSTANCES, STEPS, in_flight=1)
    loop.close()
    assert contents(tmp_path / "bare.db") == contents(tmp_path / "engine.db")
    assert events(tmp_path / "bare.db") == events(tmp_path / "engine.db")


@pytest.mark.parametrize("deliver", [bare_arrivals.deliver, bare_arrivals.store_and_deliver])
def test_the_bare_limit_writes_the_rows_of_events(
    tmp_path: Path, deliver: Callable[[bare_arrivals.BareFlows, Sequence[int]], None]
) -> None:
    async def run() -> None:
        async with hf.Engine(tmp_path / "engine.db", workflows=[waiter]) as engine:
            handles = [await engine.start(waiter, id=f"bare-{number + 1}") for number in range(INSTANCES)]
            for number, handle in enumerate(handles):
                await handle.raise_event(EVENT, number + 1)
                await handle.result()

    asyncio.run(run())
    loop = bare_arrivals.BareFlows(tmp_path / "bare.db", batched=False)
    with loop.group():
        numbers = loop.start_waiting(INSTANCES)
    deliver(loop, numbers)
    loop.close()
    assert contents(tmp_path / "bare.db") == contents(tmp_path / "engine.db")
    assert events(tmp_path / "bare.db") == events(tmp_path / "engine.db")


def test_the_bare_limit_writes_the_rows_of_a_stream(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.Engine(tmp_path / "engine.db", workflows=[reader], activities=[tokens]) as engine:
            await engine.run(reader, VALUES, id="bare-1")

    asyncio.run(run())
    loop = bare_arrivals.BareFlows(tmp_path / "bare.db", batched=False)
    loop.read_stream(VALUES)
    loop.close()
    assert contents(tmp_path / "bare.db") == contents(tmp_path / "engine.db")
    assert events(tmp_path / "bare.db") == events(tmp_path / "engine.db")


def test_pairs_are_compared_round_by_round() -> None:
    """A machine that is slow in some rounds does not change what two are to each other in each."""
    speeds = [1.0, 8.0, 2.0]
    found = Found(
        {
            "mine": [{"per_s": 4 * speed} for speed in speeds],
            "limit": [{"per_s": 10 * speed} for speed in (1.0, 8.0, 40.0)],
        }
    )
    assert in_pairs(("mine", "per_s"), ("limit", "per_s"))(found) == pytest.approx(0.4)
    assert ratio(("mine", "per_s"), ("limit", "per_s"))(found) == pytest.approx(0.1)
