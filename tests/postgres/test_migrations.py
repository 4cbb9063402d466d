"""Migrations while the release before goes on: it works beside newer tables, and nobody waits long for a migration."""

import asyncio
import logging
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from tests.forking.processes import program
from tests.postgres import programs
from tests.postgres.processes import ENVIRONMENT, ROOT, told_by, verify, watched, words
from tests.postgres.server import Place
from tests.postgres.stores import ask, on_a_store, run

import holdfast as hf
from holdfast.errors import InvariantBroken
from holdfast.storage.members.outcomes import StartedInstance
from holdfast.storage.postgres import schema as indexing
from holdfast.storage.postgres.address import parse
from holdfast.storage.postgres.connection import RetryingConnection
from holdfast.storage.postgres.schema import builds, migrate, printed
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.postgres.transaction import migrations
from holdfast.storage.records import CommitId
from holdfast.storage.relational.statements import Migration, read
from holdfast.storage.sqlite import connection as sqlite_connection
from holdfast.storage.sqlite.connection import migrations as sqlite_migrations
from holdfast.testing.conformance.bench import ManualClock, start

GUIDE = ROOT / "docs" / "guide" / "postgresql.md"
LEASE = "3"
STEP = 3
LOOKS = 3
NOTES = """-- oldest: 1
ALTER TABLE instances ADD COLUMN note TEXT;
ALTER TABLE attempts ADD COLUMN weight BIGINT NOT NULL DEFAULT 1;
CREATE TABLE notes (number BIGINT PRIMARY KEY, note TEXT);
"""
INDEX = """-- oldest: 1
-- outside of a transaction
CREATE INDEX CONCURRENTLY instances_by_note ON instances (note) WHERE note IS NOT NULL;  -- of those that have one
"""
NEWEST = migrations()[-1].number
OF_FILES = sqlite_migrations()[-1].number


def later(steps: int, text: str, newest: int = NEWEST) -> Migration:
    """A migration of a release to come."""
    return read(f"{newest + steps:04}_later.sql", text)


ADDED = (*migrations(), later(1, NOTES))
INDEXED = (*ADDED, later(2, INDEX))
"""The history of releases to come."""


def upgrade(
    place: Place, known: tuple[Migration, ...] = INDEXED, pause: Callable[[float], bool] = lambda _: True
) -> None:
    """What a newer release does when it opens the store."""
    insisting = RetryingConnection(parse(place.url))
    try:
        insisting.run(lambda connection: migrate(connection, parse(place.url), pause, known))
    finally:
        insisting.close()


def upgrade_file(path: Path, patch: pytest.MonkeyPatch) -> None:
    newer = (*sqlite_migrations(), later(1, NOTES, OF_FILES))
    with patch.context() as patched:
        patched.setattr(sqlite_connection, "migrations", lambda: newer)
        asyncio.run(open_and_close(str(path)))


async def open_and_close(store: str) -> None:
    await (await hf.connect(store)).close()


def index_is_valid(place: Place) -> bool:
    asked = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
    with place.connect() as connection:
        return connection.execute(asked, (f"{place.schema}.instances_by_note",)).fetchall() == [(True,)]


