"""An id that is started again by real processes: at once, and by one that is killed around the commit (G3)."""

import signal
from pathlib import Path

import pytest
from tests.crash.replacing import step, steps
from tests.forking.processes import Process
from tests.scenarios.support import check_tables, engine_of, rows, together

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.runtime.platform import FaultPoint

PROCESSES = 4
pytestmark = pytest.mark.slow


def spawn(*arguments: object) -> Process:
    return Process("tests.crash.replacing:main", *arguments)


def ended(process: Process) -> str:
    said, complaints = process.communicate(timeout=40)
    assert process.returncode in (0, -signal.SIGKILL), complaints
    assert "database is locked" not in complaints
    return said if process.returncode == 0 else "killed"


async def open_instance(path: Path) -> None:
    """An instance that has the id, with something that waits for it, and no worker."""
    client = await hf.connect(path)
    await client.start("steps", 0, id="it")
    await client.close()


@pytest.mark.parametrize("policy", ["terminate_existing", "reuse"])
@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT, FaultPoint.AFTER_COMMIT])
def test_G3_a_crash_around_the_commit_leaves_the_old_instance_or_the_new_one(
    tmp_path: Path, policy: str, point: FaultPoint
) -> None:
    path = tmp_path / "it.db"
    if policy == "reuse":
        assert ended(spawn(path, policy, 0)) == "1 1\n"
    else:
        together(open_instance(path))
    before = rows(path, "SELECT state FROM instances")
    assert ended(spawn(path, policy, 7, point)) == "killed"
    check_tables(path)
    assert audit(path) == []
    found = rows(path, "SELECT state, superseded_at_ms IS NULL FROM instances ORDER BY number")
    if point is FaultPoint.BEFORE_COMMIT:
        assert found == [(before[0][0], 1)]
        expected = 1
    else:
        assert found == [("COMPLETED" if policy == "reuse" else "TERMINATED", 0), ("RUNNING", 1)]
        expected = 11

    async def finish() -> None:
        async with engine_of(path, step, steps) as engine:
            assert await engine.get("it").result() == expected

    together(finish())
    assert audit(path) == []


def test_G3_processes_that_replace_each_other_at_once_leave_one_that_lives(tmp_path: Path) -> None:
    path = tmp_path / "it.db"
    processes = [spawn(path, "terminate_existing", number) for number in range(PROCESSES)]
    said = [ended(process).split() for process in processes]
    check_tables(path)
    assert audit(path) == []
    found = rows(path, "SELECT number, state, superseded_at_ms IS NULL FROM instances ORDER BY number")
    assert sorted(int(number) for number, _ in said) == [number for number, _, _ in found]
    assert [current for _, _, current in found] == [0] * (PROCESSES - 1) + [1]
    states = {str(number): state for number, state, _ in found}
    for number, how in said:
        assert (states[number] == "TERMINATED") == (how == "terminated")
    assert found[-1][1] == "COMPLETED"
