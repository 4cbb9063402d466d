"""A store without SQL keeps every rule of the conformance kit."""

from collections.abc import Callable
from typing import get_args

from tests.stores.memory import APPLY_BY_TYPE, MemoryStore
from tests.stores.memory_tables import MemoryTables

from holdfast.storage.contract import Store
from holdfast.storage.members.member import Member
from holdfast.storage.members.row_handling import ContractMember
from holdfast.testing.conformance import StoreConformance


class TestMemory(StoreConformance):
    def make_store(self, clock: Callable[[], int]) -> Store:
        self.tables = MemoryTables()
        return MemoryStore(clock, self.tables)

    def make_another(self, clock: Callable[[], int]) -> Store | None:
        return MemoryStore(clock, self.tables)


def test_every_kind_of_member_is_applied() -> None:
    assert set(APPLY_BY_TYPE) == set(get_args(Member)) - set(get_args(ContractMember))
