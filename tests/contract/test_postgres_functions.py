"""The functions of PostgreSQL that insert rows: ids, transactions of the caller, and any search path."""

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from tests.contract.by_hand import postgres_by_hand
from tests.postgres.server import Place

import holdfast as hf


async def opened(url: str) -> None:
    await (await hf.connect(url)).close()


@pytest.fixture
def connection(postgres: Place) -> Iterator[psycopg.Connection]:
    """With the tables, and not in the search path."""
    asyncio.run(opened(postgres.url))
    with postgres.connect() as made:
        yield made


def ask(connection: psycopg.Connection, place: Place, text: Any, *values: object) -> list[tuple[Any, ...]]:
    cursor = connection.execute(SQL(text).format(Identifier(place.schema)), values)
    return cursor.fetchall() if cursor.description else []


REQUESTS = "SELECT kind, workflow, instance_id, event_name, input, state FROM {}.requests WHERE request_id = %s"
EVENTS = """
    SELECT activity_exec_id, transition, payload, error, claim, sequence, state FROM {}.activity_events
    WHERE event_id = %s
"""


def test_C2_each_function_inserts_a_row_and_returns_its_id(connection: psycopg.Connection, postgres: Place) -> None:
    connection.execute("SET search_path = pg_catalog")
    [(one,)] = ask(connection, postgres, "SELECT {}.start_workflow('order', '[1]', 'o-1')")
    assert ask(connection, postgres, REQUESTS, one) == [("start", "order", "o-1", None, "[1]", "NEW")]
    [(two,)] = ask(connection, postgres, "SELECT {}.raise_event('o-1', 'paid', '{{}}')")
    assert ask(connection, postgres, REQUESTS, two) == [("event", None, "o-1", "paid", "{}", "NEW")]
    [(three,)] = ask(
        connection,
        postgres,
        "SELECT {}.report('x', 'FAILED', NULL, 'no', claim => 'c', sequence => 3)",
    )
    assert ask(connection, postgres, EVENTS, three) == [("x", "FAILED", None, "no", "c", 3, "NEW")]
    assert len({one, two, three}) == 3


def test_C2_a_repeated_call_with_an_id_is_the_same_request(connection: psycopg.Connection, postgres: Place) -> None:
    for _ in range(2):
        assert ask(connection, postgres, "SELECT {}.start_workflow('a', '[]', NULL, 'r')") == [("r",)]
        assert ask(connection, postgres, "SELECT {}.raise_event('a', 'e', '1', request_id => 'q')") == [("q",)]
        assert ask(connection, postgres, "SELECT {}.report('x', 'QUEUED', event_id => 'e')") == [("e",)]
    assert ask(connection, postgres, "SELECT count(*) FROM {}.requests") == [(2,)]
    assert ask(connection, postgres, "SELECT count(*) FROM {}.activity_events") == [(1,)]


def test_a_start_commits_together_with_the_data_of_its_caller(connection: psycopg.Connection, postgres: Place) -> None:
    ask(connection, postgres, "CREATE TABLE {}.orders (id TEXT)")
    for ending, count in (("ROLLBACK", 0), ("COMMIT", 1)):
        connection.execute("BEGIN")
        ask(connection, postgres, "INSERT INTO {}.orders VALUES ('o-1')")
        ask(connection, postgres, "SELECT {}.start_workflow('order', '[1]', 'o-1')")
        connection.execute(ending.encode())
        assert ask(connection, postgres, "SELECT count(*) FROM {}.requests") == [(count,)]


def test_a_temporary_table_of_the_caller_does_not_take_the_place_of_the_store_s(
    connection: psycopg.Connection, postgres: Place
) -> None:
    connection.execute("CREATE TEMP TABLE requests (LIKE pg_class)")
    connection.execute("CREATE TEMP TABLE offers (exec_id TEXT, name TEXT)")
    ask(connection, postgres, "SELECT {}.start_workflow('order', '[1]', 'o-1', 'r')")
    ask(connection, postgres, "SELECT {}.report('x', 'QUEUED')")
    assert ask(connection, postgres, "SELECT request_id FROM {}.requests") == [("r",)]


def test_psql_calls_the_functions(connection: psycopg.Connection, postgres: Place) -> None:
    by_hand = postgres_by_hand(postgres)
    [row] = by_hand.rows("SELECT start_workflow('order', '[1]', 'o-1') AS id")
    assert ask(connection, postgres, REQUESTS, row["id"])[0][:3] == ("start", "order", "o-1")
