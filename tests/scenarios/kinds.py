"""The scenarios on another kind of store: what a test calls a file is a schema of a PostgreSQL database, or the tables
of a store in memory.

With `HOLDFAST_TEST_STORE=postgres` all of them run on PostgreSQL, with `memory` in memory; otherwise the modules of
`REPRESENTATIVE` run on SQLite and PostgreSQL, and those of `IN_DICTIONARIES` in memory as well. Tests with time that
skips, and those about SQLite's own files, stay where they are.
"""

import hashlib
import itertools
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import psycopg
import pytest
from tests.postgres.server import Place
from tests.stores.memory import MemoryStore
from tests.stores.memory_as_sql import select, write_file
from tests.stores.memory_tables import MemoryTables

from holdfast import compose
from holdfast.compose import is_address
from holdfast.runtime.platform import Platform, SystemClockAndIds
from holdfast.storage.contract import IN_MEMORY, OpenableStore, Store
from holdfast.storage.postgres.store import PostgresTables
from holdfast.storage.postgres.transaction import translate
from holdfast.storage.relational.raw_tables import RawTables

VARIABLE: Final = "HOLDFAST_TEST_STORE"
SQLITE, POSTGRES, MEMORY = "sqlite", "postgres", "memory"
REPRESENTATIVE: Final = frozenset(
    {
        "test_activities",
        "test_background",
        "test_blocked_loop",
        "test_cancel_activity",
        "test_closing",
        "test_continue_as_new",
        "test_on_cancel",
        "test_information",
        "test_options_per_call",
        "test_workflow_retries",
        "test_describe",
        "test_events",
        "test_events_set_aside",
        "test_external",
        "test_external_deadlines",
        "test_execution_details",
        "test_failures_in_the_log",
        "test_flows",
        "test_flows_cycles",
        "test_flows_each",
        "test_flows_external",
        "test_flows_families",
        "test_flows_holds",
        "test_flows_random",
        "test_flows_streams",
        "test_flows_versions",
        "test_flows_waits",
        "test_large_bytes",
        "test_later_starts",
        "test_launchers",
        "test_leases",
        "test_lost_replies",
        "test_messages_at_the_end",
        "test_nested_unions",
        "test_on_error_block",
        "test_patches",
        "test_pause",
        "test_pause_exhausted",
        "test_prepare",
        "test_prepare_losses",
        "test_processes",
        "test_queries_reflect_messages",
        "test_reading_trouble",
        "test_requests",
        "test_restores",
        "test_retry_blocked",
        "test_bad_rows",
        "test_several_engines",
        "test_streams",
        "test_tracing",
        "test_updates",
        "test_versions",
        "test_versions_every_commit",
        "test_waiting_queries",
    }
)

IN_DICTIONARIES: Final = frozenset(
    {
        "test_activities",
        "test_cancel_activity",
        "test_children",
        "test_continue_as_new",
        "test_describe",
        "test_events",
        "test_events_set_aside",
        "test_flows",
        "test_later_starts",
        "test_messages_at_the_end",
        "test_patches",
        "test_policies",
        "test_pause",
        "test_pause_exhausted",
        "test_prepare",
        "test_prepare_losses",
        "test_queries",
        "test_retry_blocked",
        "test_several_engines",
        "test_state",
        "test_streams",
        "test_tracing",
        "test_terminate",
        "test_timers",
        "test_update_endings",
        "test_updates",
    }
)

_fresh = itertools.count()
_tables: list[dict[str, MemoryTables] | None] = [None]
"""What the names of files stand for, in a test that is run in memory."""
_server: list[str | None] = [None]
"""Where the schemas are, in a test that is run on PostgreSQL."""
_schemas: dict[str, Place] = {}
"""What the names of files stand for in this test."""
_snapshots: dict[Path, psycopg.Connection] = {}


def kinds_of(module: str) -> list[str]:
    """On which stores the tests of a module are run."""
    forced = os.environ.get(VARIABLE)
    if forced in (POSTGRES, MEMORY):
        return [forced]
    more = [POSTGRES] if module in REPRESENTATIVE else []
    more += [MEMORY] if module in IN_DICTIONARIES else []
    return [SQLITE, *more]


