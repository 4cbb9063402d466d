"""G11: nothing of a turn can be seen before it is committed: no body, no result, no line of the log."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.scenarios.support import check_tables, engine_of, together

import holdfast as hf
from holdfast.runtime.platform import SystemClockAndIds
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.members.turns import Turn
from holdfast.storage.records import CommitId
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.storage.wakeups import Notify, ignore_wakeups

LONG_ENOUGH = 50
"""Rounds of the event loop in which anything that is told too early happens."""

ran: list[int] = []
ends: list[str] = []


@hf.activity
async def step(number: int) -> int:
    ran.append(number)
    return number


@hf.workflow
async def flow() -> str:
    for number in range(3):
        hf.log.info("step %d follows", number)
        await step(number)
    return "done"


class WatchedStore(SqliteStore):
    """Holds every commit back for a while, and notes what became visible before it was made."""

    def __init__(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        super().__init__(path, clock=SystemClockAndIds().now_ms)
        self._caplog = caplog
        self.held = 0
        self.told_early: list[str] = []

    def _visible(self) -> tuple[int, int, int]:
        lines = [record for record in self._caplog.records if record.name == "holdfast.workflow"]
        return len(ran), len(lines), len(ends)

    async def commit(
        self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
    ) -> list[Outcome]:
        if any(isinstance(member, Start | Turn) for member in members):
            self.held += 1
            before = self._visible()
            for _ in range(LONG_ENOUGH):
                await asyncio.sleep(0)
            if self._visible() != before:
                self.told_early.append(f"commit {self.held}: bodies, lines, ends were {before}, now {self._visible()}")
        return await super().commit(commit_id, members, notify)


@pytest.mark.parametrize("cache_size", [100, 0])
def test_G11_nothing_of_a_turn_is_visible_before_its_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cache_size: int
) -> None:
    ran.clear()
    ends.clear()
    caplog.set_level(logging.INFO, logger="holdfast.workflow")

    async def scenario() -> None:
        store = WatchedStore(tmp_path / "shop.db", caplog)
        async with engine_of(store, step, flow, cache_size=cache_size) as engine:  # type: ignore[arg-type]
            handle = await engine.start(flow, id="it")
            ends.append("started")
            assert await handle.result() == "done"
            ends.append("ended")
        assert store.told_early == []
        assert store.held >= 4
        assert ran == [0, 1, 2]
        check_tables(tmp_path / "shop.db")

    together(scenario())
