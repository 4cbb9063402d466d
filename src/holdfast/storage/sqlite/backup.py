"""Copies a live database in steps, as it was when the copy began (R1).

The source is read in one read transaction, so that commits of other processes neither begin the copy again nor change
it. In WAL mode a reader blocks no writer. While it reads, checkpoints cannot empty the WAL, which grows by what is
written meanwhile.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import apsw

from holdfast.errors import StoreError
from holdfast.storage.sqlite.connection import check_library, open_for_copying

PAGES_PER_STEP: Final = 256
"""1 MiB with SQLite's default pages: a step takes some milliseconds, and progress is shown after each."""

CopyProgress = Callable[[int, int], None]
"""Receives the number of pages that were copied, and of all pages."""


def copy_database(source: Path, target: Path, progress: CopyProgress) -> bool:
    """Copy a database into an empty file. Nothing is synced. Returns whether it has the schema of this release.

    `StoreError` for a file that is not a store, or that a newer release has changed.
    """
    check_library()
    reader, is_current = open_for_copying(source)
    try:
        writer: Any = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            writer.execute("PRAGMA journal_mode = OFF")  # an interrupted copy is thrown away
            writer.execute("PRAGMA synchronous = OFF")
            reader.execute("BEGIN")
            reader.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()  # begins the read transaction
            with writer.backup("main", reader, "main") as copy:
                while not copy.done:
                    copy.step(PAGES_PER_STEP)
                    progress(copy.page_count - copy.remaining, copy.page_count)
            reader.execute("COMMIT")
        finally:
            writer.close()
    except apsw.FullError as error:
        raise StoreError(
            f"there is no space for the copy {target}; free some, or name a file on another disk"
        ) from error
    except apsw.Error as error:
        raise StoreError(f"{source} could not be copied to {target}: {_reason(error)}") from error
    finally:
        reader.close()
    return is_current


def _reason(error: apsw.Error) -> str:
    """The message of an error. One of a step of a backup has no message of its own, only a class."""
    return type(error).__name__ if str(error) == "not an error" else str(error)


def damage_of(path: Path) -> list[str]:
    """The findings of SQLite's own check of a file; empty if it is sound."""
    try:
        connection: Any = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check").fetchall()]
        finally:
            connection.close()
    except apsw.Error as error:
        return [str(error)]
    return [] if found == ["ok"] else found
