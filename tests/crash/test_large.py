"""Death by SIGKILL around every commit of a workflow whose inputs are in the side table."""

from pathlib import Path

import pytest
from tests.crash.killed import was_killed
from tests.crash.large import TEXT, finish, measures
from tests.scenarios.support import check_tables, rows, together

from holdfast.audit.auditor import audit
from holdfast.runtime.platform import FaultPoint

MOST_COMMITS = 40
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT.value, FaultPoint.AFTER_COMMIT.value])
def test_L13_a_crash_at_every_commit_loses_no_large_input(tmp_path: Path, point: str) -> None:
    for at in range(1, MOST_COMMITS):
        store = tmp_path / f"{at}.db"
        if not was_killed("tests.crash.large", store, measures.name, point, at):
            assert at > 4, "the faults never happened"
            return
        assert audit(store) == []
        assert together(finish(str(store), measures.name, None)) == 3 * len(TEXT) + 1
        check_tables(store)
        assert audit(store) == []
        assert rows(store, "SELECT count(*) FROM payloads") == [(2,)]
    pytest.fail(f"it still died at its commit number {MOST_COMMITS - 1}")
