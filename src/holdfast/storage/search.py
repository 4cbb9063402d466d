"""Search for instances: what a store with the capability `SEARCH` takes and returns (F6-F9)."""

from enum import StrEnum
from typing import Final

from holdfast.core.attributes import StoredAttribute
from holdfast.core.filters import Filter
from holdfast.storage.records import InstanceRecord, Record

MOST_UNINDEXED: Final = 100_000
"""Above this number of instances, a filter that no index supports needs a time range (F8)."""
SEARCH_SECONDS: Final = 5.0
"""How long one search may take (F9)."""


class OrderField(StrEnum):
    """The values that a list can be in the order of. Instances with the same value are in the order of their numbers.

    Only closed instances have the last two.
    """

    CREATED = "created"
    CLOSED = "closed"
    DURATION = "duration"


class PageOrder(Record, frozen=True):
    """The order of a list."""

    field: OrderField = OrderField.CREATED
    is_ascending: bool = False

    @property
    def direction(self) -> str:
        return "ASC" if self.is_ascending else "DESC"


class Position(Record, frozen=True):
    """The place of an instance in a list: the value of the order, in milliseconds, and its number."""

    key: int
    number: int


class SearchQuery(Record, frozen=True, gc=True):
    """A page: the first `limit` instances behind `after` that match the filter, which has no relative times."""

    filter: Filter | None = None
    order: PageOrder = PageOrder()
    after: Position | None = None
    limit: int = 100


class FoundInstance(Record, frozen=True, gc=True):
    """An instance in a page, with its place and its attributes."""

    instance: InstanceRecord
    position: Position
    attributes: dict[str, StoredAttribute]
