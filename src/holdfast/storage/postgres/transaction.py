"""One write transaction of PostgreSQL, with its time and the statements of its schema."""

from typing import Any, Final

from psycopg import RawCursor

from holdfast.storage.postgres.connecting import PostgresConnection, one_round_trip
from holdfast.storage.relational.reading import BoundStatement
from holdfast.storage.relational.statements import Statements
from holdfast.storage.relational.transaction import Row

BEGIN: Final[BoundStatement] = ("BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE",)
"""Whatever the role or the database prefers: a statement sees what was committed while the one before waited."""


def ask_all(connection: PostgresConnection, *asked: BoundStatement) -> list[list[Row]]:
    """Run statements in one round trip. One that gives no rows is answered by how many it changed."""
    cursors: list[Any] = []
    with one_round_trip(connection):
        for ask in asked:
            cursor: Any = RawCursor(connection)  # it takes literal texts only, by its types
            cursors.append(cursor.execute(ask[0], ask[1:], binary=True))
    return [cursor.fetchall() if cursor.description else [(cursor.rowcount,)] for cursor in cursors]


class PostgresTransaction:
    """Statements of one group, between its BEGIN and its COMMIT. Each is one round trip."""

    __slots__ = ("_cursor", "now_ms", "sql", "steps")
    looks_first = True

    def __init__(self, connection: PostgresConnection, sql: Statements, now_ms: int) -> None:
        self._cursor: Any = RawCursor(connection)
        self.sql = self.steps = sql
        self.now_ms = now_ms

    def change(self, statement: str, *bindings: Any) -> int:
        """Run a statement that changes rows; the answer is how many."""
        changed: int = self._cursor.execute(statement, bindings, binary=True).rowcount
        return changed

    def do(self, statement: str, *bindings: Any) -> None:
        """Run a statement that changes rows, of which nobody needs to know how many."""
        self._cursor.execute(statement, bindings, binary=True)

    def finds(self, statement: str, *bindings: Any) -> bool:
        """Whether a look finds its row."""
        return bool(self.rows(statement, *bindings))

    def create(self, statement: str, *bindings: Any) -> int | None:
        """Insert an instance; the answer is its number, or None if its id is taken."""
        rows = self.rows(statement, *bindings)
        return rows[0][0] if rows else None

    def rows(self, statement: str, *bindings: Any) -> list[Row]:
        """Run a statement that gives rows."""
        rows: list[Row] = self._cursor.execute(statement, bindings, binary=True).fetchall()
        return rows
