"""Death by SIGKILL before and after every commit of a workflow that is paused and resumed (R20-R27)."""

from collections import Counter
from pathlib import Path

import pytest
from tests.crash.killed import was_killed
from tests.crash.pause_apps import EXPECTED, recover
from tests.crash.program import BODIES
from tests.scenarios.support import check_tables, history_of, rows, together

from holdfast.audit.auditor import audit
from holdfast.core.history import ActivityCompleted, ActivityFailed, EventReceived
from holdfast.runtime.platform import FaultPoint

APP = "tests.crash.pause_apps"
MOST_COMMITS = 40
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT.value, FaultPoint.AFTER_COMMIT.value])
def test_R20_R27_a_crash_at_every_commit_of_pauses_and_resumes_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv(BODIES, str(tmp_path / "recovered.bodies"))
    found: Counter[str] = Counter()
    for at in range(1, MOST_COMMITS):
        store = tmp_path / f"{at}.db"
        died = was_killed(APP, store, "pauses", point, at)
        if died:
            found["".join(each for (each,) in rows(store, "SELECT state FROM instances"))] += 1
            assert audit(store) == []
            assert together(recover(str(store), "pauses")) == EXPECTED
        else:
            assert store.with_suffix(".result").read_text(encoding="utf-8") == repr(EXPECTED)
        check_tables(store)
        assert audit(store) == []
        events = history_of(store, 1)
        assert Counter(event.activity for event in events if isinstance(event, ActivityCompleted)) == {0: 1, 1: 1, 2: 1}
        assert len([event for event in events if isinstance(event, ActivityFailed)]) == 1
        assert len([event for event in events if isinstance(event, EventReceived)]) == 1
        if not died:
            assert found["PAUSED"] >= 2, "it died while it was paused"
            assert found["RUNNING"] >= 2
            return
    pytest.fail(f"it still died at its commit number {MOST_COMMITS - 1}")
