"""Death by SIGKILL around every commit of a workflow whose inputs are in the side table."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.crash.large import TEXT, finish
from tests.scenarios.support import check_tables, rows, together

from holdfast.audit import audit
from holdfast.runtime.faults import FaultPoint

ROOT = Path(__file__).parents[2]
MOST_COMMITS = 40
pytestmark = pytest.mark.slow


def died(store: Path, *fault: str) -> bool:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.crash.large", str(store), *fault],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=30,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode != 0


@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT.value, FaultPoint.AFTER_COMMIT.value])
def test_L13_a_crash_at_every_commit_loses_no_large_input(tmp_path: Path, point: str) -> None:
    for at in range(1, MOST_COMMITS):
        store = tmp_path / f"{at}.db"
        if not died(store, point, str(at)):
            assert at > 4, "the faults never happened"
            return
        assert audit(store) == []
        assert together(finish(str(store), None)) == 3 * len(TEXT) + 1
        check_tables(store)
        assert audit(store) == []
        assert rows(store, "SELECT count(*) FROM payloads") == [(2,)]
    pytest.fail(f"it still died at its commit number {MOST_COMMITS - 1}")
