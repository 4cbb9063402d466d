"""The SQLite store keeps every rule of the conformance kit, on a file and in memory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.storage.contract import Lose, Store
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.storage.sqlite.writer import TOMBSTONES_KEPT_MS
from holdfast.testing.conformance import StoreConformance
from holdfast.testing.conformance.bench import ANNA, BERT, Bench, start


class TestSqliteFile(StoreConformance):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "store.db"

    def make_store(self, clock: Callable[[], int]) -> Store:
        return SqliteStore(self.path, clock=clock)

    make_another = make_store


class TestSqliteOnItsThread(StoreConformance):
    """The same with a disk so slow that every group goes to the writer's thread."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "store.db"

    def make_store(self, clock: Callable[[], int]) -> Store:
        store = SqliteStore(self.path, clock=clock)
        store._commit_ms = float("inf")
        return store

    make_another = make_store


class TestSqliteInMemory(StoreConformance):
    def make_store(self, clock: Callable[[], int]) -> Store:
        return SqliteStore(":memory:", clock=clock)

    def make_another(self, clock: Callable[[], int]) -> Store | None:
        """Each has a file of its own."""


def test_W5_tombstones_are_forgotten_after_their_time_and_not_before(tmp_path: Path) -> None:
    """A dead key is remembered for a day; then nobody can hold it any more."""

    class Forgets(TestSqliteFile):
        def __init__(self) -> None:
            self.path = tmp_path / "store.db"

    async def case(bench: Bench) -> None:
        await bench.one(Lose(key=ANNA, at_deadline=False, limit=1))
        for late_by_ms, keys in ((0, {"anna", "bert"}), (2 * TOMBSTONES_KEPT_MS, {"bert"})):
            bench.clock.now_ms += late_by_ms
            bench.beat(BERT)
            writer = vars(bench.store)["_writer"]
            writer._groups = 0  # the group that looks for what can be forgotten
            await bench.one(start(f"i{late_by_ms}"))
            assert {worker.key for worker in await bench.store.workers()} == keys

    Forgets().on_bench(case)
