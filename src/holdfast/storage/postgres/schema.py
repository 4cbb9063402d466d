"""The schema of a PostgreSQL store: migrations, concurrent index builds, and the script for an administrator.

Each migration is a transaction of its own that locks the table of migrations, so that one of several processes runs it
and the others wait. It waits for no lock for long: transactions that come later queue behind the waiting one, so a
migration that meets a long reader is rolled back and retried after a pause.

Releases before and after a migration work on the same tables: each migration records the oldest release that does.

``CREATE INDEX CONCURRENTLY`` runs outside of a transaction, blocks no writer, and may take hours on a large table. If
it is interrupted, it leaves an invalid index with the name, which is dropped first. An index that another process is
still building is invalid, too: so the table is locked first in the mode that a builder holds.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from psycopg import errors

from holdfast.core.checks import require
from holdfast.errors import StoreError
from holdfast.storage.postgres.address import Address
from holdfast.storage.postgres.connection import PostgresConnection, connect, jitter, pause_seconds
from holdfast.storage.postgres.transaction import migrations
from holdfast.storage.relational.statements import Migration, check_release

INDEX_LOCK_TIMEOUT: Final = "2s"
"""For a lock that conflicts with building, dropping and vacuuming only."""
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
    """Build an index, unless it exists. The connection has no transaction."""
    state = _state(connection, schema, wanted)
    if state is False:
        connection.execute(wanted.drop(schema).encode())
    if not state:
        connection.execute(wanted.statement.encode())


def _state(connection: PostgresConnection, schema: str, wanted: IndexBuild) -> bool | None:
    """Whether the index is valid; None if it does not exist. The lock excludes a process that is building it."""
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = '{INDEX_LOCK_TIMEOUT}'".encode())
        connection.execute(f'LOCK TABLE "{schema}".{wanted.table} IN SHARE UPDATE EXCLUSIVE MODE'.encode())
        rows = connection.execute(STATE, (schema, wanted.name)).fetchall()
    return bool(rows[0][0]) if rows else None


logger = logging.getLogger("holdfast")

LOCK_TIMEOUT: Final = "500ms"
"""How long other transactions may queue behind a waiting migration: less than their own timeouts."""
MOST_TRIES: Final = 40
"""Consecutive attempts. With the pauses between them they take about five minutes."""
PAUSE_TIMES: Final = 10
"""The factor of the pauses over those of a group: up to ten seconds, in which other transactions run."""
_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE",
    f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'",
)
_MAKE_SCHEMA: Final = 'CREATE SCHEMA IF NOT EXISTS "{schema}"'
_MAKE_HISTORY: Final = 'CREATE TABLE IF NOT EXISTS "{schema}".migrations (number INT PRIMARY KEY, oldest INT NOT NULL)'
_LOCK: Final = (
    'LOCK TABLE "{schema}".migrations IN SHARE ROW EXCLUSIVE MODE',
    'SET LOCAL search_path = "{schema}"',
)
_OPTIONAL: Final = """\
-- PL/pgSQL from here: functions that write a group of changes in one call, or notify workers of inserted rows. A
-- database without PL/pgSQL refuses them. Leave these lines out there, up to the end of PL/pgSQL, and nothing else:
-- the record above says that this step is done. The store works without them, more slowly: each change is a round
-- trip of its own, and workers poll for inserted rows."""
_OPTIONAL_END: Final = "-- PL/pgSQL up to here."
_RECORD: Final = 'INSERT INTO "{schema}".migrations (number, oldest) VALUES ({number}, {oldest})'
_PATIENCE: Final = """
    SELECT set_config(name, '0', true) FROM pg_settings
    WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')
