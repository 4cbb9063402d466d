"""The PostgreSQL store keeps every rule of the conformance kit."""

from collections.abc import Callable, Sequence

import pytest
from tests.postgres.server import Place

from holdfast.storage.contract import Store
from holdfast.storage.members.member import Member
from holdfast.storage.postgres import writer
from holdfast.storage.postgres.store import PostgresStore
from holdfast.testing.conformance import StoreConformance


class TestPostgres(StoreConformance):
    @pytest.fixture(autouse=True)
    def place(self, postgres: Place) -> None:
        self.url = postgres.url

    def make_store(self, clock: Callable[[], int]) -> Store:
        return PostgresStore(self.url, clock=clock)

    make_another = make_store


class TestPostgresAnswerByAnswer(TestPostgres):
    """The same where nothing is taken for granted: every change is waited for."""

    @pytest.fixture(autouse=True)
    def in_doubt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def never(_: Sequence[Member]) -> bool:
            return False

        monkeypatch.setattr(writer, "is_eligible", never)
