"""The tables in memory, to be read with SQL: scenarios check what is stored with statements that fit every store."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import msgspec
from tests.stores.memory_tables import MemoryTables

from holdfast.storage.sqlite.connection import create, migrate, open_writer
from holdfast.storage.versions import stored_version


def select(tables: MemoryTables, statement: str, *bindings: Any) -> list[tuple[Any, ...]]:
    """The rows of a statement that only reads."""
    connection: Any = apsw.Connection(":memory:")
    try:
        for create in _schema():
            connection.execute(create)
        _copy(tables, connection)
        found: list[tuple[Any, ...]] = connection.execute(statement, bindings).fetchall()
        return found
    finally:
        connection.close()


def write_file(tables: MemoryTables, path: Path) -> None:
    """Write the tables into a new SQLite store, for `verify`."""
    create(path)
    connection: Any = open_writer(path, durability="relaxed")
    try:
        migrate(connection, path)
        _copy(tables, connection)
    finally:
        connection.close()


@cache
def _schema() -> list[str]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        write_file(MemoryTables(), path)
        connection: Any = apsw.Connection(str(path))
        found = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        statements = [statement for (statement,) in found]
        connection.close()
    return statements


def _copy(tables: MemoryTables, connection: Any) -> None:
    with tables.lock:
        for table, rows in _columns_of(tables).items():
            known = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for row in rows:
                columns = [column for column in known if column in row]
                places = ", ".join("?" for _ in columns)
                statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"  # noqa: S608
                connection.execute(statement, [row[column] for column in columns])


def _columns_of(tables: MemoryTables) -> dict[str, Iterable[dict[str, Any]]]:
    """Rows by the names that tables and columns have in SQL."""
    return {
        "instances": (
            {
                **_fields(row),
                "version": stored_version(row.version),
                "waits": msgspec.json.encode(sorted(row.waits)).decode(),
                "mail": row.events_waiting,
                "event_policy": row.mailbox.policy,
                "mailbox_limit": row.mailbox.limit,
                "blocked_by": msgspec.json.encode(sorted(row.blocked_by)).decode(),
                "collation_key": row.key,
                "grace_ms": row.deadline and row.deadline.grace_ms,
                "deadline_at_ms": row.deadline and row.deadline.at_ms,
                "expires_at_ms": row.deadline and row.deadline.expires_at_ms,
                "parent": row.parent and row.parent.number,
                "parent_execution": row.parent and row.parent.execution,
                "parent_step": row.parent and row.parent.child,
                "parent_close": row.parent and row.parent_close,
            }
            for row in tables.instances.values()
        ),
        "attempts": ({**_fields(row.key), **_fields(row)} for row in tables.attempts.values()),
        "history": (
            {"number": number, "execution": execution, **_fields(row)}
            for (number, execution, _), row in tables.history.items()
        ),
        "inbox": ({**_fields(row.row), "name": row.name} for row in tables.inbox.values()),
        "timers": (
            {"number": number, "execution": execution, **_fields(row)}
            for (number, execution, _), row in tables.timers.items()
        ),
        "payloads": (
            {"number": number, "reference": reference, "data": row.data}
            for (number, reference), row in tables.payloads.items()
        ),
        "kept": (
            {"number": number, "key": key, "value": row.data} for (number, key), row in tables.state_values.items()
        ),
        "attributes": _attributes(tables),
        "updates": (
            {"number": number, "id": update, "asked": row.content, **_fields(row)}
            for (number, update), row in tables.updates.items()
        ),
        "received": ({"number": number, "id": message} for number, message in tables.received),
        "questions": ({**_fields(row.query), **_fields(row)} for row in tables.queries.values()),
        "workers": (_fields(row) for row in tables.workers.values()),
        "flows": ({"hash": digest, **_fields(row)} for digest, row in tables.flows.items()),
        "closings": ({"number": key[0], "execution": key[1], **_fields(row)} for key, row in tables.closings.items()),
        "commits": ({"id": key, **_fields(row)} for key, row in tables.commits.items()),
    }


def _attributes(tables: MemoryTables) -> Iterable[dict[str, Any]]:
    for (number, name), row in tables.attributes.items():
        for position, key in enumerate(row.value.keys):
            yield {
                "number": number,
                "name": name,
                "position": position,
                "type": row.value.type.value,
                "value": key,
                "created_at_ms": tables.instances[number].created_at_ms,
            }


def _fields(row: msgspec.Struct) -> dict[str, Any]:
    """The fields that SQL can store as they are."""
    fields = {name: getattr(row, name) for name in row.__struct_fields__}
    return {name: value for name, value in fields.items() if value is None or isinstance(value, int | str | bytes)}
