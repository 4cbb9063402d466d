"""The scenarios on another kind of store: what a test calls a file is a schema of a PostgreSQL database then.

With `HOLDFAST_TEST_STORE=postgres` all of them are; otherwise those of `REPRESENTATIVE` are run on both. Tests with
time that skips, and those about SQLite's own files, stay where they are.
"""

import hashlib
import itertools
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.postgres.server import Place

from holdfast.audit import auditor
from holdfast.client import engine
from holdfast.runtime.surroundings import Surroundings
from holdfast.storage.places import PlacedStore, is_address
from holdfast.storage.postgres.audit import PostgresTables
from holdfast.storage.postgres.statements import translate
from holdfast.storage.relational.audit import RawTables
from holdfast.storage.sqlite.store import IN_MEMORY

VARIABLE: Final = "HOLDFAST_TEST_STORE"
SQLITE, POSTGRES = "sqlite", "postgres"
REPRESENTATIVE: Final = frozenset(
    {
        "test_activities",
        "test_background",
        "test_blocked_loop",
        "test_continue_as_new",
        "test_describe",
        "test_events",
        "test_events_set_aside",
        "test_failures_in_the_log",
        "test_flows",
        "test_flows_cycles",
        "test_flows_each",
        "test_flows_families",
        "test_flows_random",
        "test_flows_versions",
        "test_flows_waits",
        "test_large_bytes",
        "test_leases",
        "test_lost_replies",
        "test_processes",
        "test_queries_reflect_messages",
        "test_reading_trouble",
        "test_several_engines",
        "test_streams",
        "test_updates",
    }
)

NOT_YET_ON_POSTGRES: Final = frozenset(
    {
        "test_A9_termination_while_the_next_execution_is_brought_to_life",
        "test_G11_a_query_does_not_foretell_the_turn_of_an_owner",
        "test_G11_a_turn_that_is_committed_while_the_store_is_read_is_not_missed",
        "test_G11_an_update_result_survives_a_crash",
        "test_G5_a_query_waits_for_what_arrived_while_a_turn_was_being_written",
        "test_G6_drop_unsubscribed_drops_with_a_warning_what_nobody_waits_for",
        "test_G6_each_wait_gets_one_and_a_wait_that_gave_up_leaves_the_event_to_the_next",
        "test_K7_the_fox_jumps",
        "test_L13_a_stream_whose_worker_dies_goes_on_elsewhere_without_a_gap",
        "test_W6_an_owner_whose_lease_has_run_out_is_not_waited_for",
        "test_W7_a_lone_worker_whose_lease_ran_out_goes_on_under_a_new_key",
        "test_a_damaged_instance_is_described",
        "test_what_is_not_registered_here_waits_and_the_log_says_so_once",
    }
)
"""Written while the variants on PostgreSQL ran on SQLite by mistake. Most use statements or methods of SQLite's own;
each has to be judged, and leaves this list when it passes."""

_fresh = itertools.count()
_server: list[str | None] = [None]
"""Where the schemas are, in a test that is run on PostgreSQL."""
_schemas: dict[str, Place] = {}
"""What the names of files stand for in this test."""


def kinds_of(module: str) -> list[str]:
    """On which stores the tests of a module are run."""
    if os.environ.get(VARIABLE) == POSTGRES:
        return [POSTGRES]
    return [SQLITE, POSTGRES] if module in REPRESENTATIVE else [SQLITE]


@contextmanager
def on_postgres(server: str, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Whatever names a file gets a schema instead."""
    open_store, open_tables = engine.open_store, auditor.open_tables

    def open_there(store: str | Path | PlacedStore, durability: str, surroundings: Surroundings) -> PlacedStore:
        if isinstance(store, str | Path) and not is_address(store):
            place = _place(server, str(store))  # each call is another one for a store in memory
            found = open_store(place.url, durability, surroundings)
            _schemas[str(found.path)] = place
            return found
        return open_store(store, durability, surroundings)

    def tables_there(store: str | Path) -> RawTables:
        return open_tables(store) if is_address(store) else PostgresTables(_place(server, str(store)).url)

    _server[0] = server
    monkeypatch.setattr(engine, "open_store", open_there)
    monkeypatch.setattr(auditor, "open_tables", tables_there)
    try:
        yield
    finally:
        _server[0] = None
        for place in set(_schemas.values()):
            place.drop()
        _schemas.clear()


def _place(server: str, name: str) -> Place:
    if name == IN_MEMORY:
        name = f"{IN_MEMORY}{next(_fresh)}"
    if name not in _schemas:
        digest = hashlib.sha256(f"{os.getpid()} {name}".encode()).hexdigest()[:24]
        _schemas[name] = Place(server, f"holdfast_test_{digest}")
    return _schemas[name]


def rows_of(path: Path, statement: str, *bindings: Any) -> list[tuple[Any, ...]] | None:
    """Rows of a schema that stands for a file; None if it is one, as where time skips."""
    if _server[0] is None or path.is_file():
        return None
    place = _place(_server[0], str(path))
    with place.connect() as connection:
        cursor: Any = connection.cursor(binary=True)
        text = translate(statement, place.schema)
        for number in range(len(bindings), 0, -1):
            text = text.replace(f"${number}", f"%(p{number})s")
        cursor.execute(text, {f"p{number}": value for number, value in enumerate(bindings, 1)})
        found: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
        return found


def named(path: Path) -> str:
    """What a test calls a file, as another process has to be told."""
    if _server[0] is None:
        return str(path)
    return _place(_server[0], str(path)).url


def are_files() -> bool:
    """Whether paths are what they say, and do not stand for schemas."""
    return _server[0] is None
