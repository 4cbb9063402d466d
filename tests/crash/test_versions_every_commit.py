"""Death by SIGKILL before and after every commit of an instance that moves to another version (R6, R7)."""

from collections import Counter
from pathlib import Path

import pytest
from tests.crash.killed import was_killed
from tests.crash.program import BODIES
from tests.crash.version_apps import EXPECTED, finish
from tests.scenarios.support import check_tables, history_of, rows, together

from holdfast.audit.auditor import audit
from holdfast.core.history import Started
from holdfast.runtime.platform import FaultPoint

APP = "tests.crash.version_apps"
MOST_COMMITS = 40
pytestmark = pytest.mark.slow


def check(store: Path, bodies: Path, deaths: int) -> None:
    assert rows(store, "SELECT workflow, execution, version, state FROM instances ORDER BY number") == [
        ("moves", 2, "2", "COMPLETED"),
        ("leaf", 1, "2", "COMPLETED"),
    ]
    found = [(event.execution, event.version) for event in history_of(store, 1) if isinstance(event, Started)]
    assert found == [(1, "1"), (2, "2")]
    runs = Counter(bodies.read_text(encoding="utf-8").splitlines())
    assert set(runs) == {"step 0", "step 1"}
    assert sum(runs.values()) <= 2 + deaths
    check_tables(store)
    assert audit(store) == []


@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT.value, FaultPoint.AFTER_COMMIT.value])
def test_R7_a_crash_at_every_commit_leaves_each_execution_on_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    for at in range(1, MOST_COMMITS):
        store, bodies = tmp_path / f"{at}.db", tmp_path / f"{at}.bodies"
        died = was_killed(APP, store, "moves", point, at)
        if died:
            monkeypatch.setenv(BODIES, str(bodies))
            assert together(finish(str(store), "moves", None)) == EXPECTED
        check(store, bodies, deaths=int(died))
        if not died:
            assert at > 6, "the faults never happened"
            return
    pytest.fail(f"it still died at its commit number {MOST_COMMITS - 1}")
