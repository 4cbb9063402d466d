"""The names that stores, other processes and programs of users depend on. A test compares them with a checked-in list.

``python -m tools.stored_formats`` writes the list again. It starts a PostgreSQL server of its own for the tables.

A name that is added is a new line of the list. A name that is removed or changed makes stores or programs of the
release before unusable: it needs a migration, or the old name has to be accepted, too.
"""

import asyncio
import inspect
import json
import sqlite3
import tempfile
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Final, cast, get_args

import msgspec
from tests.postgres.places import begin_run, end_run
from tests.postgres.server import place, server

import holdfast
from holdfast import Engine, errors
from holdfast.core.activity_options import ActivityOptions, RetryPolicy, StreamOptions
from holdfast.core.admission import EventPolicy
from holdfast.core.children import ParentClose, ParentEnd
from holdfast.core.collation import Digit
from holdfast.core.flow import definition
from holdfast.core.flow.graph import Join
from holdfast.core.history import HistoryEvent, Payload
from holdfast.core.leases import WorkerState
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.queries import Reply, ReplyKind
from holdfast.core.updates import UpdateState
from holdfast.payloads.failures import RecordedFailure
from holdfast.runtime.crash_detection import HostIdentity
from holdfast.storage.postgres.address import Address
from holdfast.storage.postgres.optimistic.group_function import FUNCTION, MISSED, UNSUITABLE
from holdfast.storage.relational.apply.workers import LossVerdict

TARGET: Final = Path(__file__).parents[1] / "tests" / "tidy" / "stored_formats.json"

ENUMS: Final[dict[str, type[Enum]]] = {
    "state of an attempt": AttemptState,
    "state of an instance": InstanceState,
    "state of a worker": WorkerState,
    "loss of a worker": LossVerdict,
    "state of an update": UpdateState,
    "reply to a query": ReplyKind,
    "children at the end of a parent": ParentClose,
    "end of a parent": ParentEnd,
    "policy for events": EventPolicy,
    "digit of a key": Digit,
    "join of a node": Join,
    "failure policy of a flow": definition.FailurePolicy,
}
STRUCTS: Final[dict[str, type[msgspec.Struct]]] = {
    "payload": Payload,
    "failure": RecordedFailure,
    "options of an attempt": ActivityOptions,
    "retry of an attempt": RetryPolicy,
    "stream of an attempt": StreamOptions,
    "reply": Reply,
    "host of a worker": HostIdentity,
    "flow": definition.FlowDefinition,
    "node of a flow": definition.Node,
    "edge of a flow": definition.After,
    "each of a node": definition.Each,
    "rules of a node": definition.RunRules,
    "retry of a node": definition.RetryRules,
}
LONGEST_LINE: Final = 500
Names = dict[str, Any]


def names() -> Names:
    """Everything but the tables."""
    return {
        "history events": {_tag(event): _fields(event) for event in get_args(HistoryEvent)},
        "flow actions": {_tag(action): _fields(action) for action in definition.Action.__subclasses__()},
        "structures": {what: _fields(struct) for what, struct in STRUCTS.items()},
        "values": {what: [member.value for member in enum] for what, enum in ENUMS.items()},
        "companion files": asyncio.run(_companions()),
        "notification channel": Address(parameters=(), schema="shop").channel,
        "group function": [FUNCTION, MISSED, UNSUITABLE],
        "errors": sorted(_qualified(errors.HoldfastError)),
        "public names": sorted(holdfast.__all__),
    }


def _tag(struct: type[msgspec.Struct]) -> str:
    return str(struct.__struct_config__.tag)


def _fields(struct: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(struct)]


def _qualified(error: type[BaseException]) -> Iterable[str]:
    """The names by which a `RecordedFailure` keeps the errors of the engine."""
    if error.__module__ == errors.__name__ and not inspect.isabstract(error):
        yield f"{error.__module__}.{error.__qualname__}"
    for below in error.__subclasses__():
        yield from _qualified(below)


async def _companions() -> list[str]:
    """The files and folders beside a SQLite store that is in use, by what follows the name of the store."""
    with tempfile.TemporaryDirectory() as folder:
        async with Engine(f"{folder}/store"):
            return await asyncio.to_thread(_beside, Path(folder) / "store")


def _beside(store: Path) -> list[str]:
    return sorted(path.name.removeprefix(store.name) for path in store.parent.iterdir() if path != store)


Columns = dict[str, list[str]]


def sqlite_tables() -> Columns:
    """The tables and views of a new SQLite store with their columns and types."""

    async def make(store: Path) -> None:
        async with Engine(store):
            pass

    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        asyncio.run(make(store))
        connection = sqlite3.connect(store)
        try:
            asked = (
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' "
                "ORDER BY name"
            )
            tables = [name for (name,) in connection.execute(asked)]
            return {
                table: [f"{name} {kind}" for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({table})")]
                for table in tables
            }
        finally:
            connection.close()


def postgres_tables(url: str, schema: str, connection: Any) -> Columns:
    """The same of a new schema. `connection` reads the catalogue."""

    async def make() -> None:
        async with Engine(url):
            pass

    asyncio.run(make())
    asked = (
        "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = %s "
        "ORDER BY table_name, ordinal_position"
    )
    found: Columns = {}
    for table, column, kind in connection.execute(asked, (schema,)).fetchall():
        found.setdefault(table, []).append(f"{column} {kind}")
    return found


def _text(value: Any, indent: str = "") -> str:
    """JSON with one line for each list that has a name of its own, and for each item of the longest lists."""
    if isinstance(value, dict):
        named = cast("Names", value)
        parts = [f"{indent} {json.dumps(key)}: {_text(each, indent + ' ')}" for key, each in named.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    if isinstance(value, list) and len(json.dumps(value)) > LONGEST_LINE:
        parts = [f"{indent} {json.dumps(each)}" for each in cast("Iterable[Any]", value)]
        return "[\n" + ",\n".join(parts) + f"\n{indent}]"
    return json.dumps(value)


def main() -> None:
    """Write the list."""
    begin_run()
    try:
        with server() as url, place(url) as mine, mine.connect() as connection:
            tables = {"sqlite": sqlite_tables(), "postgres": postgres_tables(mine.url, mine.schema, connection)}
    finally:
        end_run()
    TARGET.write_text(_text(names() | {"tables": tables}) + "\n", encoding="utf-8")
    print(TARGET)


if __name__ == "__main__":
    main()
