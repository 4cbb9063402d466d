"""A merge join of the tables of a store: each is read once, in the order of instance numbers.

An audit takes the rows of one instance from each scan, oldest instance first. Rows whose number no instance has are
reported on the way. Only the rows of one execution are in memory.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

from holdfast.storage.relational.raw_tables import Raw, Unreadable

Kind = TypeVar("Kind", bound=Raw)
END: Final = 1 << 63
"""Above the number of every instance."""


class Scan(Generic[Kind]):
    """One table. `key` returns the numbers of the instance and the execution of a row."""

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
        """Skips to the rows of an instance. Rows before them belong to no instance and are reported."""
        while self.number < number:
            orphan = self.number
            count = 0
            while self.number == orphan:
                count += 1
                self._advance()
            self._orphaned(self._table, orphan, count)

    def take(self, number: int, execution: int | None = None) -> list[Kind]:
        """Returns the next rows if they belong to the instance, or to one execution of it."""
        taken: list[Kind] = []
        while self.number == number and (execution is None or self.execution == execution) and self._next is not None:
            taken.append(self._next)
            self._advance()
        return taken

    def finish(self) -> None:
        """Skips to the end after the last instance."""
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
    """The key of a row that belongs to an execution."""
    return row.number, row.execution


def number_of(row: Any) -> tuple[int, int]:
    """The key of a row that belongs to an instance."""
    return row.number, 0


def parent_of(row: Any) -> tuple[int, int]:
    """The key of a child, which belongs to its parent."""
    return row.parent, row.parent_execution
