"""What members need of a database to be applied: one write transaction with its time and its statements."""

from typing import Any, Protocol

from holdfast.storage.relational.statements import Statements

Row = tuple[Any, ...]


class Moved(Exception):
    """Another transaction changed a row between two looks at it. Nothing is wrong; the group has to be tried again."""


class Transaction(Protocol):
    """Statements of one group, between its BEGIN and its COMMIT."""

    @property
    def now_ms(self) -> int:
        """The store's time, which stands still within a group."""
        ...

    @property
    def sql(self) -> Statements:
        """The statements of this database."""
        ...

    def change(self, statement: str, *bindings: Any) -> int:
        """Run a statement that changes rows; the answer is how many."""
        ...

    def rows(self, statement: str, *bindings: Any) -> list[Row]:
        """Run a statement that gives rows."""
        ...
