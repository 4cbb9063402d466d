"""Death by SIGKILL before and after every commit of the sample workflows, in real processes; others finish them."""

from collections import Counter
from pathlib import Path

import pytest
from tests.crash.apps import EXPECTED, STATES, finish
from tests.crash.killed import was_killed
from tests.crash.program import BODIES
from tests.scenarios.support import check_tables, history_of, rows, together

from holdfast.audit.auditor import audit
from holdfast.core.history import ActivityCompleted, Started
from holdfast.runtime.platform import FaultPoint

APPS = "tests.crash.apps"
MOST_COMMITS = 60
pytestmark = pytest.mark.slow


def check(store: Path, workflow: str, bodies: Path, deaths: int) -> None:
    result = store.with_suffix(".result").read_text(encoding="utf-8")
    assert result == repr(EXPECTED[workflow])
    check_tables(store)
    assert audit(store) == []
    states: dict[str, str] = dict(rows(store, "SELECT id, state FROM instances"))
    assert states == STATES.get(workflow, {"it": "COMPLETED"})
    completed: list[tuple[int, int, int]] = []
    for (number,) in rows(store, "SELECT number FROM instances"):
        execution = 0
        for event in history_of(store, number):
            if isinstance(event, Started):
                execution = event.execution
            elif isinstance(event, ActivityCompleted):
                completed.append((number, execution, event.activity))
    scheduled = rows(store, "SELECT DISTINCT number, execution, activity FROM attempts ORDER BY 1, 2, 3")
    assert sorted(completed) == scheduled, "every step has its result once"
    activities = len(scheduled)
    runs = Counter(bodies.read_text(encoding="utf-8").splitlines())
    for what, count in runs.items():
        name, _, number = what.partition(" ")
        calm = 2 if name == "flaky" and int(number) % 2 == 0 else 1
        least = 1 if deaths else calm  # a body that was lost has used up the attempt that would have failed
        assert least <= count <= calm + deaths, f"{what} ran {count} times with {deaths} deaths"
    assert rows(store, "SELECT count(*) FROM attempts WHERE state = 'TIMED_OUT'")[0][0] <= deaths * activities


@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT.value, FaultPoint.AFTER_COMMIT.value])
@pytest.mark.parametrize("workflow", list(EXPECTED))
def test_L13_a_crash_at_every_commit_boundary_leaves_one_result_of_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workflow: str, point: str
) -> None:
    for at in range(1, MOST_COMMITS):
        store, bodies = tmp_path / f"{at}.db", tmp_path / f"{at}.bodies"
        died = was_killed(APPS, store, workflow, point, at)
        if died:  # a fresh engine finishes it, here: a second process for each would double the time
            monkeypatch.setenv(BODIES, str(bodies))
            result = together(finish(str(store), workflow, None))
            store.with_suffix(".result").write_text(repr(result), encoding="utf-8")
        check(store, workflow, bodies, deaths=int(died))
        if not died:
            assert at > 4, "the faults never happened"
            return
    pytest.fail(f"{workflow} still died at its commit number {MOST_COMMITS - 1}")


@pytest.mark.parametrize("workflow", list(EXPECTED))
def test_L13_a_second_crash_during_recovery_changes_nothing_either(tmp_path: Path, workflow: str) -> None:
    for at in (1, 3):
        store, bodies = tmp_path / f"{at}.db", tmp_path / f"{at}.bodies"
        faults = [(FaultPoint.AFTER_COMMIT, 2), (FaultPoint.BEFORE_COMMIT, at), (FaultPoint.AFTER_COMMIT, at)]
        deaths = sum(was_killed(APPS, store, workflow, point.value, number) for point, number in faults)
        assert deaths >= 2, "the faults never happened"
        assert not was_killed(APPS, store, workflow)
        check(store, workflow, bodies, deaths)
