"""Opening a SQLite file: the library's version, file mode, pragmas, migrations; and its raw tables for an audit.

A file that is damaged, read-only, of a newer release or not a database of Holdfast is refused with a message that names
the reason, and nothing in it is changed.
"""

import os
import stat
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol, cast

import apsw

from holdfast.errors import StoreError
from holdfast.storage.relational.raw_tables import RAW_COLUMNS, RawTables, Unreadable
from holdfast.storage.relational.statements import Migration, Statements, check_release
from holdfast.storage.relational.statements import migrations as read_migrations
from holdfast.storage.relational.transaction import Row

PACKAGE: Final = "holdfast.storage.sqlite"
CLAIM_KEYS: Final = (
    "SELECT value ->> 0 AS workflow, value ->> 1 AS version FROM json_each({0}) WHERE value ->> 1 IS NOT NULL "
    "UNION SELECT name, version FROM flows WHERE name IN ("
    "SELECT value ->> 0 FROM json_each({0}) WHERE value ->> 1 IS NULL)"
)
"""See `Statements`."""


@lru_cache
def statements() -> Statements:
    """The statements of the SQLite store."""
    return Statements(PACKAGE, raw_columns=RAW_COLUMNS, claim_keys=CLAIM_KEYS)


def migrations() -> tuple[Migration, ...]:
    """The migrations of the SQLite store, oldest first."""
    return read_migrations(PACKAGE)


class SqliteCursor(Protocol):
    """Runs statements. It is reused: making one costs more than a statement."""

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
    def set_busy_handler(self, callback: Callable[[int], bool] | None, /) -> None: ...
    def set_wal_hook(self, callback: Callable[[Any, str, int], int] | None, /) -> None: ...
    def wal_checkpoint(self, dbname: str | None = None, mode: int = 0) -> tuple[int, int]: ...


OLDEST_SQLITE: Final = (3, 51, 3)
"""Versions before this one can corrupt a database when two connections reset the WAL at once."""
APPLICATION_ID: Final = 0x486F6C64
"""Marks the file as Holdfast's ("Hold"), so that a database of another program is never migrated."""
FILE_MODE: Final = 0o600
STATEMENT_CACHE: Final = 200
SYNCHRONOUS: Final = {"full": "FULL", "relaxed": "NORMAL", "none": "OFF"}
"""A power cut loses nothing that was committed; the newest commits; or the whole file, which is temporary."""
HISTORY: Final = "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, oldest INTEGER NOT NULL)"
"""The migrations of the file, each with the oldest release that works with it."""
BUSY_TIMEOUT_MS: Final = 60_000
"""For readers, and while a store is opened. Only another program can hold SQLite's own lock: processes of Holdfast
queue on `WriteLock`, and their writers have a handler of their own (`ForeignLockWait`)."""


def check_library() -> None:
    """Raise `StoreError` for a SQLite that is known to lose data."""
    found = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if found < OLDEST_SQLITE:
        raise StoreError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a database in WAL mode; "
            f"{'.'.join(map(str, OLDEST_SQLITE))} or newer is needed: upgrade apsw"
        )


def open_writer(path: Path, *, durability: str) -> SqliteConnection:
    """A connection that writes. Creates the file if it is missing."""
    check_library()
    create(path)
    try:
        connection = _connect(path, apsw.SQLITE_OPEN_READWRITE)
        _configure(connection, durability)
    except apsw.Error as error:
        raise StoreError(f"{path} cannot be used as a store: {error}") from error
    return connection


def open_reader(path: Path) -> SqliteConnection:
    """A connection that reads committed data and cannot write."""
    try:
        connection = _connect(path, apsw.SQLITE_OPEN_READWRITE)
        connection.execute("PRAGMA query_only = ON")
    except apsw.Error as error:
        raise StoreError(f"{path} cannot be read as a store: {error}") from error
    return connection


def open_read_only(path: Path, *, may_be_empty: bool = False) -> SqliteConnection:
    """A connection to an existing store of this release that creates and changes nothing.

    A process that died between creating the file and its tables leaves an empty one, allowed with `may_be_empty`.
    """
    check_library()
    if not path.is_file():
        raise StoreError(f"there is no store at {path}")
    try:
        connection = _connect(path, apsw.SQLITE_OPEN_READONLY)
        version, newest = _check_schema(connection, path)
    except apsw.Error as error:
        raise StoreError(f"{path} cannot be read as a store: {error}") from error
    if version < newest and not (version == 0 and may_be_empty):
        connection.close()
        if version == 0:
            raise StoreError(f"{path} holds nothing yet")
        raise StoreError(f"{path} has schema {version} and this release reads {newest}: open it with a worker first")
    return connection


def open_for_copying(path: Path) -> tuple[SqliteConnection, bool]:
    """A connection to an existing store of this release or an earlier one that changes nothing, and whether it has the
    schema of this release."""
    if not path.is_file():
        raise StoreError(f"there is no store at {path}")
    try:
        connection = _connect(path, apsw.SQLITE_OPEN_READONLY)
        version, newest = _check_schema(connection, path)
    except apsw.Error as error:
        raise StoreError(f"{path} cannot be read as a store: {error}") from error
    if version == 0:
        connection.close()
        raise StoreError(f"{path} holds nothing yet")
    return connection, version >= newest


