"""One write transaction of PostgreSQL, with its time and the statements of its schema.

The store's time is the server's, which every worker shares, and which never goes back (W9). A transaction reads it from
the server, and leases are judged by it. Between transactions it advances by the clock of this machine from the last
read. Tests pass a clock of their own, which takes precedence.

Every table is qualified with its schema when a statement is read, so that no connection needs a search path. The shared
statements are written for SQLite; `translate` rewrites the four differences that all of them have.
"""

import json
import re
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from psycopg import RawCursor

from holdfast.storage.postgres.connection import PostgresConnection, one_round_trip
from holdfast.storage.relational import statements
from holdfast.storage.relational.raw_tables import RAW_COLUMNS
from holdfast.storage.relational.reads import BoundStatement
from holdfast.storage.relational.statements import Migration, Statements
from holdfast.storage.relational.transaction import Row
from holdfast.storage.wakeups import WakeupTargets

BEGIN: Final[BoundStatement] = ("BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE",)
"""Whatever the defaults of the role or the database: a statement sees commits that were made while it waited."""


def run_pipelined(connection: PostgresConnection, *asked: BoundStatement) -> list[list[Row]]:
    """Run statements in one round trip. The result of a statement without rows is the number of rows it changed."""
    cursors: list[Any] = []
    with one_round_trip(connection):
        for ask in asked:
            cursor: Any = RawCursor(connection)  # its types accept literal strings only
            cursors.append(cursor.execute(ask[0], ask[1:], binary=True))
    return [cursor.fetchall() if cursor.description else [(cursor.rowcount,)] for cursor in cursors]


class PostgresTransaction:
    """Statements of one group, between its BEGIN and its COMMIT. Each is one round trip."""

    __slots__ = ("_cursor", "now_ms", "sql", "wakeups")
    reads_are_cheap = True

    def __init__(self, connection: PostgresConnection, sql: Statements, now_ms: int) -> None:
        self._cursor: Any = RawCursor(connection)
        self.sql = sql
        self.now_ms = now_ms
        self.wakeups = WakeupTargets()

    def update(self, statement: str, *bindings: Any) -> int:
        """Run a statement that changes rows. Returns their number."""
        changed: int = self._cursor.execute(statement, bindings, binary=True).rowcount
        return changed

    def execute(self, statement: str, *bindings: Any) -> None:
        """Run a statement that changes rows, whose number does not matter."""
        self._cursor.execute(statement, bindings, binary=True)

    def exists(self, statement: str, *bindings: Any) -> bool:
        """Whether a read finds its row."""
        return bool(self.fetch(statement, *bindings))

    def insert_instance(self, statement: str, *bindings: Any) -> int | None:
        """Insert an instance. Returns its number, or None if its id is taken."""
        rows = self.fetch(statement, *bindings)
        return rows[0][0] if rows else None

    def delete_instances(self, numbers: Sequence[int]) -> None:
        """Delete every row of instances, in one round trip."""
        self.execute(self.sql.delete_instances, json.dumps(numbers))

    def fetch(self, statement: str, *bindings: Any) -> list[Row]:
        """Run a statement that returns rows."""
        rows: list[Row] = self._cursor.execute(statement, bindings, binary=True).fetchall()
        return rows


MARK_EVERY_MS: Final = 1_000
"""How far the mark in the database may be behind. It matters if the server's clock goes back: after a failover."""


MOST_AHEAD_MS: Final = 50
"""How far the time of this machine between transactions may be ahead of the server; it is not taken back."""


