"""Rounds of maintenance: when they prune."""

import asyncio
from pathlib import Path

from tests.support.workers import unstarted_worker

from holdfast.runtime.duties.maintenance import PRUNE_EVERY_MS
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.testing.conformance.bench import ManualClock


class PrunedStore(SqliteStore):
    """Counts the pieces of pruning; the first two say that there is more."""

    pieces = 0

    async def prune(self) -> bool:
        self.pieces += 1
        return self.pieces <= 2


def test_C1_a_worker_prunes_in_its_first_round_and_then_by_time_whatever_it_has_written(tmp_path: Path) -> None:
    """A process that lives for one round prunes a piece; while there is more to prune every round does."""

    async def scenario() -> None:
        clock = ManualClock()
        store = PrunedStore(tmp_path / "shop.db", clock=clock, durability="none")
        with unstarted_worker(store) as worker:
            await store.open()
            done: list[int] = []
            for late_by_ms in (0, 0, 0, 0, PRUNE_EVERY_MS - 1, 1, 0):
                clock.now_ms += late_by_ms
                await worker.maintenance.round()
                done.append(store.pieces)
            assert done == [1, 2, 3, 3, 3, 4, 4]
            await store.close()

    asyncio.run(scenario())
