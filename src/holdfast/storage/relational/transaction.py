"""What members need of a database to be applied: one write transaction with its time and its statements."""

from typing import Any, Protocol

from holdfast.storage.relational.statements import Statements

Row = tuple[Any, ...]


class ConcurrentChange(Exception):
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

    @property
    def reads_are_cheap(self) -> bool:
        """Whether a look costs less than a change that meets nothing."""
        ...

    def update(self, statement: str, *bindings: Any) -> int:
        """Run a statement that changes rows; the answer is how many."""
        ...

    def execute(self, statement: str, *bindings: Any) -> None:
        """Run a statement that changes rows, of which nobody needs to know how many."""
        ...

    def exists(self, statement: str, *bindings: Any) -> bool:
        """Whether a look finds its row."""
        ...

    def insert_instance(self, statement: str, *bindings: Any) -> int | None:
        """Insert an instance; the answer is its number, or None if its id is taken."""
        ...

    def fetch(self, statement: str, *bindings: Any) -> list[Row]:
        """Run a statement that gives rows."""
        ...
