"""Searches on PostgreSQL follow the one index that their filter has, whatever the statistics of the tables (F8, F9)."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from psycopg import Connection, RawCursor
from tests.postgres.server import Place, place
from tests.postgres.stores import run

from holdfast.core.attributes import number_key
from holdfast.core.filters import at, parse
from holdfast.errors import SearchTimedOut
from holdfast.storage.postgres import store as postgres_store
from holdfast.storage.postgres.schema import script
from holdfast.storage.postgres.search import SETTINGS, PostgresDialect
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.postgres.transaction import translate
from holdfast.storage.relational.search import Search
from holdfast.storage.search import PageOrder, Position, SearchQuery

EMPTY, OUTDATED, ANALYSED = "empty", "outdated", "analysed"
FEW, MANY = 100, 20_000
INDEXES = {
    None: "instances_by_workflow",
    "state = COMPLETED": "instances_by_workflow",
    "state = RUNNING": "instances_unowned",
    "state = FAILED": "instances_by_state",
    "state = FAILED and execution = 1 and duration > 1h and version = 'x'": "instances_by_state",
    "state = BLOCKED and created > now - 1h": "instances_by_state",
    'workflow = "flow" and not state = FAILED and a.n = 2': "instances_by_workflow",
    'a.customer = "acme"': "attributes_by_value",
    'a.customer = "acme" and execution = 1 and a.n != 2': "attributes_by_value",
    "created > now - 1h and not state = FAILED": "instances_by_workflow",
    'error = "Declined" and not a.n = 7': "instances_by_state",
    'id = "i7"': "instances_current",
    'id starts with "i77"': "instances_current",
    'parent = "i7"': "Index Cond: (parent = ",
    'root = "i7"': "Index Cond: (parent = ",
    "a.n > 5": "attributes_by_value",
    "closed > now - 1m": "instances_by_closed",
}
FILL = (
    """INSERT INTO {0}.instances (id, workflow, version, state, execution, turn, fence, stamp_ms, input, input_hash,
        created_at_ms, closed_at_ms, parent, parent_execution, parent_step, error)
    SELECT 'i' || n, 'flow', '', CASE WHEN mod(n, 100) = 0 THEN 'FAILED' ELSE 'COMPLETED' END, 1, 3, 1, n, '{{}}',
        'hash', n, n, CASE WHEN n > 1000 AND mod(n, 3) = 0 THEN n - 1 END, 1, 0,
        CASE WHEN mod(n, 100) = 0 THEN 'Declined' END
    FROM generate_series(%s::int, %s::int) AS n""",
    """INSERT INTO {0}.attributes (number, name, position, type, value, created_at_ms)
    SELECT n, 'customer', 0, 'text', CASE WHEN mod(n, 3) = 0 THEN 'tacme' ELSE 'tc' || n END, n
    FROM generate_series(%s::int, %s::int) AS n""",
    """INSERT INTO {0}.attributes (number, name, position, type, value, created_at_ms)
    SELECT n, 'n', 0, 'int', CASE WHEN mod(n, 500) = 0 THEN 'SEVEN' ELSE 'ONE' END, n
    FROM generate_series(%s::int, %s::int) AS n""",
)


class Tables(NamedTuple):
    """A store, and a connection to it."""

    place: Place
    connection: Connection
    kind: str


def fill(connection: Connection, mine: Place, first: int, last: int) -> None:
    for text in FILL:
        statement: Any = text.replace("SEVEN", number_key(7)).replace("ONE", number_key(1))
        run(connection, mine, statement, first, last)


@pytest.fixture(scope="module", params=[EMPTY, "unanalysed", OUTDATED, ANALYSED])
def tables(request: pytest.FixtureRequest, postgres_server: str) -> Iterator[Tables]:
    with place(postgres_server) as mine, mine.connect() as connection:
        connection.execute(";".join(script(mine.schema)).encode())
        for name in ("instances", "attributes"):
            connection.execute(f'ALTER TABLE "{mine.schema}".{name} SET (autovacuum_enabled = false)'.encode())
        if request.param == OUTDATED:
            fill(connection, mine, 1, FEW)
            connection.execute("ANALYZE")
        if request.param != EMPTY:
            fill(connection, mine, FEW + 1, MANY)
        if request.param == ANALYSED:
            connection.execute("ANALYZE")
        yield Tables(mine, connection, request.param)


def plan_of(tables: Tables, statement: tuple[Any, ...]) -> list[str]:
    cursor: Any = RawCursor(tables.connection)
    tables.connection.execute("BEGIN")
    try:
        cursor.execute(SETTINGS, ("5000",))
        text = translate(statement[0], tables.place.schema)
        return [row[0] for row in cursor.execute(f"EXPLAIN {text}", statement[1:]).fetchall()]
    finally:
        tables.connection.execute("ROLLBACK")


@pytest.mark.parametrize("after", [None, Position(key=5_000, number=5_000)], ids=["first", "deep"])
@pytest.mark.parametrize("text", INDEXES, ids=str)
def test_F8_a_search_follows_the_index_of_its_filter(tables: Tables, text: str | None, after: Position | None) -> None:
    found = None if text is None else at(parse(text), MANY)
    search = Search(PostgresDialect(), found, PageOrder(), after)
    lead = search.leads[0] if search.leads else search.walk(["flow"])[0]
    for statement in (search.page(lead, 50), search.count(lead, 10_001), *search.probes()[:1]):
        plan = plan_of(tables, statement)
        assert any(INDEXES[text] in line for line in plan), "\n".join(plan)
        whole = [line for line in plan if "Seq Scan" in line and "Seq Scan on workers" not in line]
        assert not whole, "\n".join(plan)
        assert not [line for line in plan if re.search(r"Hash .*Join|hashed|Materialize", line)], "\n".join(plan)
    if lead.is_ordered:
        below = plan_of(tables, search.count(lead, 50))
        assert not [line for line in below if "Sort" in line], "\n".join(below)


def test_F8_the_lists_of_workflows_are_merged_before_other_tests(tables: Tables) -> None:
    search = Search(PostgresDialect(), parse("execution = 2"), PageOrder(), None)
    [lead] = search.walk(["flow", "other"])
    plan = plan_of(tables, search.count(lead, 50))
    assert any("Merge Append" in line for line in plan), "\n".join(plan)
    assert sum("instances_by_workflow" in line for line in plan) == 2, "\n".join(plan)
    assert not [line for line in plan if re.search(r"->  (Incremental )?Sort|Seq Scan|Hash", line)], "\n".join(plan)


@pytest.mark.parametrize("text", ["state = FAILED and execution = 1", 'a.customer = "acme"', None])
def test_F8_a_page_touches_no_more_of_a_larger_store(postgres_server: str, text: str | None) -> None:
    touched: list[int] = []
    for count in (5_000, 40_000):
        with place(postgres_server) as mine, mine.connect() as connection:
            connection.execute(";".join(script(mine.schema)).encode())
            fill(connection, mine, 1, count)
            search = Search(PostgresDialect(), None if text is None else parse(text), PageOrder(), None)
            statement = search.page(search.leads[0] if search.leads else search.walk(["flow"])[0], 50)
            cursor: Any = RawCursor(connection)
            connection.execute("BEGIN")
            cursor.execute(SETTINGS, ("5000",))
            explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {translate(statement[0], mine.schema)}"
            [([plan],)] = cursor.execute(explained, statement[1:]).fetchall()
            touched.append(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])
            connection.execute("ROLLBACK")
    assert touched[1] <= touched[0] * 1.5 + 20, touched


def test_F9_a_search_that_takes_too_long_is_a_typed_error(postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the connection serves the next one."""
    monkeypatch.setattr(postgres_store, "SEARCH_SECONDS", 0.05)

    async def scenario() -> None:
        store = PostgresStore(postgres.url)
        await store.open()
        try:
            with pytest.raises(SearchTimedOut, match="longer than"):
                await store._search(("SELECT pg_sleep(5)",))
            monkeypatch.setattr(postgres_store, "SEARCH_SECONDS", 5.0)
            assert await store.search(SearchQuery()) == []
        finally:
            await store.close()

    asyncio.run(scenario())
