"""Death by SIGKILL before and after every commit of a workflow whose attributes a client changes (F10)."""

from pathlib import Path

import pytest
from tests.crash.attribute_apps import EXPECTED, STORED, finish
from tests.crash.killed import was_killed
from tests.crash.program import BODIES
from tests.scenarios.support import check_tables, history_of, together

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import AttributesChanged
from holdfast.runtime.platform import FaultPoint

APP = "tests.crash.attribute_apps"
MOST_COMMITS = 40
pytestmark = pytest.mark.slow


async def stored(store: Path) -> dict[str, object]:
    async with hf.connect(store) as client:
        return dict((await client.get("it").describe()).attributes)


@pytest.mark.parametrize("point", [FaultPoint.BEFORE_COMMIT.value, FaultPoint.AFTER_COMMIT.value])
def test_F10_a_crash_at_every_commit_makes_each_change_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv(BODIES, str(tmp_path / "recovered.bodies"))
    for at in range(1, MOST_COMMITS):
        store = tmp_path / f"{at}.db"
        died = was_killed(APP, store, "approved", point, at)
        if died:
            assert together(finish(str(store), "approved", None)) == EXPECTED
        else:
            assert store.with_suffix(".result").read_text(encoding="utf-8") == repr(EXPECTED)
        check_tables(store)
        assert audit(store) == []
        assert together(stored(store)) == STORED
        read = [set(event.values) for event in history_of(store, 1) if isinstance(event, AttributesChanged)]
        assert {"approved"} in read
        assert {"gone"} in read
        if not died:
            assert at > 6, "it died at every change, turn and body"
            return
    pytest.fail(f"it still died at its commit number {MOST_COMMITS - 1}")
