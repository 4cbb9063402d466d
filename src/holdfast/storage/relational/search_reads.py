"""Lists and counts of instances by filters, and their attributes, over a relational database (F6-F9)."""

import json
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from holdfast.core.attributes import StoredAttribute
from holdfast.errors import FilterTooBroad
from holdfast.storage.records import InstanceNumber
from holdfast.storage.relational.reads import BoundStatement, RelationalReads
from holdfast.storage.relational.rows import HELD, family_members_of, instance_of, stored_attributes
from holdfast.storage.relational.transaction import Row

if TYPE_CHECKING:  # the modules of the filter language are imported by the first search
    from holdfast.core.filters import Filter
    from holdfast.core.retention import FamilyMember
    from holdfast.storage.relational.search import Dialect, Lead, Search
    from holdfast.storage.search import FoundInstance, SearchQuery

LONGEST_SHOWN: Final = 200
"""Characters of a filter in a message."""


class SearchReads(RelationalReads):
    """Reads of a store with the capability `SEARCH`."""

    @property
    @abstractmethod
    def _dialect(self) -> "Dialect":
        """How this database is made to follow one index."""

    @abstractmethod
    async def _search(self, *asked: BoundStatement) -> list[list[Row]]:
        """The rows of statements, which may read much: apart from other reads, and within `SEARCH_SECONDS`."""

    async def search(self, query: "SearchQuery") -> "list[FoundInstance]":
        from holdfast.storage.relational.search import Search  # noqa: PLC0415
        from holdfast.storage.search import FoundInstance, Position  # noqa: PLC0415

        search = Search(self._dialect, query.filter, query.order, query.after)
        leads = await self._leads(search, query.filter)
        pages = await self._search(*(search.page(lead, query.limit) for lead in leads))
        rows = [row for page in pages for row in page]
        if len(pages) > 1:
            rows.sort(key=lambda row: (row[-1], row[0]), reverse=not query.order.is_ascending)
        instances = [instance_of(row[:-1]) for row in rows[: query.limit]]
        attributes = await self._attributes_of([instance.number for instance in instances])
        return [
            FoundInstance(
                instance=instance,
                position=Position(key=row[-1], number=instance.number),
                attributes=attributes.get(instance.number, {}),
            )
            for instance, row in zip(instances, rows, strict=False)
        ]

    async def count_found(self, found: "Filter | None", limit: int) -> int:
        from holdfast.storage.relational.search import Search  # noqa: PLC0415
        from holdfast.storage.search import PageOrder  # noqa: PLC0415

        search = Search(self._dialect, found, PageOrder(), None)
        counts = await self._search(*(search.count(lead, limit) for lead in await self._leads(search, found)))
        return min(limit, sum(int(count) for [(count,)] in counts))

    async def _leads(self, search: "Search", found: "Filter | None") -> "list[Lead]":
        """The ranges of indexes that the search reads; `FilterTooBroad` if that is every row of a large store."""
        from holdfast.storage.relational.search import WALK  # noqa: PLC0415

        if search.reads_everything and found is not None and await self._has_more_than(search.most_unindexed):
            from holdfast.core.filters import canonical  # noqa: PLC0415

            shown = canonical(found)
            cut = f"{shown[:LONGEST_SHOWN]}..." if len(shown) > LONGEST_SHOWN else shown
            raise FilterTooBroad(
                f"no index supports the filter {cut}, and the store has more than {search.most_unindexed:,} instances; "
                "add a time range such as `created > now - 1d`, or a test with = or `in` of state, workflow, id, "
                "parent, root or an attribute"
            )
        answers = await self._search(*search.probes()) if search.has_choice else []
        lead = search.choose([(row[0], row[1]) for [row] in answers])
        if lead is not WALK:
            return [lead]
        return search.walk([workflow for (workflow,) in await self._read(self.sql.list_workflows)])

    async def _has_more_than(self, limit: int) -> bool:
        """Whether the store has more instances: from the ends of the primary key, or else by a count up to a limit."""
        [(span,)] = await self._read(self.sql.span_of_numbers)
        if span <= limit:
            return False
        [[(count,)]] = await self._search((self.sql.count_instances, limit + 1))
        return bool(count > limit)

    async def read_attributes(self, number: InstanceNumber) -> dict[str, StoredAttribute]:
        return (await self._attributes_of([number])).get(number, {})

    async def _attributes_of(self, numbers: list[InstanceNumber]) -> dict[int, dict[str, StoredAttribute]]:
        if not numbers:
            return {}
        return stored_attributes(await self._read(self.sql.read_attributes, json.dumps(numbers)))

    async def read_secret(self, name: str) -> bytes:
        [(value,)] = await self._read(self.sql.read_secret, name)
        return bytes(value)

    async def read_families(self, roots: Sequence[InstanceNumber]) -> "list[FamilyMember]":
        return family_members_of(await self._read(self.sql.read_families, json.dumps(list(roots)), HELD))

    async def continued_instances(self, *, after: InstanceNumber, limit: int) -> list[tuple[InstanceNumber, str]]:
        rows = await self._read(self.sql.continued_instances, after, limit)
        return [(InstanceNumber(number), workflow) for number, workflow in rows]

    async def has_closed(self, count: int) -> bool:
        [(span,)] = await self._read(self.sql.span_of_numbers)
        if span < count:
            return False
        [[(found,)]] = await self._search((self.sql.count_closed, count))
        return bool(found == count)
