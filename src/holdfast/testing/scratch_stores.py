"""A store of its own beside a given one, for measurements: on the same disk or in the same database, without its data.

For a SQLite path the scratch store is a file in a new folder beside it; the given file is not opened. For a PostgreSQL
URL it is a new schema of the same database, which needs the right to create one; no other schema is read or written.
Both are removed at the end, also after an error or an interrupt. A process that is killed leaves them; `left_over`
names those of earlier processes.
"""

import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from holdfast import compose
from holdfast.errors import StoreError, UsageError
from holdfast.runtime.platform import ClockAndIds
from holdfast.storage.contract import OpenableStore

SCHEMA_PREFIX: Final = "holdfast_bench_"
FOLDER_MARK: Final = "-bench-"
FILE: Final = "bench.db"
BARE_FILE: Final = "bare.db"
CHECKPOINT_PAGES: Final = 1_000
DROP_SECONDS: Final = 10
COLUMNS: Final = "(instance TEXT NOT NULL, value TEXT NOT NULL)"
ROW: Final = ("bench-1", '{"result":1}')
LEFT_SCHEMAS: Final = "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s) ORDER BY nspname"


class BareTable(Protocol):
    """A table in the database of a store, written without the engine: the limit of the store."""

    def ping(self) -> None:
        """One read that touches no table."""
        ...

    def insert(self, rows: int) -> None:
        """Insert rows in one transaction, and wait until it is on disk."""
        ...


@dataclass(frozen=True, slots=True)
class ScratchStore:
    """The scratch store, ready to be opened."""

    place: str
    """Where it is, for human readers: a folder, or a schema."""
    left_over: tuple[str, ...]
    """What earlier processes have left, as commands or statements that remove it."""
    is_remote: bool
    """Whether a server has it, so that a round trip is worth measuring."""
    bare: BareTable
    open_store: Callable[[], OpenableStore]
    """Makes a store object, which an engine opens and closes."""


@contextmanager
def scratch_store(store: str | Path, clock: ClockAndIds) -> Generator[ScratchStore]:
    """Make a scratch store beside `store`, and remove it at the end."""
    compose.check_platform()
    name = clock.unique_text()[:8]
    if isinstance(store, str) and compose.is_address(store):
        compose.require_psycopg()
        with _schema(store, name, clock) as made:
            yield made
    else:
        with _folder(Path(store), name, clock) as made:
            yield made


# ---------------------------------------------------------------- SQLite


class _SqliteTable:
    def __init__(self, path: Path) -> None:
        from holdfast.storage.sqlite.connection import open_writer  # noqa: PLC0415

        self._connection: Any = open_writer(path, durability="full")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        self._connection.execute(f"CREATE TABLE bare {COLUMNS}")

    def ping(self) -> None:
        self._connection.execute("SELECT 1").fetchall()

    def insert(self, rows: int) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO bare VALUES (?, ?)", [ROW] * rows)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _folder(path: Path, name: str, clock: ClockAndIds) -> Generator[ScratchStore]:
    from holdfast.storage.sqlite.store import SqliteStore  # noqa: PLC0415 - imported after the platform is checked

    path = path.resolve()
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name the file of a store in it, which need not exist")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}, so its disk cannot be measured")
    left = sorted(path.parent.glob(f"{path.name}{FOLDER_MARK}*"))
    folder = path.with_name(f"{path.name}{FOLDER_MARK}{name}")
    try:
        folder.mkdir()
    except OSError as error:
        raise StoreError(f"{path.parent} cannot be written: {error.strerror}") from error
    try:
        table = _SqliteTable(folder / BARE_FILE)
        try:
            words = tuple(f"rm -r '{each}'" for each in left)
            yield ScratchStore(
                str(folder),
                words,
                is_remote=False,
                bare=table,
                open_store=lambda: SqliteStore(folder / FILE, clock=clock.now_ms, elapsed_ms=clock.elapsed_precise_ms),
            )
        finally:
            table.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------- PostgreSQL


class _PostgresTable:
    """Uses one connection, with the settings of the store's connections."""

    def __init__(self, connection: Any, schema: str) -> None:
        self._connection = connection
        insert = f'INSERT INTO "{schema}".bare'
        self._one = f"{insert} VALUES (%s, %s)".encode()
        self._many = f"{insert} SELECT %s, %s FROM generate_series(1, %s)".encode()  # noqa: S608 - a name made here

    def ping(self) -> None:
        self._connection.execute("SELECT 1").fetchall()

    def insert(self, rows: int) -> None:
        if rows == 1:
            self._connection.execute(self._one, ROW)
        else:
            self._connection.execute(self._many, (*ROW, rows))


@contextmanager
def _schema(url: str, name: str, clock: ClockAndIds) -> Generator[ScratchStore]:
    import psycopg  # noqa: PLC0415 - an extra

    from holdfast.storage.postgres.address import parse  # noqa: PLC0415
    from holdfast.storage.postgres.connection import ReconnectingConnection  # noqa: PLC0415
    from holdfast.storage.postgres.store import PostgresStore  # noqa: PLC0415

    try:
        address = parse(url)
    except ValueError as error:
        raise UsageError(str(error)) from error
    schema = f"{SCHEMA_PREFIX}{name}"
    opened = ReconnectingConnection(address)
    try:
        connection = opened.get()
        left = [str(found) for (found,) in connection.execute(LEFT_SCHEMAS, (SCHEMA_PREFIX,)).fetchall()]
        try:
            connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
        except psycopg.Error as error:
            raise StoreError(f"{address}: a schema for the measurement cannot be created: {error}") from error
        try:
            connection.execute(f'CREATE TABLE "{schema}".bare {COLUMNS}'.encode())
            yield ScratchStore(
                schema,
                tuple(f"DROP SCHEMA {each} CASCADE;" for each in left),
                is_remote=True,
                bare=_PostgresTable(connection, schema),
                open_store=lambda: PostgresStore(replace(address, schema=schema), elapsed_ms=clock.elapsed_ms),
            )
        finally:
            opened.close()
            _drop(address, schema)
    finally:
        opened.close()


def _drop(address: Any, schema: str) -> None:
    """Drop the schema on a new connection: that of the measurement may have been interrupted or lost."""
    import psycopg  # noqa: PLC0415 - an extra

    from holdfast.storage.postgres.connection import ReconnectingConnection  # noqa: PLC0415

    statement = f'DROP SCHEMA "{schema}" CASCADE'
    opened = ReconnectingConnection(address)
    try:
        connection = opened.get()
        with connection.transaction():
            connection.execute("SET LOCAL client_min_messages = warning")
            connection.execute(f"SET LOCAL lock_timeout = '{DROP_SECONDS}s'".encode())
            connection.execute(statement.encode())
    except (StoreError, psycopg.Error) as error:
        raise StoreError(f"the schema of the measurement is left: run {statement} ({error})") from error
    finally:
        opened.close()