"""
"""The transaction that holds the lock while an index is built is idle for a long time."""

_RACES: Final = (errors.UniqueViolation, errors.DuplicateSchema, errors.DuplicateTable, errors.InternalError)
"""Errors of concurrent creation, which occur with IF NOT EXISTS, too."""
_LOCK_CONFLICTS: Final = (errors.LockNotAvailable, errors.DeadlockDetected, errors.QueryCanceled)
_UNKNOWN: Final = (errors.UndefinedObject, errors.FeatureNotSupported, errors.SyntaxError)
"""Errors where PL/pgSQL is missing or incomplete."""

Pause = Callable[[float], bool]
"""Waits for some seconds, and returns whether to stop."""


def script(schema: str, after: int = 0, known: Sequence[Migration] | None = None) -> Iterator[str]:
    """The statements of the migrations after `after`, for a role that may create tables.

    A script that was run before fails at its first record, and changes nothing.
    """
    for migration in known or migrations():
        if migration.number <= after:
            continue
        record = _RECORD.format(schema=schema, number=migration.number, oldest=migration.oldest)
        if migration.is_outside:
            for wanted in builds(migration.script, schema):
                yield from (wanted.drop(schema), wanted.statement)
            yield f"{record} ON CONFLICT DO NOTHING"
            continue
        yield from _BEGIN
        if after == 0:
            yield from (step.format(schema=schema) for step in (_MAKE_SCHEMA, _MAKE_HISTORY))
        yield from (step.format(schema=schema) for step in _LOCK)
        yield record
        statements = migration.script.strip().rstrip(";")
        yield f"{_OPTIONAL}\n{statements}" if migration.is_optional else statements
        yield f"{_OPTIONAL_END}\nCOMMIT" if migration.is_optional else "COMMIT"


def printed(schema: str, after: int = 0, known: Sequence[Migration] | None = None) -> str:
    """The script as text for psql."""
    newest = (known or migrations())[-1].number
    head = f"-- Holdfast, schema {schema}: from {after} to {newest}. For psql -v ON_ERROR_STOP=1."
    steps = [f"{step};" for step in script(schema, after, known)]
    return "\n".join([head, *(steps or ["-- There is nothing to do."])])


def version(connection: PostgresConnection, address: Address, known: Sequence[Migration] | None = None) -> int:
    """The number of the schema; 0 if there is none. Raises `ReleaseTooOld` for a schema that needs a newer release."""
    newest = (known or migrations())[-1].number
    asked = f'SELECT max(number), max(oldest) FROM "{address.schema}".migrations'  # noqa: S608 - a name that was checked
    try:
        rows = connection.execute(asked.encode()).fetchall()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return 0
    found, oldest = (int(str(number or 0)) for number in rows[0])
    check_release(address, found=found, oldest=oldest, newest=newest)
    return found


def require_current(connection: PostgresConnection, address: Address) -> None:
    """Raise `StoreError` unless the schema exists and has all migrations of this release."""
    newest = migrations()[-1].number
    found = version(connection, address)
    if found == 0:
        raise StoreError(f"there is no store at {address}")
    if found < newest:
        raise StoreError(f"{address} has schema {found} and this release reads {newest}: open it with a worker first")


def migrate(
    connection: PostgresConnection, address: Address, pause: Pause, known: Sequence[Migration] | None = None
) -> None:
    """Run the missing migrations. A schema that has all of them needs no lock and no right to create."""
    known = known or migrations()
    newest = known[-1].number
    tries = 0
    while (found := version(connection, address, known)) < newest:
        try:
            _next(connection, address, known)
            tries = 0
        except (*_RACES, *_LOCK_CONFLICTS) as error:
            tries += 1
            seconds = pause_seconds(tries, jitter())
            if isinstance(error, _LOCK_CONFLICTS):
                _warn_once(address, found, tries, error)
                seconds *= PAUSE_TIMES
            if tries == MOST_TRIES or pause(seconds):
                raise StoreError(
                    f"{address} has schema {found} and could not be migrated to {newest}: "
                    f"{error.diag.message_primary}; another session locks its tables or changes them; end it, and try "
                    "again"
                ) from error
        except errors.InsufficientPrivilege as error:
            raise StoreError(
                f"{address}: this role may not make or change the schema ({error.diag.message_primary}); "
                f"let one that may run what `holdfast migrate --print --after {found}` prints"
            ) from error


def _warn_once(address: Address, found: int, tries: int, error: errors.Error) -> None:
    if tries == 1:
        logger.warning(
            "%s: the migration after schema %d waits for locks of other sessions and is retried: %s",
            address,
            found,
            error.diag.message_primary,
        )


def _next(connection: PostgresConnection, address: Address, known: Sequence[Migration]) -> None:
    """Run one migration: the first one that is missing once the lock is held."""
    schema = address.schema
    try:
        for step in _BEGIN:
            connection.execute(step.encode())
        _prepare(connection, schema)
        found = version(connection, address, known)
        migration = next((one for one in known if one.number > found), None)
        if migration is not None:
            record = _RECORD.format(schema=schema, number=migration.number, oldest=migration.oldest)
            if migration.is_outside:
                connection.execute(_PATIENCE)
                _build_beside(address, migration)
            else:
                _apply(connection, address, migration)
            connection.execute(record.encode())
        connection.execute("COMMIT")
    except BaseException:
        if not connection.closed:
            connection.execute("ROLLBACK")
        raise


def _apply(connection: PostgresConnection, address: Address, migration: Migration) -> None:
    """Run a script. An optional one is skipped if the database cannot run it."""
    if not migration.is_optional:
        connection.execute(migration.script.encode())
        return
    connection.execute("SAVEPOINT optional")
    try:
        connection.execute(migration.script.encode())
    except _UNKNOWN as error:
        connection.execute("ROLLBACK TO SAVEPOINT optional")
        logger.warning(
            "%s: the functions of migration %d cannot be made; without them groups are written more slowly, and rows "
            "that clients insert are found by polling: %s",
            address,
            migration.number,
            error.diag.message_primary,
        )


def _prepare(connection: PostgresConnection, schema: str) -> None:
    """Create the schema and the table of migrations if they are missing, then lock the table. A role without the right
    to create schemas can use an existing one."""
    if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchall():
        connection.execute(_MAKE_SCHEMA.format(schema=schema).encode())
    for step in (_MAKE_HISTORY, *_LOCK):
        connection.execute(step.format(schema=schema).encode())


def _build_beside(address: Address, migration: Migration) -> None:
    """Build indexes on a connection of their own, while this one holds the lock on the table of migrations."""
    with connect(address) as beside:
        for wanted in builds(migration.script, address.schema):
            build(beside, address.schema, wanted)
