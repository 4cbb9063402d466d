"""Workflow code that takes its workers down, in real processes: others go on, and the code is parked (G12)."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.crash.harmful import innocent
from tests.scenarios.support import check_tables, rows, together, until

import holdfast as hf

ROOT = Path(__file__).parents[2]
PROCESS_SECONDS = 30
pytestmark = pytest.mark.slow


@contextmanager
def worker(store: Path, *arguments: str) -> Generator["subprocess.Popen[str]"]:
    """A worker process; it is killed on the way out if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.harmful", str(store), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def key_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def start(store: Path, workflow: str, *arguments: object, name: str) -> None:
    client = await hf.connect(store)
    await client.start(workflow, *arguments, id=name)
    await client.close()


async def result(store: Path, name: str) -> object:
    client = await hf.connect(store, workflows=[innocent])
    try:
        return await client.get(name).result(timeout=PROCESS_SECONDS)
    finally:
        await client.close()


def test_W7_code_that_cannot_be_interrupted_costs_its_worker_the_lease_and_others_go_on(tmp_path: Path) -> None:
    """Workflow code hangs in a call of C. Its worker lets its lease run out; when it comes back it begins anew."""
    store = tmp_path / "shop.db"
    together(start(store, "hanging", name="it"))
    with worker(store, "1", "wait", "30", "hang") as hanging:
        key = key_of(hanging)
        with worker(store, "1", "wait", "10000") as other:
            key_of(other)
            assert together(result(store, "it")) == "elsewhere"
            assert rows(store, "SELECT state FROM workers WHERE key = ?", key) == [("INACTIVE",)]
            together(until(lambda: rows(store, "SELECT count(*) FROM workers") == [(3,)]))
            later, complaints = hanging.communicate("\n", timeout=PROCESS_SECONDS)
            assert "cannot be interrupted" in complaints
            assert "harmful.py" in complaints
            assert later.strip() != key, "it took a new key"
            other.communicate("\n", timeout=PROCESS_SECONDS)
    assert rows(store, "SELECT state FROM instances") == [("COMPLETED",)]
    check_tables(store)
