"""Death by SIGKILL before and after every commit while rows of clients are handled and served (C2-C4, A5, L7, L8).

The worker and the executor die together; their successors find the rows and the offers in the store.
"""

from collections import Counter
from pathlib import Path

import pytest
from tests.crash.contract_apps import EXPECTED, finish
from tests.crash.killed import was_killed
from tests.crash.program import BODIES
from tests.scenarios.support import check_tables, history_of, rows, together

from holdfast.audit.auditor import audit
from holdfast.core.history import ActivityCompleted, ActivityFailed, EventReceived
from holdfast.runtime.platform import FaultPoint

APP = "tests.crash.contract_apps"
MOST_COMMITS = 80
ONE_WORD = {"COMPLETED": 1, "FAILED": 1, "STOPPED": 1, "RELEASE": 1, "QUEUED": 1, "PREPARING": 1, "RUNNING": 1}
WITH_DEADLINES = {"expiry", "dead letters", "claim time-outs"}
"""Their successors wait for deadlines."""
pytestmark = pytest.mark.slow


def check(store: Path, workflow: str, result: object) -> None:
    assert result == EXPECTED[workflow]
    check_tables(store)
    assert audit(store) == []
    events = history_of(store, 1)
    answers = Counter(event.activity for event in events if isinstance(event, ActivityCompleted | ActivityFailed))
    assert set(answers.values()) == {1}, "every activity has its end once"
    assert sum(isinstance(event, EventReceived) for event in events) <= 1
    assert rows(store, "SELECT count(*) FROM instances") == [(1,)]
    assert sorted(rows(store, "SELECT request_id, state FROM requests")) == [("go", "ACCEPTED"), ("start", "ACCEPTED")]
    assert rows(store, "SELECT count(*) FROM activity_events WHERE state IN ('NEW', 'WAITING')") == [(0,)]
    applied = Counter(rows(store, "SELECT activity_exec_id, transition FROM activity_events WHERE state = 'APPLIED'"))
    assert all(count <= ONE_WORD.get(transition, count) for (_, transition), count in applied.items())


@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT.value, FaultPoint.AFTER_COMMIT.value])
@pytest.mark.parametrize(
    "workflow",
    [pytest.param(name, marks=pytest.mark.nightly if name in WITH_DEADLINES else ()) for name in EXPECTED],
)
def test_C2_a_crash_at_every_commit_handles_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workflow: str, point: str
) -> None:
    for at in range(1, MOST_COMMITS):
        store = tmp_path / f"{at}.db"
        died = was_killed(APP, store, workflow, point, at)
        if died:
            monkeypatch.setenv(BODIES, str(tmp_path / f"{at}.bodies"))
            check(store, workflow, together(finish(str(store), workflow, None)))
        else:
            assert store.with_suffix(".result").read_text(encoding="utf-8") == repr(EXPECTED[workflow])
            assert at > 4, "the faults never happened"
            return
    pytest.fail(f"{workflow} still died at its commit number {MOST_COMMITS - 1}")
