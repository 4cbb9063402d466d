"""A janitor's rounds: when the next one comes, and that a worker's death is worked off a batch at a time (C1, W6)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from holdfast.core.leases import WorkerKey
from holdfast.runtime.committer import Committer
from holdfast.runtime.crash_detection import CrashMarker, HostIdentity
from holdfast.runtime.duties import maintenance as janitor_module
from holdfast.runtime.duties.maintenance import Maintenance
from holdfast.runtime.platform import Platform
from holdfast.runtime.session import StoreSession
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Applied, Outcome
from holdfast.storage.members.workers import MarkWorkerLost
from holdfast.storage.records import CommitId
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.testing.conformance.bench import ANNA, BERT, Bench, ManualClock, start

SMALL_BATCH = 10
INSTANCES = 57


class Counted(SqliteStore):
    """Writes down every group, and lets somebody come in between."""

    def __init__(self, path: Path, clock: ManualClock) -> None:
        super().__init__(path, clock=clock, durability="none")
        self.groups: list[tuple[list[Member], list[Outcome]]] = []

    async def commit(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        outcomes = await super().commit(commit_id, members)
        self.groups.append((list(members), outcomes))
        await asyncio.sleep(0)
        return outcomes


def janitor_of(store: SqliteStore, committer: Committer, chance: float = 0.0) -> Maintenance:
    return Maintenance(
        store, committer, HostIdentity("", 0, 0, ""), lambda: chance, CrashMarker(store.crash_marker_folder)
    )


def on_store(tmp_path: Path) -> tuple[Counted, Bench, Committer, Maintenance]:
    clock = ManualClock()
    store = Counted(tmp_path / "shop.db", clock)
    committer = Committer(StoreSession(store, Platform()))
    return store, Bench(store, clock), committer, janitor_of(store, committer)


def test_G12_whose_last_words_cannot_be_read_leaves_all_it_had_under_suspicion(tmp_path: Path) -> None:
    store, bench, _, janitor = on_store(tmp_path)
    dead = {name: WorkerKey(name) for name in ("silent", "busy", "idle", "clean", "own", "hung")}

    async def scenario() -> None:
        await store.open()
        words = {name: CrashMarker(store.crash_marker_folder) for name in ("busy", "idle", "hung")}
        for name, key in dead.items():
            bench.beat(key)
            if name in words:
                words[name].open(key)
        words["busy"].slot[0] = 7
        words["hung"].slot[0] = 8
        for name, key in dead.items():
            await janitor.mark_lost(key, at_deadline=False, is_clean=name == "clean", is_own=name in ("own", "hung"))
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
        assert not list(store.crash_marker_folder.iterdir()), "what was heard is forgotten"
        await store.close()

    asyncio.run(scenario())


def test_W6_the_next_round_comes_no_later_than_the_next_lease_ends(tmp_path: Path) -> None:
    store, bench, committer, janitor = on_store(tmp_path)

    async def scenario() -> None:
        await store.open()
        assert janitor.pause_seconds(1.0) == 1.0, "nothing is known yet"
        bench.beat(ANNA, lease_ms=8_000)
        bench.beat(BERT, lease_ms=1_300)
        await janitor.round(WorkerKey("own"))
        assert janitor.pause_seconds(1.0) == 1.0
        bench.clock.now_ms += 1_000
        await janitor.round(WorkerKey("own"))
        assert janitor.pause_seconds(1.0) == 0.3
        other = janitor_of(store, committer, chance=0.5)
        await other.round(WorkerKey("another"))
        assert other.pause_seconds(1.0) == 0.4, "not all of them at the same moment"
        assert janitor.pause_seconds(1.0) == 1.0, "a round that fails is not repeated at once"
        await janitor.round(BERT)
        assert janitor.pause_seconds(1.0) == 1.0, "its own lease is not its business"
        bench.clock.now_ms += 300
        assert await janitor.round(WorkerKey("own"))
        assert [str(worker.state) for worker in await store.workers()] == ["ACTIVE", "INACTIVE"]
        assert janitor.pause_seconds(1.0) == 1.0, "who is lost is over"
        await store.close()

    asyncio.run(scenario())


def test_C1_a_janitor_cleans_up_in_its_first_round_and_then_by_time_whatever_it_has_written(tmp_path: Path) -> None:
    """A process that lives for one round does its share; while there is more to do every round does a piece."""

    class Cleaned(Counted):
        pieces: ClassVar[list[bool]] = []
        rounds = 0

        async def prune(self) -> bool:
            self.rounds += 1
            return self.pieces.pop() if self.pieces else False

    clock = ManualClock()
    store = Cleaned(tmp_path / "shop.db", clock)
    store.pieces.extend([True, True])

    async def scenario() -> None:
        await store.open()
        janitor = janitor_of(store, Committer(StoreSession(store, Platform())))
        done: list[int] = []
        for late_by_ms in (0, 0, 0, 0, janitor_module.CLEAN_UP_EVERY_MS - 1, 1, 0):
            clock.now_ms += late_by_ms
            await janitor.round(ANNA)
            done.append(store.rounds)
        assert done == [1, 2, 3, 3, 3, 4, 4]
        assert not store.groups
        await store.close()

    asyncio.run(scenario())


def test_W6_batches_are_bounded_and_whoever_comes_meanwhile_is_in_the_very_next_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(janitor_module, "BATCH", SMALL_BATCH)
    store, bench, committer, janitor = on_store(tmp_path)

    async def scenario() -> None:
        await store.open()
        bench.beat(ANNA)
        for number in range(INSTANCES):
            await bench.started(f"i{number}", activities=1)
        store.groups.clear()
        losing = asyncio.create_task(janitor.mark_lost(ANNA, at_deadline=False))
        others = 0
        while not losing.done():
            groups = len(store.groups)
            await committer.commit(start(f"other {others}"))
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

    asyncio.run(scenario())


def _changed(members: list[Member], outcomes: list[Outcome]) -> int | None:
    """How many rows the batch in a group has moved; None if there was none. There is never more than one."""
    batches = [
        outcome.changed
        for member, outcome in zip(members, outcomes, strict=True)
        if isinstance(member, MarkWorkerLost) and isinstance(outcome, Applied)
    ]
    assert len(batches) <= 1
    return batches[0] if batches else None


def test_C1_two_janitors_at_once_leave_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    store, bench, committer, first = on_store(tmp_path)
    other = Counted(tmp_path / "shop.db", bench.clock)
    second = janitor_of(other, Committer(StoreSession(other, Platform())))

    async def scenario() -> None:
        await store.open()
        await other.open()
        bench.beat(ANNA, lease_ms=1_000)
        records = [await bench.started(f"i{number}", activities=1) for number in range(INSTANCES)]
        bench.clock.now_ms += 1_000
        await asyncio.gather(first.round(WorkerKey("one")), second.round(WorkerKey("two")))
        for record in records:
            attempts = await store.read_attempts(record.number, 1)
            assert [(str(each.state), each.losses) for each in attempts] == [("TIMED_OUT", 0), ("READY", 1)]
            assert (await bench.instance(record.id)).owner is None
        await committer.drain()
        await store.close()
        await other.close()

    asyncio.run(scenario())
