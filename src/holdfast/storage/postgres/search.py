"""How PostgreSQL is made to follow one index in a search, whatever its planner knows of the tables (F8).

An equality would let the planner choose any index that has the order of the list, such as the whole list in its order.
So a range of an index is written as comparisons of rows, and its first columns are part of the order: only that index
has it. The other ways to read a table are switched off for the transaction, because a table without statistics is
otherwise read as a whole when the filter has many tests.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from holdfast.storage.relational.reads import BoundStatement

if TYPE_CHECKING:
    from holdfast.storage.relational.search import Ordered

BEGIN_SEARCH: Final[BoundStatement] = ("BEGIN ISOLATION LEVEL READ COMMITTED, READ ONLY",)
SWITCHED_OFF: Final = (
    *("enable_seqscan", "enable_bitmapscan", "enable_sort", "enable_incremental_sort"),
    *("enable_hashjoin", "enable_mergejoin", "enable_material", "enable_memoize", "jit"),
)
_OFF: Final = ", ".join([f"set_config('{name}', 'off', true)" for name in SWITCHED_OFF])
SETTINGS: Final = (
    f"SELECT {_OFF},"
    " set_config('max_parallel_workers_per_gather', '0', true), set_config('statement_timeout', $1, true)"
)


class PostgresDialect:
    """The statements of a search on PostgreSQL."""

    position = "strpos"

    def index_of(self, branch: "Ordered") -> str:
        del branch
        return ""

    def range_of(
        self, columns: Sequence[str], values: Sequence[str], key: str, bounds: tuple[str, str] | None
    ) -> list[str]:
        if bounds is None and not columns:
            return []
        row = ", ".join([*columns, *([key] if bounds else [])])
        low, high = (", ".join([*values, *([bound] if bound else [])]) for bound in bounds or ("", ""))
        return [f"({row}) >= ({low})", f"({row}) <= ({high})"]

    def order_of(self, columns: Sequence[str], direction: str) -> str:
        return "".join([f"{column} {direction}, " for column in columns])

    def merged(self, branches: Sequence[str], direction: str) -> str:
        """Each branch has its order, and the statement as a whole; an order of the union would be a sort of it."""
        order = f"ORDER BY 1 {direction}, 2 {direction}"
        return " UNION ALL ".join(
            [f"SELECT * FROM ({text} {order}) AS b{place}" for place, text in enumerate(branches)]
        )

    def joined(self, condition: str) -> str:
        tests = f" AND {condition}" if condition else ""
        return f" CROSS JOIN LATERAL (SELECT * FROM instances AS i WHERE i.number = k.number{tests} OFFSET 0) AS i"
