"""Death by SIGKILL while an instance waits for its start (G15), and before and after every commit of its program."""

from collections import Counter
from pathlib import Path

import pytest
from tests.crash.killed import was_killed
from tests.crash.later_apps import finish
from tests.crash.program import BODIES
from tests.forking.processes import Process
from tests.scenarios.kinds import named
from tests.scenarios.support import check_tables, history_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import ActivityCompleted, EventReceived, Started
from holdfast.runtime.platform import FaultPoint

APP = "tests.crash.later_apps"
MOST_COMMITS = 30
pytestmark = pytest.mark.slow


def start_of(store: Path) -> int:
    [(start_at_ms,)] = rows(store, "SELECT start_at_ms FROM instances")
    return int(start_at_ms)


def check_start(store: Path, began_ms: int) -> None:
    """One start, not before its time, and each message and answer once."""
    assert began_ms >= start_of(store)
    kinds = Counter(type(event) for event in history_of(store, 1))
    assert [kinds[kind] for kind in (Started, EventReceived, ActivityCompleted)] == [1, 1, 1]
    check_tables(store)
    assert audit(store) == []


def test_G15_a_worker_that_is_killed_before_the_time_neither_loses_the_start_nor_makes_it_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BODIES, str(tmp_path / "recovered.bodies"))

    async def scenario() -> None:
        store = tmp_path / "it.db"
        await (await hf.connect(store)).close()  # creates the tables
        with Process(f"{APP}:main", named(store), "later", store.with_suffix(".bodies")) as victim:
            await until(lambda: rows(store, "SELECT 1 FROM inbox"))
            victim.kill()
            victim.wait()
        assert rows(store, "SELECT state, turn, owner FROM instances") == [("REQUESTED", 0, None)]
        assert not store.with_suffix(".bodies").exists()
        start_at_ms = start_of(store)
        began_ms, word, number = await finish(str(store), "later", None)
        assert (word, number) == ("kept", 2)
        assert start_of(store) == start_at_ms, "the start after the crash finds the instance and keeps its time"
        check_start(store, began_ms)

    together(scenario())


@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT.value, FaultPoint.AFTER_COMMIT.value])
def test_G15_a_crash_at_every_commit_leaves_one_start_that_is_not_before_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv(BODIES, str(tmp_path / "recovered.bodies"))
    waited = 0
    for at in range(1, MOST_COMMITS):
        store = tmp_path / f"{at}.db"
        died = was_killed(APP, store, "later", point, at)
        waited += rows(store, "SELECT state FROM instances") == [("REQUESTED",)]
        began_ms, word, number = together(finish(str(store), "later", None))
        assert (word, number) == ("kept", 2)
        check_start(store, began_ms)
        if not died:
            assert waited >= 1, "it was never killed between the start and its time"
            return
    pytest.fail(f"it still died at its commit number {MOST_COMMITS - 1}")
