"""The few things asked of the SQLite library, and one write transaction with its time."""

from collections.abc import Callable
from typing import Any, Protocol

from holdfast.storage.relational.transaction import Row
from holdfast.storage.sqlite.statements import statements, step_statements


class SqliteCursor(Protocol):
    """Runs statements, and is run again and again: making one costs more than a statement."""

    def execute(self, statements: str, bindings: tuple[Any, ...] | None = None, /) -> "SqliteCursor": ...
    def fetchall(self) -> list[Row]: ...


class SqliteConnection(Protocol):
    """One connection of the one SQLite library that this process uses."""

    @property
    def in_transaction(self) -> bool: ...
    def cursor(self) -> SqliteCursor: ...
    def execute(self, statements: str, bindings: tuple[Any, ...] | None = None, /) -> SqliteCursor: ...
    def changes(self) -> int: ...
    def close(self) -> None: ...
    def config(self, operation: int, value: int, /) -> object: ...
    def set_wal_hook(self, callback: Callable[[Any, str, int], int] | None, /) -> None: ...
    def wal_checkpoint(self, dbname: str | None = None, mode: int = 0) -> tuple[int, int]: ...


class SqliteTransaction:
    """Statements of one group, between its BEGIN and its COMMIT."""

    __slots__ = ("_changes", "_execute", "_fetch", "now_ms", "sql", "steps")
    looks_first = True

    def __init__(self, connection: SqliteConnection, cursor: SqliteCursor, now_ms: int) -> None:
        self._execute = cursor.execute
        self._fetch = cursor.fetchall
        self._changes = connection.changes
        self.now_ms = now_ms
        self.sql = statements
        self.steps = step_statements()

    def change(self, statement: str, *bindings: Any) -> int:
        """Run a statement that changes rows; the answer is how many."""
        execute, changes = self._execute, self._changes
        execute(statement, bindings)
        return changes()

    def do(self, statement: str, *bindings: Any) -> None:
        """Run a statement that changes rows, of which nobody needs to know how many."""
        self._execute(statement, bindings)

    def finds(self, statement: str, *bindings: Any) -> bool:
        """Whether a look finds its row."""
        return bool(self.rows(statement, *bindings))

    def create(self, statement: str, *bindings: Any) -> int | None:
        """Insert an instance; the answer is its number, or None if its id is taken."""
        rows = self.rows(statement, *bindings)
        return rows[0][0] if rows else None

    def rows(self, statement: str, *bindings: Any) -> list[Row]:
        """Run a statement that gives rows."""
        execute, fetch = self._execute, self._fetch
        execute(statement, bindings)
        return fetch()
