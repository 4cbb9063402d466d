"""The schema of a PostgreSQL store: made, brought up to this release, and printed for those who do that themselves.

Each migration is a transaction of its own that has locked the table of migrations, so that of several processes one
does it and the others wait. Nothing in it waits long for a lock: whoever waits for a table keeps everybody out who
comes later, so a migration that meets somebody who reads for long gives way, and is tried again after a pause.

Releases before and after a migration work on the same tables: with each one stands the oldest release that can.

Indexes that are built while others write: outside of a transaction, and begun again when that was interrupted.

``CREATE INDEX CONCURRENTLY`` blocks nobody, and may take hours on a large table. Whoever dies in the middle leaves an
index that is of no use but has the name; PostgreSQL marks it as not valid, and it is dropped first. One that another
process is still building looks the same: so first its table is asked for the lock that a builder has.
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


logger = logging.getLogger("holdfast")

LOCK_TIMEOUT: Final = "500ms"
"""How long others may have to wait because a migration waits: less than any of them has patience for."""
MOST_TRIES: Final = 40
"""In a row. With the pauses between them it is about five minutes."""
PAUSE_TIMES: Final = 10
"""The pauses are so much longer than those of a group: up to ten seconds, in which everybody else goes on."""
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
-- PL/pgSQL from here: a function that writes a group of changes in one call. A database without PL/pgSQL refuses it.
-- Leave these lines out there, up to the end of PL/pgSQL, and nothing else: the record above says that this step is
-- done. The store works without it, several times slower: each change is a round trip of its own."""
_OPTIONAL_END: Final = "-- PL/pgSQL up to here."
_RECORD: Final = 'INSERT INTO "{schema}".migrations (number, oldest) VALUES ({number}, {oldest})'
_PATIENCE: Final = """
    SELECT set_config(name, '0', true) FROM pg_settings
    WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')
"""
"""Whoever holds the lock while an index is built says nothing for a long time."""

_RACES: Final = (errors.UniqueViolation, errors.DuplicateSchema, errors.DuplicateTable, errors.InternalError)
"""What PostgreSQL says when two make the same thing at once, also with IF NOT EXISTS."""
_IN_THE_WAY: Final = (errors.LockNotAvailable, errors.DeadlockDetected, errors.QueryCanceled)
_UNKNOWN: Final = (errors.UndefinedObject, errors.FeatureNotSupported, errors.SyntaxError)
"""What is said where there is no PL/pgSQL, or not all of it."""

Pause = Callable[[float], bool]
"""Waits for so many seconds; the answer is whether to give up."""


def script(schema: str, after: int = 0, known: Sequence[Migration] | None = None) -> Iterator[str]:
    """The statements that bring a schema from one number to the newest, for a role that may create.

    One that was run before fails at its first record, before it has changed anything.
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
    """The same as a text for psql."""
    newest = (known or migrations())[-1].number
    head = f"-- Holdfast, schema {schema}: from {after} to {newest}. For psql -v ON_ERROR_STOP=1."
    steps = [f"{step};" for step in script(schema, after, known)]
    return "\n".join([head, *(steps or ["-- There is nothing to do."])])


def version(connection: PostgresConnection, address: Address, known: Sequence[Migration] | None = None) -> int:
    """The number of the schema; 0 if there is none. One that this release is too old for is refused."""
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
    """For those who only look: a store that is there, with everything that this release reads."""
    newest = migrations()[-1].number
    found = version(connection, address)
    if found == 0:
        raise StoreError(f"there is no store at {address}")
    if found < newest:
        raise StoreError(f"{address} has schema {found} and this release reads {newest}: open it with a worker first")


def migrate(
    connection: PostgresConnection, address: Address, pause: Pause, known: Sequence[Migration] | None = None
) -> None:
    """Bring the schema up to this release. Where it is already, nobody has to wait, or to have the right to create."""
    known = known or migrations()
    newest = known[-1].number
    tries = 0
    while (found := version(connection, address, known)) < newest:
        try:
            _next(connection, address, known)
            tries = 0
        except (*_RACES, *_IN_THE_WAY) as error:
            tries += 1
            seconds = pause_seconds(tries, jitter())
            if isinstance(error, _IN_THE_WAY):
                _tell(address, found, tries, error)
                seconds *= PAUSE_TIMES
            if tries == MOST_TRIES or pause(seconds):
                raise StoreError(
                    f"{address} has schema {found} and could not be brought to {newest}: {error.diag.message_primary}; "
                    f"somebody works on its tables for very long, or changes them"
                ) from error
        except errors.InsufficientPrivilege as error:
            raise StoreError(
                f"{address}: this role may not make or change the schema ({error.diag.message_primary}); "
                f"let one that may run what `holdfast migrate --print --after {found}` prints"
            ) from error


def _tell(address: Address, found: int, tries: int, error: errors.Error) -> None:
    if tries == 1:
        logger.warning(
            "%s: the migration after schema %d gives way to others and is tried again: %s",
            address,
            found,
            error.diag.message_primary,
        )


def _next(connection: PostgresConnection, address: Address, known: Sequence[Migration]) -> None:
    """One migration. From the lock on nobody else changes the schema: what is there then decides which."""
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
    """Run a script. One that the store can do without is left out where the database does not know how."""
    if not migration.is_optional:
        connection.execute(migration.script.encode())
        return
    connection.execute("SAVEPOINT optional")
    try:
        connection.execute(migration.script.encode())
    except _UNKNOWN as error:
        connection.execute("ROLLBACK TO SAVEPOINT optional")
        logger.warning(
            "%s: the function of migration %d cannot be made, and groups are written more slowly without it: %s",
            address,
            migration.number,
            error.diag.message_primary,
        )


def _prepare(connection: PostgresConnection, schema: str) -> None:
    """Make what is missing, then lock. A role that may not make schemas can still fill one that was made for it."""
    if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchall():
        connection.execute(_MAKE_SCHEMA.format(schema=schema).encode())
    for step in (_MAKE_HISTORY, *_LOCK):
        connection.execute(step.format(schema=schema).encode())


def _build_beside(address: Address, migration: Migration) -> None:
    """Build indexes on a connection of their own, while this one holds the lock on the table of migrations."""
    with connect(address) as beside:
        for wanted in builds(migration.script, address.schema):
            build(beside, address.schema, wanted)
