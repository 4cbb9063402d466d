"""Death by SIGKILL before and after every commit of a workflow whose activities are cancelled from outside (A1)."""

from collections import Counter
from pathlib import Path

import pytest
from tests.crash.cancel_apps import CALLS, EXPECTED, finish
from tests.crash.killed import was_killed
from tests.crash.program import BODIES
from tests.scenarios.support import check_tables, history_of, together

from holdfast.audit.auditor import audit
from holdfast.core.history import ActivityCompleted, ActivityFailed
from holdfast.runtime.platform import FaultPoint

APP = "tests.crash.cancel_apps"
MOST_COMMITS = 40
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT.value, FaultPoint.AFTER_COMMIT.value])
def test_A1_a_crash_at_every_commit_leaves_one_answer_of_each_cancelled_activity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    for at in range(1, MOST_COMMITS):
        store = tmp_path / f"{at}.db"
        died = was_killed(APP, store, "held", point, at)
        if died:
            monkeypatch.setenv(BODIES, str(tmp_path / f"{at}.bodies"))
            assert together(finish(str(store), "held", None)) == EXPECTED
        else:
            assert store.with_suffix(".result").read_text(encoding="utf-8") == repr(EXPECTED)
        check_tables(store)
        assert audit(store) == []
        answers = [event for event in history_of(store, 1) if isinstance(event, ActivityCompleted | ActivityFailed)]
        assert Counter(event.activity for event in answers) == dict.fromkeys(range(CALLS + 1), 1)
        assert [type(event) for event in answers] == [ActivityFailed] * CALLS + [ActivityCompleted]
        if not died:
            assert at > 4, "the faults never happened"
            return
    pytest.fail(f"it still died at its commit number {MOST_COMMITS - 1}")
