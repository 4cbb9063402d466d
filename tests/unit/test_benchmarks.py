"""The bare limit writes the store's own statements and rows; this finds out at once when the two drift apart."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchmarks import bare
from benchmarks.programs import sequence, step
from tests.scenarios.support import rows

import holdfast as hf

ROOT = Path(__file__).parents[2]
INSTANCES = 3
STEPS = 4


@pytest.mark.slow
@pytest.mark.parametrize("sample", ["B1 bare", "B2 bare", "B1", "B2"])
def test_a_small_sample_of_a_benchmark_runs(sample: str) -> None:
    command = [sys.executable, "-m", "benchmarks", "--sample", sample, "--scale", "0.02"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def contents(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row, without times, owners and seeds."""
    found: dict[str, list[dict[str, Any]]] = {}
    for (table,) in rows(path, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"):
        if table in ("workers", "commits", "clock"):
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