# ---------------------------------------------------------------- releases beside each other


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_release_goes_on_and_starts_beside_tables_that_have_more(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place: Place | None = request.getfixturevalue("postgres") if kind == "postgres" else None
    store = place.url if place else str(tmp_path / "shop.db")
    errors = tmp_path / "errors"
    with watched(words("worker", store, LEASE), errors) as one:
        one.have_said(1)
        with watched(words("client", store), errors) as client:
            client.say_more(STEP)
            if place:
                upgrade(place, pause=lambda seconds: threading.Event().wait(seconds))
            else:
                upgrade_file(Path(store), monkeypatch)
            client.say_more(STEP)
            with watched(words("worker", store, LEASE), errors) as two:
                two.have_said(1)
                one.finish()
                client.say_more(STEP)
                told = told_by(client)
                two.finish()
    assert told.wrong == []
    assert told.troubles == 0, errors.read_text("utf-8")
    assert "is sound" in verify(store)


def too_old(found: int, oldest: int, known: int) -> str:
    return rf"\(schema {found}\) and needs one that knows schema {oldest}; this one knows {known}"


def test_a_release_that_is_too_old_for_the_tables_says_so_and_names_both_numbers(
    postgres: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(open_and_close(postgres.url))
    upgrade(postgres)
    asyncio.run(open_and_close(postgres.url))
    gone = later(3, f"-- oldest: {NEWEST + 2}\nALTER TABLE instances DROP COLUMN blocked;")
    upgrade(postgres, (*INDEXED, gone))
    with pytest.raises(hf.errors.ReleaseTooOld, match=too_old(NEWEST + 3, NEWEST + 2, NEWEST)):
        asyncio.run(open_and_close(postgres.url))
    path = tmp_path / "shop.db"
    upgrade_file(path, monkeypatch)
    asyncio.run(open_and_close(str(path)))
    file = sqlite_connection.open_writer(path, durability="none")
    file.execute("INSERT INTO migrations VALUES (?, ?)", (OF_FILES + 2, OF_FILES + 1))
    file.execute(f"PRAGMA user_version = {OF_FILES + 2}")
    file.close()
    with pytest.raises(hf.errors.ReleaseTooOld, match=too_old(OF_FILES + 2, OF_FILES + 1, OF_FILES)):
        asyncio.run(open_and_close(str(path)))


BEFORE_RAW_BYTES = 5
FILES_BEFORE_RAW_BYTES = 4
"""The newest migrations of the release that can read neither raw bytes nor events that were set aside."""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_release_that_cannot_read_raw_bytes_is_refused_once_a_newer_one_has_opened_the_store(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused when it opens the store: if it could open it, it would block the instances that have them."""
    if kind == "postgres":
        store, package = request.getfixturevalue("postgres").url, "postgres.schema"
        known, newest = migrations()[:BEFORE_RAW_BYTES], NEWEST
    else:
        store, package = str(tmp_path / "shop.db"), "sqlite.connection"
        known, newest = sqlite_migrations()[:FILES_BEFORE_RAW_BYTES], OF_FILES

    def open_with_the_release_before() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(f"holdfast.storage.{package}.migrations", lambda: known)
            asyncio.run(open_and_close(store))

    open_with_the_release_before()
    open_with_the_release_before()
    asyncio.run(open_and_close(store))
    needed = max(migration.oldest for migration in (migrations() if kind == "postgres" else sqlite_migrations()))
    with pytest.raises(hf.errors.ReleaseTooOld, match=too_old(newest, needed, len(known))):
        open_with_the_release_before()
    asyncio.run(open_and_close(store))


def test_every_migration_says_who_can_work_with_it() -> None:
    assert [migration.number for migration in migrations()] == list(range(1, len(migrations()) + 1))
    for migration in (*migrations(), *sqlite_migrations()):
        assert migration.script.rstrip().endswith(";"), "a comment at the end would hide what is said after it"
    with pytest.raises(InvariantBroken, match=r"0003_notes.* has no line `-- oldest: N`"):
        read("0003_notes.sql", "CREATE TABLE notes (number BIGINT);")
    with pytest.raises(InvariantBroken, match="cannot need release 4"):
        read("0003_notes.sql", "-- oldest: 4\nCREATE TABLE notes (number BIGINT);")
    with pytest.raises(InvariantBroken, match="only indexes are built"):
        builds("-- oldest: 1\n-- outside of a transaction\nVACUUM instances;", "shop")


# ---------------------------------------------------------------- locks


def test_a_migration_gives_way_to_a_long_reader_and_is_tried_again(
    postgres: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """While it waits for its lock everybody waits, and that ends soon; after that everybody goes on."""
    caplog.set_level(logging.WARNING, "holdfast")
    seconds: list[float] = []

    async def case(store: PostgresStore) -> None:
        with postgres.connect() as reader:
            reader.execute("BEGIN")
            run(reader, postgres, "SELECT count(*) FROM {}.instances")

            def pause(wanted: float) -> bool:
                """Others write between the tries; the reader ends after a few."""
                seconds.append(wanted)
                ask(postgres, "UPDATE {}.instances SET mail = mail + 1")
                if len(seconds) == LOOKS:
                    reader.execute("COMMIT")
                return False

            with ThreadPoolExecutor(1) as beside:
                upgraded = beside.submit(upgrade, postgres, ADDED, pause)
                number = 0
                while not upgraded.done():
                    number += 1
                    [outcome] = await store.commit(CommitId(number), [start(f"{number}")])
                    assert isinstance(outcome, StartedInstance)
                upgraded.result()
            assert number > LOOKS

    on_a_store(postgres, case, clock=ManualClock())
    assert len(seconds) == LOOKS
    assert max(seconds) > 2 * seconds[0], "the pauses grow"
    assert ask(postgres, "SELECT max(number) FROM {}.migrations") == [(NEWEST + 1,)]
    assert len([text for text in caplog.messages if "waits for locks of other sessions" in text]) == 1
    assert not [text for text in caplog.messages if "could not be written" in text]


def test_whoever_writes_behind_a_waiting_migration_waits_no_longer_than_the_migration(postgres: Place) -> None:
    asyncio.run(open_and_close(postgres.url))
    is_tried, is_over = threading.Event(), threading.Event()

    def pause(_: float) -> bool:
        is_tried.set()
        return is_over.is_set()

    with postgres.connect() as reader, postgres.connect() as writer, ThreadPoolExecutor(1) as beside:
        reader.execute("BEGIN")
        run(reader, postgres, "SELECT count(*) FROM {}.instances")
        upgraded = beside.submit(upgrade, postgres, ADDED, pause)
        assert is_tried.wait(30)
        writer.execute("SET lock_timeout = '20s'")  # far more than half a second, and less than for ever
        for _ in range(LOOKS):
            run(writer, postgres, "UPDATE {}.instances SET mail = mail + 1")
        is_over.set()
        with pytest.raises(hf.StoreError, match=rf"has schema {NEWEST} and .* to {NEWEST + 1}.*lock timeout"):
            upgraded.result()


# ---------------------------------------------------------------- indexes, outside of a transaction


def test_an_index_is_built_while_others_write_and_recorded_once(postgres: Place) -> None:
    """Also by several at once: one builds, and the others wait until it has."""
    asyncio.run(open_and_close(postgres.url))
    with ThreadPoolExecutor(4) as threads:
        wait = threading.Event().wait
        for done in [threads.submit(upgrade, postgres, INDEXED, wait) for _ in range(4)]:
            done.result()
    assert index_is_valid(postgres)
    recorded = ask(postgres, "SELECT number, oldest FROM {}.migrations ORDER BY number")
    assert recorded == [(migration.number, migration.oldest) for migration in INDEXED]


def test_an_index_whose_building_was_interrupted_is_dropped_and_built_again(postgres: Place) -> None:
    on_a_store(postgres, make_two, clock=ManualClock())
    upgrade(postgres, ADDED)
    with postgres.connect() as connection, pytest.raises(psycopg.errors.UniqueViolation):
        run(connection, postgres, "CREATE UNIQUE INDEX CONCURRENTLY instances_by_note ON {}.instances (workflow)")
    assert not index_is_valid(postgres)
    upgrade(postgres)
    assert index_is_valid(postgres)


async def make_two(store: PostgresStore) -> None:
    await store.commit(CommitId(1), [start("a"), start("b")])


def test_a_builder_that_is_killed_leaves_what_the_next_one_mends(postgres: Place) -> None:
    """The build waits for a transaction that writes; its connection ends, and it is begun again on another one."""
    on_a_store(postgres, make_two, clock=ManualClock())
    upgrade(postgres, ADDED)
    killed = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE query LIKE 'CREATE INDEX CONCURRENTLY instances_by_note%%' || %s || '%%' AND wait_event_type = 'Lock'"""
    with postgres.connect() as writer, postgres.connect() as killer, ThreadPoolExecutor(1) as beside:
        writer.execute("BEGIN")
        run(writer, postgres, "UPDATE {}.instances SET mail = mail + 1")
        upgraded = beside.submit(upgrade, postgres, INDEXED, threading.Event().wait)
        while not killer.execute(killed, (postgres.schema,)).fetchall():
            assert not upgraded.done(), upgraded.result()
        assert not index_is_valid(postgres)
        writer.execute("COMMIT")
        upgraded.result()
    assert index_is_valid(postgres)
    assert ask(postgres, "SELECT count(*) FROM {}.migrations") == [(len(INDEXED),)]


def test_an_index_that_somebody_else_is_building_is_waited_for(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "INDEX_LOCK_TIMEOUT", "50ms")
    asyncio.run(open_and_close(postgres.url))
    upgrade(postgres, ADDED)
    seconds: list[float] = []
    with postgres.connect() as builder:
        builder.execute("BEGIN")
        run(builder, postgres, "LOCK TABLE {}.instances IN SHARE UPDATE EXCLUSIVE MODE")

        def pause(wanted: float) -> bool:
            seconds.append(wanted)
            builder.execute("COMMIT")
            return False

        upgrade(postgres, INDEXED, pause)
    assert len(seconds) == 1
    assert index_is_valid(postgres)


# ---------------------------------------------------------------- databases that know less


@pytest.fixture
def plain(postgres: Place) -> Iterator[Place]:
    """A database without PL/pgSQL."""
    name = f"without_{postgres.schema}"
    address, mark, options = postgres.server.partition("?")
    made = Place(f"{address.rpartition('/')[0]}/{name}{mark}{options}", "shop")
    with postgres.connect() as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        try:
            with made.connect() as beside:
                beside.execute("DROP EXTENSION plpgsql")
            yield made
        finally:
            connection.execute(SQL("DROP DATABASE {}").format(Identifier(name)))


async def start_some(store: PostgresStore) -> None:
    outcomes = await store.commit(CommitId(1), [start("a"), start("b")])
    assert [type(outcome) for outcome in outcomes] == [StartedInstance, StartedInstance]
    [outcome] = await store.commit(CommitId(2), [start("a")])
    assert isinstance(outcome, StartedInstance)
    assert not outcome.created


async def start_another(store: PostgresStore) -> None:
    [outcome] = await store.commit(CommitId(3), [start("c")])
    assert isinstance(outcome, StartedInstance)


def test_a_database_without_pl_pgsql_is_used_answer_by_answer(plain: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The function cannot be made there; a warning for each migration that makes one says so, once."""
    on_a_store(plain, start_some, clock=ManualClock())
    on_a_store(plain, start_another, clock=ManualClock())
    functions = [migration for migration in migrations() if migration.is_optional]
    assert len([text for text in caplog.messages if "cannot be made" in text]) == len(functions)


def test_what_is_printed_makes_a_store_without_pl_pgsql_once_the_part_that_it_names_is_left_out(
    plain: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """By the command that the guide has. The record stays, so nobody tries to make the function later."""
    text = printed(plain.schema)
    refused = psql(plain, text)
    assert refused.returncode != 0
    assert "plpgsql" in refused.stderr
    ask(plain, "DROP SCHEMA {} CASCADE")
    [command] = re.findall(r"\| (sed '.*') \|", GUIDE.read_text("utf-8"))
    left = subprocess.run(shlex.split(command), input=text, capture_output=True, text=True, check=True).stdout
    made = psql(plain, left)
    assert made.returncode == 0, made.stderr
    assert ask(plain, "SELECT count(*) FROM {}.migrations") == [(len(migrations()),)]
    on_a_store(plain, start_some, clock=ManualClock())
    on_a_store(plain, start_another, clock=ManualClock())
    assert not [text for text in caplog.messages if "cannot be made" in text]
    assert "plpgsql" not in left.lower()
    assert "trigger" not in left.lower()


# ---------------------------------------------------------------- processes, scripts


@pytest.mark.slow
def test_processes_that_migrate_at_once_all_succeed(postgres: Place) -> None:
    command = [sys.executable, "-m", "holdfast", "migrate", "--store", postgres.url]
    with ExitStack() as stack:
        processes = [stack.enter_context(program(command, cwd=ROOT, env=ENVIRONMENT)) for _ in range(3)]
        for process in processes:
            _, complaints = process.communicate(timeout=60)
            assert process.returncode == 0, complaints
    assert ask(postgres, "SELECT count(*) FROM {}.migrations") == [(len(migrations()),)]


def psql(place: Place, text: str) -> "subprocess.CompletedProcess[str]":
    command = programs.command("psql", "-v", "ON_ERROR_STOP=1", "-X", "-q", place.server)
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def test_what_is_printed_is_for_psql_and_stops_where_it_was_run_before(postgres: Place) -> None:
    first = psql(postgres, printed(postgres.schema))
    assert first.returncode == 0, first.stderr
    rest = psql(postgres, printed(postgres.schema, NEWEST, INDEXED))
    assert rest.returncode == 0, rest.stderr
    assert index_is_valid(postgres)
    asyncio.run(open_and_close(postgres.url))
    again = psql(postgres, printed(postgres.schema, NEWEST, INDEXED))
    assert again.returncode != 0
    assert "migrations_pkey" in again.stderr
    assert "nothing to do" in printed(postgres.schema, NEWEST + 2, INDEXED)
    assert "CREATE SCHEMA" not in printed(postgres.schema, NEWEST, INDEXED)
