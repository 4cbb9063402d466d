"""The write transaction in which members are applied, with its time and its statements."""

from collections.abc import Sequence
from typing import Any, Protocol

from holdfast.storage.relational.statements import Statements
from holdfast.storage.wakeups import WakeupTargets

Row = tuple[Any, ...]


class ConcurrentChange(Exception):
    """Another transaction changed a row between two reads of it: the group has to be retried."""


class Transaction(Protocol):
    """Statements of one group, between its BEGIN and its COMMIT."""

    @property
    def now_ms(self) -> int:
        """The store's time, the same for all members of a group."""
        ...

    @property
    def sql(self) -> Statements:
        """The statements of this database."""
        ...

    @property
    def wakeups(self) -> WakeupTargets:
        """Collects the instances and queues that other processes have to know of."""
        ...

    @property
    def reads_are_cheap(self) -> bool:
        """Whether a read costs less than a statement that changes no row."""
        ...

    def update(self, statement: str, *bindings: Any) -> int:
        """Run a statement that changes rows. Returns their number."""
        ...

    def execute(self, statement: str, *bindings: Any) -> None:
        """Run a statement that changes rows, whose number does not matter."""
        ...

    def exists(self, statement: str, *bindings: Any) -> bool:
        """Whether a read finds its row."""
        ...

    def insert_instance(self, statement: str, *bindings: Any) -> int | None:
        """Insert an instance. Returns its number, or None if its id is taken."""
        ...

    def delete_instances(self, numbers: Sequence[int]) -> None:
        """Delete every row of instances, in all tables."""
        ...

    def fetch(self, statement: str, *bindings: Any) -> list[Row]:
        """Run a statement that returns rows."""
        ...