class ServerClock:
    """One for each store; its connections read and set it from their threads."""

    def __init__(self, given: Callable[[], int] | None, elapsed_ms: Callable[[], float]) -> None:
        self._given = given
        self._elapsed_ms = elapsed_ms
        self._lock = threading.Lock()
        self._mark_ms = 0
        self._committed_ms = 0
        self._read_ms = 0
        self._read_at_ms = 0.0

    @property
    def slack_ms(self) -> int:
        """How far the mark in the database may be behind the time of a transaction."""
        return 0 if self._given is not None else MARK_EVERY_MS

    @property
    def marks_every_group(self) -> bool:
        """Whether groups advance the mark, and not only heartbeats."""
        return self._given is not None

    def now_ms(self) -> int:
        """The time between transactions, by the clock of this machine."""
        with self._lock:
            if self._given is not None:
                now_ms = self._given()
            else:
                now_ms = self._read_ms + int(self._elapsed_ms() - self._read_at_ms)
            self._mark_ms = max(self._mark_ms, now_ms, self._committed_ms)
            return self._mark_ms

    def read(self, server_ms: int, mark_ms: int) -> int:
        """The time of a transaction, from the server's clock and the mark in the database."""
        with self._lock:
            self._read_ms = server_ms
            self._read_at_ms = self._elapsed_ms()
            now_ms = server_ms if self._given is None else self._given()
            said_ms = min(self._mark_ms, now_ms + MOST_AHEAD_MS)
            self._committed_ms = max(self._committed_ms, now_ms, mark_ms, said_ms)
            if self._given is not None:
                self._mark_ms = max(self._mark_ms, self._committed_ms)
            return self._committed_ms


PACKAGE: Final = "holdfast.storage.postgres"
ROW_LOCK: Final = "FOR NO KEY UPDATE"
"""A decision that is based on a locked row holds until the commit."""
TABLES: Final = (
    *(
        "instances",
        "flows",
        "closings",
        "history",
        "inbox",
        "received",
        "timers",
        "attempts",
        "payloads",
        "kept",
        "updates",
    ),
    *("questions", "workers", "commits", "clock", "migrations", "requests", "activity_events", "offers"),
    *("attributes", "secrets"),
)

_PLACEHOLDER: Final = re.compile(r"\?(\d*)")
_SAME: Final = re.compile(r"\bIS \$")
_HINT: Final = re.compile(r"(?<=[ (])\+(?=[a-z])")
_EACH: Final = re.compile(r"json_each\(([^()]*)\)(?! AS \w+\()")
_EACH_NAMED: Final = re.compile(r"json_each\(([^()]*)\)(?= AS \w+\()")
_TABLE: Final = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE) ({'|'.join(TABLES)})\b")


CLAIM_KEYS: Final = (
    "SELECT pair.value ->> 0 AS workflow, pair.value ->> 1 AS version "
    "FROM jsonb_array_elements({0}::jsonb) AS pair(value) WHERE pair.value ->> 1 IS NOT NULL "
    "UNION SELECT name, version FROM flows WHERE name IN ("
    "SELECT pair.value ->> 0 FROM jsonb_array_elements({0}::jsonb) AS pair(value) WHERE pair.value ->> 1 IS NULL)"
)
"""See `Statements`."""


@lru_cache
def statements_of(schema: str) -> Statements:
    """The statements on the tables of a schema."""
    return Statements(
        PACKAGE,
        raw_columns=RAW_COLUMNS,
        claim_keys=CLAIM_KEYS,
        row_lock=ROW_LOCK,
        translate=lambda text: translate(text, schema),
    )


def translate(text: str, schema: str) -> str:
    """A shared statement for PostgreSQL: `?` is `$1`, JSON lists are expanded, hints for SQLite's planner removed."""
    counted = iter(range(1, text.count("?") + 1))
    text = _PLACEHOLDER.sub(lambda found: f"${found[1] or next(counted)}", text)
    text = _SAME.sub("IS NOT DISTINCT FROM $", text)
    text = _HINT.sub("", text)
    text = _EACH.sub(r"jsonb_array_elements_text((\1)::jsonb) AS json_each(value)", text)
    text = _EACH_NAMED.sub(r"jsonb_array_elements_text((\1)::jsonb)", text)
    for function in ("nextval", "setval"):
        text = text.replace(f"{function}('", f'{function}(\'"{schema}".')
    return _TABLE.sub(rf'\1 "{schema}".\2', text)


def migrations() -> tuple[Migration, ...]:
    """The migrations of the PostgreSQL store, oldest first."""
    return statements.migrations(PACKAGE)
