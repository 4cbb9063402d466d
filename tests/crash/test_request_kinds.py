"""Death by SIGKILL before and after every commit while requests of each kind are handled (C2, C3, G15)."""

from pathlib import Path

import pytest
from tests.crash.killed import was_killed
from tests.crash.program import BODIES
from tests.crash.request_apps import EXPECTED, finish
from tests.scenarios.support import check_tables, rows, together

from holdfast.audit.auditor import audit
from holdfast.runtime.platform import FaultPoint

APP = "tests.crash.request_apps"
MOST_COMMITS = 60
pytestmark = pytest.mark.slow


def check(store: Path) -> None:
    check_tables(store)
    assert audit(store) == []
    instances = rows(store, "SELECT id, state FROM instances ORDER BY id")
    assert instances == [("later", "COMPLETED"), ("traced", "COMPLETED"), ("waits", "CANCELLED")]
    requests = dict(rows(store, "SELECT request_id, state FROM requests"))
    assert [requests.pop(key) for key in ("start", "later", "cancel")] == ["ACCEPTED"] * 3
    assert requests.pop("by hand") == "TRACE"
    assert set(requests.values()) == {"TRACE"}, (
        "each call of a traced start has a row, also one that found the instance"
    )


@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT.value, FaultPoint.AFTER_COMMIT.value])
def test_C3_a_crash_at_every_commit_handles_requests_of_each_kind_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    for at in range(1, MOST_COMMITS):
        store = tmp_path / f"{at}.db"
        died = was_killed(APP, store, "all", point, at)
        if died:
            monkeypatch.setenv(BODIES, str(tmp_path / f"{at}.bodies"))
            assert together(finish(str(store), "all", None)) == EXPECTED
        else:
            assert store.with_suffix(".result").read_text(encoding="utf-8") == repr(EXPECTED)
        check(store)
        if not died:
            assert at > 4, "the faults never happened"
            return
    pytest.fail(f"it still died at its commit number {MOST_COMMITS - 1}")
