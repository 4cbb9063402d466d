"""Lost workers: when the next round comes, and that what one owned moves a batch at a time (C1, W6)."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.workers import unstarted_worker, use_key

from holdfast.core.leases import WorkerKey
from holdfast.runtime.crash_detection import CrashMarker
from holdfast.runtime.duties import lost_workers
from holdfast.runtime.worker import WorkerRuntime
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Applied, Outcome
from holdfast.storage.members.workers import MarkWorkerLost
from holdfast.storage.records import CommitId
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.storage.wakeups import Notify, ignore_wakeups
from holdfast.testing.conformance.bench import ANNA, BERT, Bench, ManualClock, start

SMALL_BATCH = 10
INSTANCES = 57


class Counted(SqliteStore):
    """Records every group, and lets other tasks run in between."""

    def __init__(self, path: Path, clock: ManualClock) -> None:
        super().__init__(path, clock=clock, durability="none")
        self.groups: list[tuple[list[Member], list[Outcome]]] = []

    async def commit(
        self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
    ) -> list[Outcome]:
        outcomes = await super().commit(commit_id, members, notify)
        self.groups.append((list(members), outcomes))
        await asyncio.sleep(0)
        return outcomes


@contextmanager
def on_store(tmp_path: Path) -> Generator[tuple[Counted, Bench, WorkerRuntime]]:
    clock = ManualClock()
    store = Counted(tmp_path / "shop.db", clock)
    with unstarted_worker(store, key="own") as worker:
        yield store, Bench(store, clock), worker


def run(tmp_path: Path, scenario: Callable[[Counted, Bench, WorkerRuntime], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        with on_store(tmp_path) as (store, bench, worker):
            await scenario(store, bench, worker)

    asyncio.run(inside())


def test_G12_a_worker_whose_crash_marker_cannot_be_read_leaves_all_it_had_under_suspicion(tmp_path: Path) -> None:
    dead = {name: WorkerKey(name) for name in ("silent", "busy", "idle", "clean", "own", "hung")}

    async def scenario(store: Counted, bench: Bench, worker: WorkerRuntime) -> None:
        await store.open()
        words = {name: CrashMarker(store.crash_marker_folder) for name in ("busy", "idle", "hung")}
        for name, key in dead.items():
            bench.beat(key)
            if name in words:
                words[name].open(key)
        words["busy"].slot[0] = 7
        words["hung"].slot[0] = 8
        for name, key in dead.items():
            is_own = name in ("own", "hung")
            is_clean = name == "clean"
            await worker.lost_workers.mark_lost(key, at_deadline=False, is_clean=is_clean, is_own=is_own)
        said = {
            member.key: member for group, _ in store.groups for member in group if isinstance(member, MarkWorkerLost)
        }
        assert {name: (said[key].culprit, said[key].unexplained) for name, key in dead.items()} == {
            "silent": (None, True),
            "busy": (7, False),
            "idle": (None, False),
            "clean": (None, False),
            "own": (None, False),
            "hung": (8, False),
        }
        assert not list(store.crash_marker_folder.iterdir()), "markers that were read are removed"
        await store.close()

    run(tmp_path, scenario)


def test_W6_the_next_round_comes_no_later_than_the_next_lease_ends(tmp_path: Path) -> None:
    async def scenario(store: Counted, bench: Bench, worker: WorkerRuntime) -> None:
        janitor = worker.lost_workers
        await store.open()
        assert janitor.pause_seconds(1.0) == 1.0, "nothing is known yet"
        bench.beat(ANNA, lease_ms=8_000)
        bench.beat(BERT, lease_ms=1_300)
        await janitor.check()
        assert janitor.pause_seconds(1.0) == 1.0
        bench.clock.now_ms += 1_000
        await janitor.check()
        assert janitor.pause_seconds(1.0) == 0.3
        with unstarted_worker(store, key="another", chance=0.5) as another:
            await another.lost_workers.check()
            assert another.lost_workers.pause_seconds(1.0) == 0.4, "not all of them at the same moment"
        assert janitor.pause_seconds(1.0) == 1.0, "a round that fails is not repeated at once"
        use_key(worker, BERT)
        await janitor.check()
        assert janitor.pause_seconds(1.0) == 1.0, "its own lease is not its business"
        bench.clock.now_ms += 300
        use_key(worker, "own")
        assert await janitor.check()
        assert [str(worker.state) for worker in await store.workers()] == ["ACTIVE", "INACTIVE"]
        assert janitor.pause_seconds(1.0) == 1.0, "who is lost is over"
        await store.close()

    run(tmp_path, scenario)


def test_W6_batches_are_bounded_and_a_new_member_joins_the_next_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_workers, "BATCH", SMALL_BATCH)

    async def scenario(store: Counted, bench: Bench, worker: WorkerRuntime) -> None:
        await store.open()
        bench.beat(ANNA)
        for number in range(INSTANCES):
            await bench.started(f"i{number}", activities=1)
        store.groups.clear()
        losing = asyncio.create_task(worker.lost_workers.mark_lost(ANNA, at_deadline=False))
        others = 0
        while not losing.done():
            groups = len(store.groups)
            await worker.committer.commit(start(f"other {others}"))
            others += 1
            assert len(store.groups) - groups <= 2, "the group that was being written, and its own"
        assert await losing
        moved = [_changed(members, outcomes) for members, outcomes in store.groups]
        batches = [changed for changed in moved if changed is not None]
        full = INSTANCES // SMALL_BATCH
        assert batches == [2 * SMALL_BATCH] * full + [2 * (INSTANCES - full * SMALL_BATCH), 0]
        assert others > full, "somebody came between any two batches"
        assert sum(isinstance(member, Start) for members, _ in store.groups for member in members) == others
        await store.close()

    run(tmp_path, scenario)


def _changed(members: list[Member], outcomes: list[Outcome]) -> int | None:
    """How many rows the batch in a group has moved; None if there was none. There is never more than one."""
    batches = [
        outcome.changed
        for member, outcome in zip(members, outcomes, strict=True)
        if isinstance(member, MarkWorkerLost) and isinstance(outcome, Applied)
    ]
    assert len(batches) <= 1
    return batches[0] if batches else None


def test_C1_two_workers_that_find_a_lost_one_leave_nothing_and_move_nothing_twice(tmp_path: Path) -> None:
    async def scenario(store: Counted, bench: Bench, first: WorkerRuntime) -> None:
        other = Counted(tmp_path / "shop.db", bench.clock)
        with unstarted_worker(other, key="other") as second:
            await store.open()
            await other.open()
            bench.beat(ANNA, lease_ms=1_000)
            records = [await bench.started(f"i{number}", activities=1) for number in range(INSTANCES)]
            bench.clock.now_ms += 1_000
            await asyncio.gather(first.maintenance.round(), second.maintenance.round())
            for record in records:
                attempts = await store.read_attempts(record.number, 1)
                assert [(str(each.state), each.losses) for each in attempts] == [("TIMED_OUT", 0), ("READY", 1)]
                assert (await bench.instance(record.id)).owner is None
            await first.committer.drain()
            await store.close()
            await other.close()

    run(tmp_path, scenario)