@contextmanager
def on_postgres(server: str, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Whatever names a file gets a schema instead."""
    open_store, open_tables = compose.open_store, compose.open_tables

    def open_there(store: str | Path | Store, durability: str, platform: Platform) -> OpenableStore:
        if isinstance(store, str | Path) and not is_address(store):
            place = _place(server, str(store))  # each call is another one for a store in memory
            found = open_store(place.url, durability, _beside_a_server(platform))
            _schemas[str(found.companion_path)] = place
            return found
        return open_store(store, durability, platform)

    def tables_there(store: str | Path) -> RawTables:
        return open_tables(store) if is_address(store) else PostgresTables(_place(server, str(store)).url)

    _server[0] = server
    monkeypatch.setattr(compose, "open_store", open_there)
    monkeypatch.setattr(compose, "open_tables", tables_there)
    try:
        yield
    finally:
        _server[0] = None
        for place in set(_schemas.values()):
            place.drop()
        _schemas.clear()


class NamedMemoryStore(MemoryStore):
    """A store in memory that is named as a file is."""

    def __init__(self, name: str, clock: Callable[[], int], tables: MemoryTables) -> None:
        super().__init__(clock, tables)
        self._name = name

    @property
    def companion_path(self) -> Path:
        return Path(self._name)


@contextmanager
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Whatever names a file gets tables in memory instead."""
    open_store, open_tables, tables = compose.open_store, compose.open_tables, dict[str, MemoryTables]()

    def open_there(store: str | Path | Store, durability: str, platform: Platform) -> OpenableStore:
        if not isinstance(store, str | Path) or is_address(store):
            return open_store(store, durability, platform)
        name = f"{IN_MEMORY}{next(_fresh)}" if str(store) == IN_MEMORY else str(compose.checked_path(store))
        found = NamedMemoryStore(name, platform.providers.now_ms, tables.setdefault(name, MemoryTables()))
        return open_store(found, durability, platform)

    def tables_there(store: str | Path | Store) -> RawTables:
        if str(store) not in tables:
            return open_tables(store)
        copy = Path(folder) / f"{next(_fresh)}.db"
        write_file(tables[str(store)], copy)
        return open_tables(copy)

    monkeypatch.setattr(compose, "open_store", open_there)
    monkeypatch.setattr(compose, "open_tables", tables_there)
    _tables[0] = tables
    try:
        with TemporaryDirectory() as folder:
            yield
    finally:
        _tables[0] = None


def _beside_a_server(platform: Platform) -> Platform:
    """A machine that sleeps in a test only pretends to: the clock of the server has not gone on meanwhile."""
    if isinstance(platform.providers, SystemClockAndIds):
        return msgspec.structs.replace(platform, providers=SystemClockAndIds())
    return platform


def _place(server: str, name: str) -> Place:
    if name == IN_MEMORY:
        name = f"{IN_MEMORY}{next(_fresh)}"
    if name not in _schemas:
        digest = hashlib.sha256(f"{os.getpid()} {name}".encode()).hexdigest()[:24]
        _schemas[name] = Place(server, f"holdfast_test_{digest}")
    return _schemas[name]


def rows_of(path: Path, statement: str, *bindings: Any) -> list[tuple[Any, ...]] | None:
    """Rows of a schema or of tables that stand for a file; None if it is one, as where time skips."""
    by_name = _tables[0] or {}
    if str(path) in by_name:
        if not statement.lstrip().startswith("SELECT"):
            pytest.skip("this test changes rows with SQL, and the tables in memory are only read with it")
        return select(by_name[str(path)], statement, *bindings)
    if _server[0] is None or path.is_file():
        return None
    place = _place(_server[0], str(path))
    with nullcontext(_snapshots[path]) if path in _snapshots else place.connect() as connection:
        connection.execute(f"SET search_path TO {place.schema}".encode())  # views are not named by the schema
        cursor: Any = connection.cursor(binary=True)
        text = translate(statement, place.schema).replace("%", "%%")
        for number in range(len(bindings), 0, -1):
            text = text.replace(f"${number}", f"%(p{number})s")
        cursor.execute(text, {f"p{number}": value for number, value in enumerate(bindings, 1)})
        found: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
        return found


@contextmanager
def snapshot_of(path: Path) -> Generator[None]:
    """Inside, `rows_of` reads one moment. A server may still commit what a process sent before it was killed."""
    if _server[0] is None or path.is_file():
        yield
        return
    with _place(_server[0], str(path)).connect() as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        _snapshots[path] = connection
        try:
            yield
        finally:
            del _snapshots[path]


def named(path: Path) -> str:
    """What a test calls a file, as another process has to be told."""
    if _server[0] is None:
        return str(path)
    return _place(_server[0], str(path)).url


def are_files() -> bool:
    """Whether paths are what they say, and do not stand for schemas or tables."""
    return _server[0] is None and _tables[0] is None