def is_current(connection: SqliteConnection, path: Path) -> bool:
    """Whether the schema has all migrations of this release; it may have more."""
    version, newest = _check_schema(connection, path)
    return version >= newest


def migrate(connection: SqliteConnection, path: Path) -> None:
    """Run the missing migrations. The caller holds the write lock."""
    version, _ = _check_schema(connection, path)
    for migration in migrations():
        if migration.number > version:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(HISTORY)
                connection.execute(migration.script)
                connection.execute("INSERT INTO migrations VALUES (?, ?)", (migration.number, migration.oldest))
                connection.execute(f"PRAGMA user_version = {migration.number}")
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise


def _connect(path: Path, flags: int) -> SqliteConnection:
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=STATEMENT_CACHE)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return cast("SqliteConnection", connection)


def _configure(connection: SqliteConnection, durability: str) -> None:
    if connection.execute("PRAGMA page_count").fetchall()[0][0] == 0:  # other files keep their mode until a VACUUM, and
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # setting it there waits for the write lock
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchall()[0][0]
    if mode != "wal":
        raise StoreError(f"the file system does not support SQLite's WAL mode (it chose {mode!r})")
    connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA temp_store = MEMORY")


def create(path: Path) -> None:
    """Create the file if it is missing, readable by its owner only. An existing file is checked without opening it:
    closing it here would drop the locks that SQLite holds on it for this process.
    """
    try:
        os.close(os.open(path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))  # a link may name a new file
    except FileExistsError:
        _check_existing(path)
    except FileNotFoundError as error:
        raise StoreError(
            f"there is no folder {path.parent} for the store {path.name}; make it, or correct the path"
        ) from error
    except OSError as error:
        raise StoreError(f"{path} cannot be opened for writing: {error.strerror}") from error


def _check_existing(path: Path) -> None:
    if not stat.S_ISREG(path.stat().st_mode):
        raise StoreError(f"{path} is not a file; name one for the store")
    if not os.access(path, os.R_OK | os.W_OK):
        raise StoreError(f"{path} cannot be opened for writing: permission denied")


def _check_schema(connection: SqliteConnection, path: Path) -> tuple[int, int]:
    """The number of the schema and of the newest migration. Raises for a file of a newer release or another program."""
    newest = migrations()[-1].number
    version = _pragma(connection, "user_version")
    mark = _pragma(connection, "application_id")
    if version > newest:
        check_release(path, found=version, oldest=_oldest_release(connection, version), newest=newest)
    if mark not in (0, APPLICATION_ID) or (mark == 0 and _has_tables(connection)):
        raise StoreError(f"{path} is a database of something else; name another file")
    return version, newest


def _oldest_release(connection: SqliteConnection, version: int) -> int:
    """The oldest release that works with the schema; without a record of it, the one that made the schema."""
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'").fetchall():
        return version
    [(newest, oldest)] = connection.execute("SELECT max(number), max(oldest) FROM migrations").fetchall()
    return int(str(oldest)) if newest == version else version


def _pragma(connection: SqliteConnection, name: str) -> int:
    value = connection.execute(f"PRAGMA {name}").fetchall()[0][0]
    return int(str(value))


def _has_tables(connection: SqliteConnection) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall())


class SqliteTables(RawTables):
    """The tables of one file, in one snapshot."""

    def __init__(self, path: Path) -> None:
        self.sql = statements()
        self._path = path
        self._connection = open_read_only(path, may_be_empty=True)
        self._rows("BEGIN")

    def close(self) -> None:
        self._connection.close()

    def damage(self) -> list[str]:
        """The findings of SQLite's own check of the file; empty if it is sound."""
        try:
            found = [str(row[0]) for row in self._connection.execute("PRAGMA integrity_check").fetchall()]
        except apsw.Error as error:
            return [str(error)]
        return [] if found == ["ok"] else found

    def are_there(self) -> bool:
        return bool(self._rows("SELECT 1 FROM sqlite_schema LIMIT 1"))

    def _rows(self, statement: str, *bindings: Any) -> list[Row]:
        try:
            return self._connection.execute(statement, bindings).fetchall()
        except apsw.Error as error:
            raise StoreError(f"{self._path} cannot be read: {error}") from error

    def _stream(self, statement: str, table: str) -> Iterator[Row | Unreadable]:
        try:
            cursor: Any = self._connection.execute(statement)
            last: Row = ("none",)
            is_open = True
            while is_open:
                try:
                    for last in cursor:
                        yield last
                    is_open = False
                except UnicodeDecodeError as error:  # SQLite stores any bytes as text; the cursor is at the next row
                    yield Unreadable(table=table, number=None, row=f"behind {last[0]}", reason=str(error))
        except apsw.Error as error:
            raise StoreError(f"{self._path} cannot be read: {error}") from error
