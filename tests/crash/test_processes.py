"""Several real processes on one file: killed at random, side by side, and stopped beyond their lease."""

import random  # noqa: TID251 - the seed is printed with a failure
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crash.apps import EXPECTED, WORKFLOWS
from tests.forking.freezing import freeze
from tests.forking.processes import Process
from tests.scenarios.kinds import are_files, named
from tests.scenarios.support import check_tables, rows, together

import holdfast as hf

KILLS = 25
INSTANCES = 24
pytestmark = pytest.mark.slow


def worker(store: Path, *work: str, lease: float = 8, judge: bool = True) -> Process:
    """A worker process; it is killed on the way out if it still runs."""
    bodies = store.with_suffix(".bodies")
    return Process("tests.crash.worker:main", named(store), bodies, lease, "judge" if judge else "wait", *work)


def line(process: Process) -> str:
    return process.stdout.readline().strip()


def stop(process: Process) -> tuple[str, str]:
    """Stop it cleanly, and give what it said."""
    said, complaints = process.communicate("\n", timeout=30)
    assert process.returncode == 0, complaints
    assert "database is locked" not in complaints
    return said, complaints


def expected_of(name: str) -> object:
    return EXPECTED[list(WORKFLOWS)[int(name.rpartition("-")[2]) % len(WORKFLOWS)]]


async def results(store: Path, names: list[str], seconds: float = 30) -> None:
    client = await hf.connect(store, workflows=list(WORKFLOWS.values()))
    try:
        for name in names:
            assert await client.get(name).result(timeout=seconds) == expected_of(name)
    finally:
        await client.close()


async def start_all(store: Path, names: list[str]) -> None:
    client = await hf.connect(store)
    for name in names:
        await client.start(list(WORKFLOWS)[int(name.rpartition("-")[2]) % len(WORKFLOWS)], id=name)
    await client.close()


def test_invariant_22_random_kills_stop_nothing(tmp_path: Path) -> None:
    seed = int(time.time())  # noqa: TID251 - printed, to repeat the run
    chance = random.Random(seed)  # noqa: S311 - not a secret
    store = tmp_path / "shop.db"
    names = [f"it-{number}" for number in range(INSTANCES)]
    together(start_all(store, names))
    for _ in range(KILLS):
        with worker(store) as process:
            assert line(process).startswith("key "), "it was killed before it worked"
            time.sleep(chance.uniform(0, 0.08))
            process.send_signal(signal.SIGKILL)
            process.wait()
        check_tables(store)
    with worker(store) as process:
        together(results(store, names))
        stop(process)
    check_tables(store)
    (runs,) = rows(store, "SELECT count(*) FROM attempts WHERE state = 'COMPLETED'")[0]
    assert runs == INSTANCES // 3 * (4 + 5 + 4), f"seed {seed}"


def test_C1_two_processes_on_one_file_finish_everything_without_a_locked_database(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"
    with worker(store, "left", "50") as left, worker(store, "right", "50") as right:
        assert line(left).startswith("key ")
        assert line(right).startswith("key ")
        assert line(left) == "done"
        assert line(right) == "done"
        for process in (left, right):
            _, complaints = stop(process)
            assert "Traceback" not in complaints
    together(results(store, [f"{side}-{number}" for side in ("left", "right") for number in range(50)]))
    check_tables(store)
    bodies = store.with_suffix(".bodies").read_text(encoding="utf-8").splitlines()
    (attempts,) = rows(store, "SELECT count(*) FROM attempts")[0]
    assert len(bodies) == attempts, "D3: without a crash no body runs twice"


def test_W11_the_death_of_a_process_is_seen_at_once(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"
    with worker(store, "it", "9", lease=60) as first:
        line(first)
        time.sleep(0.02)
        first.send_signal(signal.SIGKILL)
        first.wait()
        before = time.monotonic()  # noqa: TID251
        with worker(store, lease=60) as second:
            names = (
                [name for (name,) in rows(store, "SELECT id FROM instances")]
                if store.exists() or not are_files()
                else []
            )
            together(results(store, names))
            assert time.monotonic() - before < 20  # noqa: TID251 - far below the lease
            stop(second)
    check_tables(store)


def test_W7_a_worker_stopped_beyond_its_lease_changes_nothing_and_takes_a_new_key(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"
    names = [f"it-{number}" for number in range(30)]
    together(start_all(store, names))
    with worker(store, lease=1, judge=False) as zombie:
        key = line(zombie)
        freeze(zombie, str(store), lambda: rows(store, "SELECT 1 FROM instances WHERE owner IS NOT NULL"))
        with worker(store, lease=1, judge=False) as healthy:
            line(healthy)
            together(results(store, names))
            before = rows(store, "SELECT number, turn, state, outcome FROM instances")
            (dead,) = rows(store, "SELECT state FROM workers WHERE key = ?", key.removeprefix("key "))[0]
            assert dead == "INACTIVE"
            zombie.send_signal(signal.SIGCONT)
            time.sleep(1.0)
            said, _ = stop(zombie)
            assert said.strip().startswith("key ")
            assert said.strip() != key, "a dead key is never used again"
            assert rows(store, "SELECT number, turn, state, outcome FROM instances") == before
            stop(healthy)
    check_tables(store)


def test_a_start_by_another_process_wakes_the_worker(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The latency is recorded, not asserted tightly; it is far below the second after which workers look anyway."""
    store = tmp_path / "shop.db"

    async def scenario() -> list[float]:
        client = await hf.connect(store)
        took: list[float] = []
        for number in range(15):
            before = time.perf_counter()  # noqa: TID251
            await client.run("sequence", id=f"it-{3 * number}")
            took.append(time.perf_counter() - before)  # noqa: TID251
        await client.close()
        return sorted(took)

    with worker(store) as process:
        line(process)
        took = together(scenario())
        stop(process)
    record_property("median_seconds", took[len(took) // 2])
    assert took[len(took) // 2] < 0.5
