"""Store files that are removed, replaced or read by others under a process that is then killed by SIGKILL.

What was acknowledged is there, or was never acknowledged: by that process, and by another that works on the same path.
"""

import signal
from pathlib import Path

import pytest
from tests.crash.losing_files import HARMS, ROUNDS
from tests.forking.processes import Process, run
from tests.scenarios.support import rows

from holdfast.audit.auditor import audit

pytestmark = pytest.mark.slow

HARMLESS = {"read_here", "read_elsewhere", "copy_and_read"}
"""SQLite's locks are dropped, and the WAL stays."""
SAVED = {"remove_wal", "remove_memory"}
"""Refused, and what was acknowledged before is there."""
LOST = {"remove_all", "restore"}
"""Refused. What the user removed is gone; a backup has what it had."""
CASES = [(harm, is_shared) for harm in HARMS for is_shared in (False, True) if harm not in HARMLESS or not is_shared]


@pytest.mark.parametrize(("harm", "is_shared"), CASES)
def test_nothing_that_was_acknowledged_is_lost_with_the_files_of_a_store(
    tmp_path: Path, harm: str, is_shared: bool
) -> None:
    assert set(HARMS) == HARMLESS | SAVED | LOST
    store, acknowledged, others = tmp_path / "shop.db", list[str](), list[str]()
    with Process("tests.crash.losing_files:main", store, harm) as process:
        for line in process.stdout:
            if line == "harmed\n":
                break
            acknowledged.append(line.strip())
        if is_shared:
            other = run("tests.crash.losing_files:main", store, "none")
            others = other.said.split()
            assert other.code == 0 or harm in SAVED, other.complaints
        said, complaints = process.communicate("go on\n", timeout=40)
    assert process.returncode == -signal.SIGKILL, complaints
    after = said.split()
    there = set[str]()
    if store.exists():
        there = {str(row[0]) for row in rows(store, "SELECT id FROM instances WHERE state = 'COMPLETED'")}
        assert audit(store) == []
    assert set(others) <= there
    if harm in HARMLESS:
        assert len(after) == ROUNDS
        assert {*acknowledged, *after} <= there
        return
    assert after == ["refused"]
    assert complaints.count("was removed") + complaints.count("was replaced") >= 1, complaints
    if harm in SAVED:
        assert set(acknowledged) <= there
