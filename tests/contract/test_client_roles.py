"""The roles of clients on PostgreSQL can do what the specification states, and nothing else: every table and column is
tried."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.sql import SQL, Identifier
from tests.postgres.server import Place
from tests.unit.cli.commands import Command
from tests.unit.cli.conftest import holdfast

import holdfast as hf
from holdfast.storage.postgres.address import parse
from holdfast.storage.postgres.notifier import make_notifier

__all__ = ["holdfast"]

INSERTS = {
    "starter": {
        "requests": "request_id kind workflow instance_id event_name input policy start_at_ms deadline_after_ms manual "
        "source",
    },
    "executor": {
        "activity_events": "event_id activity_exec_id claim transition sequence payload error source sent_at",
    },
}
READS = {"starter": {"request_status", "workflows"}, "executor": {"open_activities", "activity_event_status"}}
CALLS = {"starter": {"start_workflow", "raise_event"}, "executor": {"report"}}
"""As the specification states them."""
BATCHES = ("apply_changes_", "commit_group_")
"""Functions of workers, with the rights of their caller: a client that calls one is refused at its first table."""
REPORTER = """
import os, sys
import psycopg

exec_id, claim = os.environ["HOLDFAST_ACTIVITY_EXEC_ID"], os.environ["HOLDFAST_CLAIM"]
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    connection.execute("SELECT report(%s, 'RUNNING', claim => %s)", (exec_id, claim))
    connection.execute("SELECT report(%s, 'COMPLETED', %s, claim => %s)", (exec_id, sys.stdin.read(), claim))
"""
"""A program that was launched: its result is its input."""
NEVER_POSSIBLE = (
    errors.GeneratedAlways,
    errors.ObjectNotInPrerequisiteState,
    errors.WrongObjectType,
    errors.FeatureNotSupported,
)
"""Refusals that concern every role: of identity columns, and of views that cannot be written."""
VALUES = {"text": "'1'", "bigint": "1", "boolean": "false"}


@dataclass(frozen=True)
class Clients:
    """A login for each role, beside the owner of the tables."""

    place: Place
    logins: dict[str, str]

    def connect(self, role: str) -> psycopg.Connection:
        connection = psycopg.connect(
            self.place.server.replace("//postgres@", f"//{self.logins[role]}@"), autocommit=True, prepare_threshold=None
        )
        connection.execute(SQL("SET search_path = {}").format(Identifier(self.place.schema)))
        return connection


async def opened(url: str) -> None:
    await (await hf.connect(url)).close()


def roles_like(connection: psycopg.Connection, schema: str) -> list[str]:
    found = connection.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE %s ORDER BY 1", (f"{schema}%",))
    return [name for (name,) in found.fetchall()]


@pytest.fixture
def clients(postgres: Place, holdfast: Command) -> Iterator[Clients]:
    asyncio.run(opened(postgres.url))
    with postgres.connect() as connection:
        assert roles_like(connection, postgres.schema) == [], "opening a store creates no role"
        printed = holdfast("migrate", "--print", "--roles", "--store", postgres.url)
        assert printed.code == 0, printed.err
        for _ in range(2):
            connection.execute(printed.out.encode())
        groups = [f"{postgres.schema}_{role}" for role in ("executor", "starter")]
        assert roles_like(connection, postgres.schema) == groups
        logins = {role: f"client_{role}_{postgres.schema}" for role in INSERTS}
        try:
            for role, login in logins.items():
                connection.execute(SQL("CREATE ROLE {} LOGIN").format(Identifier(login)))
                group = f"{postgres.schema}_{role}"
                connection.execute(SQL("GRANT {} TO {}").format(Identifier(group), Identifier(login)))
            yield Clients(postgres, logins)
        finally:
            for role in (*logins.values(), *groups):
                with suppress(errors.UndefinedObject):
                    connection.execute(SQL("DROP OWNED BY {}").format(Identifier(role)))
                    connection.execute(SQL("DROP ROLE {}").format(Identifier(role)))


def columns(place: Place) -> dict[str, list[tuple[str, str]]]:
    """The columns of every table and view of the store, with their types."""
    with place.connect() as connection:
        found = connection.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = %s",
            (place.schema,),
        ).fetchall()
    tables: dict[str, list[tuple[str, str]]] = {}
    for table, column, kind in found:
        tables.setdefault(table, []).append((column, kind))
    return tables


def is_permitted(connection: psycopg.Connection, text: Any, *names: str) -> bool:
    """Whether the server runs a statement, apart from what it says of the values."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(SQL(text).format(*map(Identifier, names)))
    except errors.InsufficientPrivilege:
        return False
    except (errors.IntegrityError, errors.DataError):
        return True
    except NEVER_POSSIBLE:
        return False
    return True


