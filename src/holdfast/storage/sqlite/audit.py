"""The raw tables of a SQLite file for an audit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from holdfast.errors import StoreError
from holdfast.storage.relational.audit import RawTables, Unreadable
from holdfast.storage.relational.transaction import Row
from holdfast.storage.sqlite.connection import open_read_only
from holdfast.storage.sqlite.statements import statements


class SqliteTables(RawTables):
    """The tables of one file, at one moment."""

    sql = statements

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = open_read_only(path, may_be_empty=True)
        self._rows("BEGIN")

    def close(self) -> None:
        self._connection.close()

    def damage(self) -> list[str]:
        """What SQLite itself finds wrong with the file; nothing if it is sound."""
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
                except UnicodeDecodeError as error:  # SQLite takes any bytes as a text; the cursor is at the next row
                    yield Unreadable(table=table, number=None, row=f"behind {last[0]}", reason=str(error))
        except apsw.Error as error:
            raise StoreError(f"{self._path} cannot be read: {error}") from error
