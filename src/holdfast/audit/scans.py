"""Tables read once, in the order of instance numbers, and joined as they are read (a merge join of sorted streams).

An audit asks each scan for the rows of one instance, oldest first. Rows of numbers that no instance has are found on
the way. Only the rows of one execution are in memory.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

from holdfast.storage.relational.raw_tables import Raw, Unreadable

Kind = TypeVar("Kind", bound=Raw)
END: Final = 1 << 63
"""Behind the number of every instance."""


class Scan(Generic[Kind]):
    """One table. `key` gives the number of the instance and of the execution of a row."""

    def __init__(
        self,
        table: str,
        rows: Iterator[Kind | Unreadable],
        key: Callable[[Kind], tuple[int, int]],
        *,
        unreadable: Callable[[Unreadable], None],
        orphaned: Callable[[str, int, int], None],
    ) -> None:
        self._table = table
        self._rows = rows
        self._key = key
        self._unreadable = unreadable
        self._orphaned = orphaned
        self._next: Kind | None = None
        self.number = -END
        """The instance of the next row."""
        self.execution = 0
        self._advance()

    def seek(self, number: int) -> None:
        """Go to the rows of an instance. What is before them belongs to no instance."""
        while self.number < number:
            orphan = self.number
            count = 0
            while self.number == orphan:
                count += 1
                self._advance()
            self._orphaned(self._table, orphan, count)

    def take(self, number: int, execution: int | None = None) -> list[Kind]:
        """The rows of an instance, or of one execution of it, that come next."""
        taken: list[Kind] = []
        while self.number == number and (execution is None or self.execution == execution) and self._next is not None:
            taken.append(self._next)
            self._advance()
        return taken

    def finish(self) -> None:
        """Go to the end: no instance is left."""
        self.seek(END)

    def _advance(self) -> None:
        for row in self._rows:
            if isinstance(row, Unreadable):
                self._unreadable(row)
                continue
            self._next = row
            self.number, self.execution = self._key(row)
            return
        self._next = None
        self.number = END


def key_of(row: Any) -> tuple[int, int]:
    """Of rows that belong to an execution."""
    return row.number, row.execution


def number_of(row: Any) -> tuple[int, int]:
    """Of rows that belong to an instance as a whole."""
    return row.number, 0


def parent_of(row: Any) -> tuple[int, int]:
    """Of children: they belong to their parent."""
    return row.parent, row.parent_execution
