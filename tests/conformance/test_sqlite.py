"""The SQLite store keeps every rule of the conformance kit, on a file and in memory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.storage.contract import Store
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.testing.conformance import StoreConformance


class TestSqliteFile(StoreConformance):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "store.db"

    def make_store(self, clock: Callable[[], int]) -> Store:
        return SqliteStore(self.path, clock=clock)

    make_another = make_store


@pytest.mark.slow
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