@pytest.mark.parametrize("role", ["starter", "executor"])
def test_C13_a_role_writes_its_columns_and_reads_its_views_and_nothing_else(clients: Clients, role: str) -> None:
    tables = columns(clients.place)
    assert {"attempts", "offers", "payloads", "requests", "activity_events", "workers"} <= set(tables)
    inserted: dict[str, set[str]] = {}
    read: set[str] = set()
    with clients.connect(role) as connection:
        for table, found in tables.items():
            for column, kind in found:
                value = VALUES.get(kind, "'1'")
                if is_permitted(connection, f"INSERT INTO {{}} ({{}}) VALUES ({value})", table, column):  # noqa: S608
                    inserted.setdefault(table, set()).add(column)
                if is_permitted(connection, "SELECT {} FROM {}", column, table):
                    read.add(table)
                assert not is_permitted(connection, f"UPDATE {{}} SET {{}} = {value}", table, column), (table, column)  # noqa: S608
            assert not is_permitted(connection, "DELETE FROM {}", table), table
            assert not is_permitted(connection, "TRUNCATE {}", table), table
        assert not is_permitted(connection, "CREATE TABLE mine (it INT)")
    assert inserted == {table: set(names.split()) for table, names in INSERTS[role].items()}
    assert read == READS[role]


@pytest.mark.parametrize("role", ["starter", "executor"])
def test_C13_a_role_calls_its_functions(clients: Clients, role: str) -> None:
    with clients.connect(role) as connection:
        found = connection.execute(
            "SELECT proname FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace "
            "WHERE nspname = %s AND has_function_privilege(pg_proc.oid, 'EXECUTE')",
            (clients.place.schema,),
        ).fetchall()
        assert {name for (name,) in found if not name.startswith(BATCHES)} == CALLS[role]
        if role == "starter":
            for call in ("start_workflow('w', '[]', 'i', 'r')", "raise_event('i', 'e', '1', 'q')"):
                connection.execute(f"SELECT {call}".encode())
            answers = connection.execute("SELECT request_id, state FROM request_status ORDER BY 1").fetchall()
            assert answers == [("q", "NEW"), ("r", "NEW")]
        else:
            for _ in range(2):
                assert connection.execute("SELECT report('x', 'QUEUED', event_id => 'e')").fetchall() == [("e",)]
            assert connection.execute("SELECT event_id, state FROM activity_event_status").fetchall() == [("e", "NEW")]


@pytest.mark.parametrize("role", ["starter", "executor"])
def test_C13_a_role_repeats_its_insert_without_a_right_to_read(clients: Clients, role: str) -> None:
    insert = {
        "starter": "INSERT INTO requests (request_id, workflow) VALUES ('r', 'w') ON CONFLICT DO NOTHING",
        "executor": "INSERT INTO activity_events (event_id, activity_exec_id, transition) VALUES ('e', 'x', 'NOTE') "
        "ON CONFLICT DO NOTHING",
    }[role]
    with clients.connect(role) as connection:
        assert [connection.execute(insert.encode()).rowcount for _ in range(2)] == [1, 0]


