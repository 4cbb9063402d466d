"""The schema of a PostgreSQL store is made once, and its statements are in its own words."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.postgres.server import Place
from tests.postgres.stores import ask, on_a_store, run
from tools.generate_statements import TARGET, generate

import holdfast as hf
from holdfast.storage.postgres import writer as postgres_writer
from holdfast.storage.postgres.schema import migrate, script
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.postgres.transaction import TABLES, migrations, statements_of, translate
from holdfast.storage.records import CommitId
from holdfast.testing.conformance.bench import ManualClock, start

SOURCES = Path(postgres_writer.__file__).parents[1]


def test_a_schema_is_made_once_by_many_at_the_same_moment(postgres: Place) -> None:
    async def open_and_close() -> None:
        store = PostgresStore(postgres.url, clock=ManualClock())
        await store.open()
        await store.close()

    with ThreadPoolExecutor(6) as threads:
        for done in [threads.submit(asyncio.run, open_and_close()) for _ in range(6)]:
            done.result()
    recorded = ask(postgres, "SELECT number, oldest FROM {}.migrations ORDER BY number")
    assert recorded == [(migration.number, migration.oldest) for migration in migrations()]


def test_the_script_that_is_printed_makes_a_store_that_needs_no_migration(postgres: Place) -> None:
    with postgres.connect() as connection:
        connection.execute(";\n".join(script(postgres.schema)).encode())

    async def case(store: PostgresStore) -> None:
        await store.commit(CommitId(1), [start("a")])

    on_a_store(postgres, case, clock=ManualClock())


def test_a_store_of_a_newer_release_is_refused_and_one_that_is_not_there_is_not_made_by_looking(
    postgres: Place,
) -> None:
    async def look() -> None:
        store = PostgresStore(postgres.url, clock=ManualClock())
        try:
            store.open_for_reading()
        finally:
            await store.close()

    with pytest.raises(hf.StoreError, match="there is no store"):
        asyncio.run(look())
    with postgres.connect() as connection:
        connection.execute(";\n".join(script(postgres.schema)).encode())
        asyncio.run(look())
        run(connection, postgres, "INSERT INTO {}.migrations VALUES (9999, 9998)")
    known = migrations()[-1].number
    with pytest.raises(hf.errors.ReleaseTooOld, match=rf"\(schema 9999\).* knows schema 9998; this one knows {known}"):
        asyncio.run(look())


@pytest.mark.parametrize(
    ("shared", "own"),
    [
        ("SELECT a FROM history WHERE b = ? AND c = ?", 'SELECT a FROM "s".history WHERE b = $1 AND c = $2'),
        ("UPDATE inbox SET a = ?2 WHERE b IS ?1", 'UPDATE "s".inbox SET a = $2 WHERE b IS NOT DISTINCT FROM $1'),
        ("SELECT 1 FROM kept WHERE (+a = ?1 OR b > +c)", 'SELECT 1 FROM "s".kept WHERE (a = $1 OR b > c)'),
        (
            "SELECT value FROM json_each(?1)",
            "SELECT value FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value)",
        ),
        ("INSERT INTO clock VALUES (?) ON CONFLICT DO UPDATE SET a = 1",) * 2,
    ],
)
def test_shared_statements_are_translated(shared: str, own: str) -> None:
    own = own.replace("INTO clock", 'INTO "s".clock').replace("(?)", "($1)")
    assert translate(shared, "s") == own


def test_no_statement_is_left_in_the_words_of_another_database() -> None:
    sql = statements_of("s")
    for folder in ("relational", "postgres"):
        for path in (SOURCES / folder / "sql").glob("*.sql"):
            text = getattr(sql, path.stem)
            assert "?" not in text
            assert not re.search(rf"(FROM|JOIN|INTO|UPDATE) ({'|'.join(TABLES)})\\b", text), path


def test_the_statements_that_are_checked_in_are_those_that_run() -> None:
    assert TARGET.read_text("utf-8") == generate(), "run `python -m tools.generate_statements`"


def test_migrating_twice_changes_nothing(postgres: Place) -> None:
    async def case(store: PostgresStore) -> None:
        with postgres.connect() as connection:
            before = connection.execute("SELECT count(*) FROM pg_class").fetchall()
            migrate(connection, store.address, lambda _: True)
            assert connection.execute("SELECT count(*) FROM pg_class").fetchall() == before

    on_a_store(postgres, case, clock=ManualClock())
