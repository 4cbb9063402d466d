"""The schema of a PostgreSQL store: made, brought up to this release, and printed for those who do that themselves.

A migration runs in one transaction that has locked the table of migrations, so that of several processes one does it
and the others wait. The releases before and after it work on the same tables: see the migrations.
"""

from collections.abc import Iterator
from typing import Final

import psycopg
from psycopg import errors

from holdfast.errors import StoreError
from holdfast.storage.postgres.address import Address
from holdfast.storage.postgres.connecting import Connection
from holdfast.storage.postgres.statements import migrations

MOST_TRIES: Final = 10
"""To make a schema that others are making at the same moment."""
_PREPARATIONS: Final = (
    "BEGIN",
    "SET LOCAL lock_timeout = '30s'",
    'CREATE SCHEMA IF NOT EXISTS "{schema}"',
    'CREATE TABLE IF NOT EXISTS "{schema}".migrations (number INT PRIMARY KEY)',
    'LOCK TABLE "{schema}".migrations IN SHARE ROW EXCLUSIVE MODE',
    'SET LOCAL search_path = "{schema}"',
)

_RACES: Final = (errors.UniqueViolation, errors.DuplicateSchema, errors.DuplicateTable, errors.InternalError)
"""What PostgreSQL says when two make the same thing at once, also with IF NOT EXISTS."""


def script(schema: str, after: int = 0) -> Iterator[str]:
    """The statements that bring a schema from one number to the newest, for a role that may create."""
    yield from (step.format(schema=schema) for step in _PREPARATIONS)
    yield from _steps(after)
    yield "COMMIT"


def _steps(after: int) -> Iterator[str]:
    for number, text in migrations():
        if number > after:
            yield text.strip().rstrip(";")
            yield f"INSERT INTO migrations (number) VALUES ({number})"  # noqa: S608 - a number of our own


def make_tables(connection: Connection, schema: str) -> None:
    """The first migration alone: what the others are written for."""
    connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"'.encode())
    connection.execute(f'SET search_path = "{schema}"'.encode())
    connection.execute(migrations()[0][1].encode())


def version(connection: Connection, address: Address) -> int:
    """The number of the schema; 0 if there is none. One of a newer release is refused."""
    newest = migrations()[-1][0]
    try:
        rows = connection.execute(f'SELECT max(number) FROM "{address.schema}".migrations'.encode()).fetchall()  # noqa: S608
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return 0
    found = int(str(rows[0][0] or 0))
    if found > newest:
        raise StoreError(f"{address} was written by a newer release (schema {found}, this one knows {newest}): upgrade")
    return found


def require_current(connection: Connection, address: Address) -> None:
    """For those who only look: a store that is there, of this release."""
    newest = migrations()[-1][0]
    found = version(connection, address)
    if found == 0:
        raise StoreError(f"there is no store at {address}")
    if found < newest:
        raise StoreError(f"{address} has schema {found} and this release reads {newest}: open it with a worker first")


def migrate(connection: Connection, address: Address) -> None:
    """Bring the schema up to this release. Where it is already, nobody has to wait, or to have the right to create."""
    newest = migrations()[-1][0]
    for tries in range(1, MOST_TRIES + 1):
        if version(connection, address) == newest:
            return
        try:
            _run(connection, address)
        except _RACES:
            if tries == MOST_TRIES:
                raise
        except psycopg.errors.InsufficientPrivilege as error:
            raise StoreError(
                f"{address}: this role may not make or change the schema ({error.diag.message_primary}); "
                f"let one that may run what `holdfast migrate --print` prints"
            ) from error


def _run(connection: Connection, address: Address) -> None:
    """From the lock on nobody else changes the schema: what is there then decides what is left to do."""
    try:
        for step in _PREPARATIONS:
            connection.execute(step.format(schema=address.schema).encode())
        for step in _steps(version(connection, address)):
            connection.execute(step.encode())
        connection.execute("COMMIT")
    except BaseException:
        if not connection.closed:
            connection.execute("ROLLBACK")
        raise
