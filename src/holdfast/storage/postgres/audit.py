"""The raw tables of a PostgreSQL store for an audit: one snapshot, in a transaction that cannot write."""

from typing import Any

import psycopg

from holdfast.errors import StoreError
from holdfast.storage.postgres.address import Address, parse
from holdfast.storage.postgres.connecting import Reconnecting
from holdfast.storage.postgres.schema import version
from holdfast.storage.postgres.statements import statements_of
from holdfast.storage.postgres.transaction import ask_all
from holdfast.storage.relational.audit import RawTables
from holdfast.storage.relational.transaction import Row


class PostgresTables(RawTables):
    """The tables of one schema, at one moment."""

    def __init__(self, address: str | Address) -> None:
        self._address = parse(address) if isinstance(address, str) else address
        self.sql = statements_of(self._address.schema)
        self._connections = Reconnecting(self._address)
        self._connection = self._connections.get()
        self._are_there = version(self._connection, self._address) > 0
        self._rows("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def close(self) -> None:
        self._connections.close()

    def damage(self) -> list[str]:
        """The server looks after its files, and sums up their pages if it was told to."""
        return []

    def are_there(self) -> bool:
        return self._are_there

    def _rows(self, statement: str, *bindings: Any) -> list[Row]:
        try:
            [rows] = ask_all(self._connection, (statement, *bindings))
        except psycopg.Error as error:
            raise StoreError(f"{self._address} cannot be read: {' '.join(str(error).split())}") from error
        return rows
