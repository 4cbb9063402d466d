"""HotMesh's kill matrix: death by SIGKILL before and after every commit of sample flows changes nothing (L13, K5).

Its own failures are among them. E1: killed between the children and the completion, the parent was stuck for ever.
E2: a worker ran twice, and the job was complete while a sibling still ran. E4: after a crash the next activity of a
round got nothing instead of its data.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.crash.flow_apps import EXPECTED, KEYS, finish
from tests.crash.killed import was_killed
from tests.crash.program import BODIES
from tests.scenarios.support import check_tables, history_of, rows, together

from holdfast.audit.auditor import audit
from holdfast.core.history import ActivityCompleted, ActivityFailed, ActivityScheduled, ChildScheduled
from holdfast.runtime.platform import FaultPoint

MOST_COMMITS = 80
pytestmark = pytest.mark.slow


def picture(store: Path) -> dict[str, Any]:
    """All that must be the same whatever happened on the way, by the id of the instance."""
    found: dict[str, Any] = {}
    for number, name, state, key in rows(store, "SELECT number, id, state, collation_key FROM instances"):
        events = history_of(store, number)
        begun = Counter(event.node for event in events if isinstance(event, ActivityScheduled | ChildScheduled))
        scheduled = sorted(event.activity for event in events if isinstance(event, ActivityScheduled))
        ended = sorted(event.activity for event in events if isinstance(event, ActivityCompleted | ActivityFailed))
        assert scheduled == ended, "every activity has its end once"
        found[name] = (state, key, begun)
    return found


def check(store: Path, flow: str, result: object, calm: dict[str, Any] | None) -> None:
    assert result == EXPECTED[flow]
    check_tables(store)
    assert audit(store) == []
    now = picture(store)
    assert now["it"][1].rstrip("0") == KEYS[flow]
    if calm is not None and flow != "order":
        assert now == calm, "one set of children, and each activity so often as in a calm run"
    elif calm is not None:  # how often it looked depends on looks that were lost
        assert now.keys() == calm.keys()
        assert {name: (state, key) for name, (state, key, _) in now.items()} == {
            name: (state, key) for name, (state, key, _) in calm.items()
        }


@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT.value, FaultPoint.AFTER_COMMIT.value])
@pytest.mark.parametrize("flow", list(EXPECTED))
def test_L13_a_crash_at_every_commit_of_a_flow_leaves_one_result_and_one_set_of_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flow: str, point: str
) -> None:
    calm_store, calm_bodies = tmp_path / "calm.db", tmp_path / "calm.bodies"
    monkeypatch.setenv(BODIES, str(calm_bodies))
    check(calm_store, flow, together(finish(str(calm_store), flow, None)), None)
    calm, lines = picture(calm_store), Counter(calm_bodies.read_text(encoding="utf-8").splitlines())
    for at in range(1, MOST_COMMITS):
        store, bodies = tmp_path / f"{at}.db", tmp_path / f"{at}.bodies"
        if not was_killed("tests.crash.flow_apps", store, flow, point, at):
            assert at > 4, "the faults never happened"
            return
        monkeypatch.setenv(BODIES, str(bodies))
        check(store, flow, together(finish(str(store), flow, None)), calm)
        again = Counter(bodies.read_text(encoding="utf-8").splitlines())
        assert again.keys() == lines.keys(), "each activity got its own data"
        if flow != "order":
            assert all(count <= lines[line] + 1 for line, count in again.items())
    pytest.fail(f"{flow} still died at its commit number {MOST_COMMITS - 1}")
