"""Indexes that are built while others write: outside of a transaction, and begun again when that was interrupted.

``CREATE INDEX CONCURRENTLY`` blocks nobody, and may take hours on a large table. Whoever dies in the middle leaves an
index that is of no use but has the name; PostgreSQL marks it as not valid, and it is dropped first. One that another
process is still building looks the same: so first its table is asked for the lock that a builder has.
"""

import re
from typing import Final, NamedTuple

from holdfast.core.require import require
from holdfast.storage.postgres.connecting import PostgresConnection

INDEX_LOCK_TIMEOUT: Final = "2s"
"""For a lock that keeps no reader and no writer out, only those who build, drop or vacuum."""
STATE: Final = """
    SELECT indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = %s AND relname = %s
"""
_BUILD: Final = re.compile(r"CREATE (?:UNIQUE )?INDEX CONCURRENTLY (\w+) ON (\w+)\b")
_COMMENT: Final = re.compile(r"--[^\n]*")


class IndexBuild(NamedTuple):
    """One index to be built."""

    name: str
    table: str
    statement: str

    def drop(self, schema: str) -> str:
        return f'DROP INDEX CONCURRENTLY IF EXISTS "{schema}".{self.name}'


def builds(script: str, schema: str) -> list[IndexBuild]:
    """The statements of a migration that runs outside of a transaction; all are of this kind, and name no schema."""
    found: list[IndexBuild] = []
    for text in _COMMENT.sub("", script).split(";"):
        statement = " ".join(text.split())
        if not statement:
            continue
        match = _BUILD.match(statement)
        require(match is not None, f"outside of a transaction only indexes are built, and not by: {statement[:60]}")
        name, table = match.groups() if match else ("", "")
        qualified = statement.replace(f" ON {table}", f' ON "{schema}".{table}', 1)
        found.append(IndexBuild(name, table, qualified))
    return found


def build(connection: PostgresConnection, schema: str, wanted: IndexBuild) -> None:
    """Build an index, unless it is there. The connection has no transaction."""
    state = _state(connection, schema, wanted)
    if state is False:
        connection.execute(wanted.drop(schema).encode())
    if not state:
        connection.execute(wanted.statement.encode())


def _state(connection: PostgresConnection, schema: str, wanted: IndexBuild) -> bool | None:
    """Whether the index is valid; None: there is none. Nobody is building it at this moment."""
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = '{INDEX_LOCK_TIMEOUT}'".encode())
        connection.execute(f'LOCK TABLE "{schema}".{wanted.table} IN SHARE UPDATE EXCLUSIVE MODE'.encode())
        rows = connection.execute(STATE, (schema, wanted.name)).fetchall()
    return bool(rows[0][0]) if rows else None
