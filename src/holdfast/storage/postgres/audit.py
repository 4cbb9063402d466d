"""The raw tables of a PostgreSQL store for an audit: one snapshot, in a transaction that cannot write."""

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import psycopg

from holdfast.errors import StoreError
from holdfast.storage.postgres.address import Address, parse
from holdfast.storage.postgres.connecting import ReconnectingConnection
from holdfast.storage.postgres.schema import version
from holdfast.storage.postgres.statements import statements_of
from holdfast.storage.postgres.transaction import ask_all
from holdfast.storage.relational.audit import RawTables, Unreadable
from holdfast.storage.relational.transaction import Row

FETCH: Final = 500
"""Rows that are fetched at once."""


class PostgresTables(RawTables):
    """The tables of one schema, at one moment."""

    def __init__(self, address: str | Address) -> None:
        self._address = parse(address) if isinstance(address, str) else address
        self.sql = statements_of(self._address.schema)
        self._connections = ReconnectingConnection(self._address)
        self._connection = self._connections.get()
        self._are_there = version(self._connection, self._address) > 0
        self._cursors = count(1)
        self._rows("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def close(self) -> None:
        self._connections.close()

    def damage(self) -> list[str]:
        """Nothing: the server checks its own files."""
        return []

    def are_there(self) -> bool:
        return self._are_there

    def _rows(self, statement: str, *bindings: Any) -> list[Row]:
        try:
            [rows] = ask_all(self._connection, (statement, *bindings))
        except psycopg.Error as error:
            raise StoreError(f"{self._address} cannot be read: {' '.join(str(error).split())}") from error
        return rows

    def _stream(self, statement: str, table: str) -> Iterator[Row | Unreadable]:
        """Through a cursor of the server, so that the client never holds a whole table."""
        del table
        name = f"audit_{next(self._cursors)}"
        self._rows(f"DECLARE {name} NO SCROLL CURSOR FOR {statement}")
        while rows := self._rows(f"FETCH FORWARD {FETCH} FROM {name}"):
            yield from rows
        self._rows(f"CLOSE {name}")