def test_C13_the_inserts_of_the_roles_notify_workers(clients: Clients) -> None:
    """The trigger reads the names of activities, which an executor may not."""
    with clients.place.connect() as connection:
        connection.execute(
            SQL(
                "INSERT INTO {}.offers (exec_id, number, execution, activity, attempt, entry, name) "
                "VALUES ('x', 1, 1, 1, 1, 1, 'train')"
            ).format(Identifier(clients.place.schema))
        )

    async def scenario() -> None:
        names: asyncio.Queue[str | None] = asyncio.Queue()
        notifier = make_notifier(parse(clients.place.url), "me", lambda _: None)
        notifier.open()
        notifier.watch_rows(names.put_nowait)
        async with asyncio.timeout(30):
            assert await names.get() is None, "it listens"
            with clients.connect("executor") as executor, clients.connect("starter") as starter:
                executor.execute("SELECT report('x', 'QUEUED')")
                assert await names.get() == "activity_events:train"
                starter.execute("SELECT start_workflow('order', '[]', 'o')")
                assert await names.get() == "requests:order"
        notifier.close()

    asyncio.run(scenario())


def test_a_function_of_an_executor_sees_no_rows_that_the_view_leaves_out(clients: Clients) -> None:
    """A security barrier: a cheap function in a condition is not called with attempts that are not open."""
    with clients.place.connect() as owner:
        owner.execute(SQL("SET search_path = {}").format(Identifier(clients.place.schema)))
        owner.execute(
            "INSERT INTO instances (number, id, workflow, version, state, execution, turn, fence, stamp_ms, input, "
            "input_hash, created_at_ms) VALUES (1, 'it', 'w', '1', 'RUNNING', 1, 1, 1, 1, '', '', 1)"
        )
        owner.execute(
            "INSERT INTO attempts (number, execution, activity, attempt, name, queue, state, ledger, input, options, "
            "available_at_ms, scheduled_at_ms) VALUES (1, 1, 0, 1, 'train', 'gpu', 'RUNNING', 1, 'secret', '{}', 1, 1)"
        )
        owner.execute(
            "INSERT INTO offers (exec_id, number, execution, activity, attempt, entry, name) "
            "VALUES ('x', 1, 1, 0, 1, 1, 'train')"
        )
    seen: list[str] = []
    with clients.connect("executor") as connection:
        connection.add_notice_handler(lambda notice: seen.append(str(notice.message_primary)))
        connection.execute(
            "CREATE FUNCTION pg_temp.leak(TEXT) RETURNS BOOLEAN COST 0.0000001 LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE NOTICE '%', $1; RETURN true; END $$"
        )
        assert connection.execute("SELECT * FROM open_activities WHERE pg_temp.leak(activity_exec_id)").fetchall() == []
    assert seen == []


@hf.activity(external=True, queue="gpu", heartbeat=60, retry=hf.Retry(attempts=1))
async def train(size: int) -> dict[str, int]: ...  # type: ignore[empty-body]


@hf.workflow
async def trains(size: int) -> dict[str, int]:
    return await train(size)


def test_C13_C14_a_launched_program_reports_with_the_role_of_an_executor(clients: Clients) -> None:
    """It reads no table: its input and its ids are given to it."""
    own = clients.place.server.replace("//postgres@", f"//{clients.logins['executor']}@")
    address = f"{own}{'&' if '?' in own else '?'}options=-csearch_path%3D{clients.place.schema}"
    launcher = hf.CommandLauncher([sys.executable, "-c", REPORTER, address])

    async def scenario() -> None:
        async with (
            asyncio.timeout(60),
            hf.Engine(clients.place.url, workflows=[trains], activities=[train], launchers={"gpu": launcher}) as engine,
        ):
            assert await engine.run(trains, 3, id="it") == {"size": 3}

    asyncio.run(scenario())


def test_roles_are_printed_and_never_created_by_the_command(holdfast: Command) -> None:
    done = holdfast("migrate", "--roles", "--store", "postgresql:///shop")
    assert done.code == 2
    assert "--print --roles" in done.out + done.err
    done = holdfast("migrate", "--print", "--roles", "--store", "shop.db")
    assert done.code == 2
