"""Death by SIGKILL before and after every commit of a workflow that is blocked and retried on request (G12)."""

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.crash.killed import was_killed
from tests.crash.program import BODIES
from tests.crash.retry_apps import EXPECTED, REPAIRED, blocked, engine_at, recover, state_when
from tests.forking.processes import run
from tests.scenarios.kinds import named
from tests.scenarios.support import check_tables, history_of, rows, together
from tests.support.inside import try_blocked, worker_of

from holdfast.audit.auditor import audit
from holdfast.core.history import ActivityCompleted, EventReceived
from holdfast.runtime.platform import FaultPoint

APP = "tests.crash.retry_apps"
MOST_COMMITS = 40
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT.value, FaultPoint.AFTER_COMMIT.value])
def test_G12_a_crash_at_every_commit_of_retries_loses_neither_history_nor_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv(BODIES, str(tmp_path / "recovered.bodies"))
    found: Counter[str] = Counter()
    for at in range(1, MOST_COMMITS):
        store = tmp_path / f"{at}.db"
        died = was_killed(APP, store, "blocked", point, at)
        if died:
            state = "".join(each for (each,) in rows(store, "SELECT state FROM instances"))
            found[state] += 1
            monkeypatch.setenv(REPAIRED, "yes")
            assert together(recover(str(store), "blocked")) == EXPECTED, state
            monkeypatch.delenv(REPAIRED)
        else:
            assert store.with_suffix(".result").read_text(encoding="utf-8") == repr(EXPECTED)
        check_tables(store)
        assert audit(store) == []
        events = history_of(store, 1)
        assert Counter(event.activity for event in events if isinstance(event, ActivityCompleted)) == {0: 1, 1: 1}
        assert len([event for event in events if isinstance(event, EventReceived)]) == 1
        if not died:
            assert found["BLOCKED"] >= 2, "it died while it was blocked, and before the second request"
            assert found["RUNNING"] >= 3, "it died before it was blocked, and after both requests"
            return
    pytest.fail(f"it still died at its commit number {MOST_COMMITS - 1}")


@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT.value, FaultPoint.AFTER_COMMIT.value])
def test_G12_a_request_of_a_client_that_is_killed_is_made_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv(BODIES, str(tmp_path / "it.bodies"))

    async def scenario() -> None:
        store = tmp_path / "it.db"
        async with engine_at(str(store), None) as worker:
            handle = await worker.start(blocked, id="it")
            await handle.raise_event("word", "kept", id="only")
            await state_when(handle, "BLOCKED")
            before = rows(store, "SELECT * FROM instances")
            monkeypatch.setenv(REPAIRED, "yes")
            outcome = await asyncio.to_thread(run, f"{APP}:request_main", named(store), point)
            assert outcome.code == -signal.SIGKILL, outcome.complaints
            if point == FaultPoint.BEFORE_COMMIT:
                await try_blocked(worker_of(worker))
                assert rows(store, "SELECT * FROM instances") == before
                await handle.retry_blocked()
            assert await handle.result() == EXPECTED, "the worker finds the request without a notification"
        check_tables(store)
        assert audit(store) == []

    together(scenario())
