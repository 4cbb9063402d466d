"""Workflow code that takes its workers down, in real processes: others go on, and the code is parked (G12)."""

from pathlib import Path

import pytest
from tests.forking.processes import Process, run
from tests.scenarios.support import check_tables, rows, together, until
from tests.workers.deadly import DEADLY_CODE, innocent, step

import holdfast as hf
from holdfast.core.leases import MAX_LOST_OWNERS

PROCESS_SECONDS = 30
INNOCENT = 8
pytestmark = pytest.mark.slow


def worker(store: Path, *arguments: str) -> Process:
    """A worker process; it is killed on the way out if it still runs."""
    return Process("tests.crash.harmful:main", store, *arguments)


def key_of(process: Process) -> str:
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


def test_W1_code_that_cannot_be_interrupted_costs_its_worker_its_instances_and_others_go_on(tmp_path: Path) -> None:
    """Workflow code hangs in a call of C. The lease thread releases the instances of its worker and keeps the lease."""
    store = tmp_path / "shop.db"
    together(start(store, "hanging", name="it"))
    with worker(store, "1", "wait", "30", "hang") as hanging:
        key = key_of(hanging)
        with worker(store, "1", "wait", "10000") as other:
            key_of(other)
            assert together(result(store, "it")) == "elsewhere"
            assert rows(store, "SELECT state FROM workers WHERE key = ?", key) == [("ACTIVE",)]
            later, complaints = hanging.communicate("\n", timeout=PROCESS_SECONDS)
            assert "harmful.py" in complaints
            assert later.strip() == key, "it kept its lease"
            other.communicate("\n", timeout=PROCESS_SECONDS)
    assert rows(store, "SELECT state FROM instances") == [("COMPLETED",)]
    check_tables(store)


def test_G12_an_instance_that_has_taken_down_three_owners_is_parked_and_the_others_finish(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"
    together(start(store, "deadly", 1, name="deadly"))
    for number in range(INNOCENT):
        together(start(store, "innocent", 2 + number, name=f"i{number}"))
    for _ in range(MAX_LOST_OWNERS):
        with worker(store, "8", "judge", "10000") as victim:
            key_of(victim)
            assert victim.wait(PROCESS_SECONDS) == DEADLY_CODE
    with worker(store, "8", "judge", "10000") as survivor:
        key_of(survivor)
        with pytest.raises(hf.WorkflowBlocked, match="took down 3 owners in a row"):
            together(result(store, "deadly"))
        for number in range(INNOCENT):
            assert together(result(store, f"i{number}")) == 2 + number
        survivor.communicate("\n", timeout=PROCESS_SECONDS)
        assert survivor.returncode == 0
    with worker(store, "8", "judge", "10000") as restarted:
        key_of(restarted)
        restarted.communicate("\n", timeout=PROCESS_SECONDS)
        assert restarted.returncode == 0, "a restart with the same code does not try it again"
    shown = run("holdfast.cli:main", "show", "deadly", "--store", store, seconds=PROCESS_SECONDS)
    assert "took down 3 owners in a row" in " ".join(shown.said.split())
    assert rows(store, "SELECT id FROM instances WHERE state <> 'COMPLETED'") == [("deadly",)]
    check_tables(store)

    @hf.workflow(name="deadly")
    async def mended(after: int) -> str:
        for number in range(after):
            await step(number)
        return "mended"

    async def mend() -> object:
        async with hf.Engine(store, workflows=[mended], activities=[step]) as engine:
            await until(lambda: rows(store, "SELECT 1 FROM instances WHERE id = 'deadly' AND state <> 'BLOCKED'"))
            return await engine.get("deadly").result(timeout=PROCESS_SECONDS)

    assert together(mend()) == "mended"
    assert not list(store.with_name("shop.db-turns").iterdir()), "what was said last is forgotten when it was heard"


def test_G12_hanging_three_times_beyond_interruption_is_taking_down_three_owners(tmp_path: Path) -> None:
    """Three workers take over from each other, and each hangs. The one that comes back first parks the instance."""
    store = tmp_path / "shop.db"
    together(start(store, "hanging", name="it"))
    hangs = ("1", "wait", "30", "hang")
    with worker(store, *hangs) as one, worker(store, *hangs) as two, worker(store, *hangs) as three:
        for process in (one, two, three):
            key_of(process)

        async def blocked() -> None:
            await until(lambda: rows(store, "SELECT 1 FROM instances WHERE state = 'BLOCKED'"))

        together(blocked(), PROCESS_SECONDS)
        for process in (one, two, three):
            process.communicate("\n", timeout=PROCESS_SECONDS)
            assert process.returncode == 0
    assert "took down 3 owners in a row" in rows(store, "SELECT blocked FROM instances")[0][0]
    check_tables(store)
