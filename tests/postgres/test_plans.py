"""Statements that run often find their rows by an index: on empty tables and large ones, with statistics or without."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

import pytest
from psycopg import Connection, RawCursor
from tests.postgres.server import Place, place
from tests.postgres.stores import run
from tools.generate_batch import types_of

from holdfast.storage.postgres import transaction as statements
from holdfast.storage.postgres.optimistic.group_function import (
    BATCHED,
    FRAME,
    SETS,
    SETTINGS,
    TypedStatement,
    over_rows,
)
from holdfast.storage.postgres.schema import script
from holdfast.storage.postgres.transaction import statements_of
from holdfast.storage.versions import claim_keys

MANY = 20_000
EMPTY, OUTDATED, ANALYSED = "empty", "outdated", "analysed"
FEW = 100
OF_PEOPLE = "a person asks for it, and it goes through all there is of a kind"
PRUNING = "every ten minutes, beside the writer, and with a time limit"
OFFERED = "a join with the attempts that are READY, of which an executor takes some"
MEASURED = "for metrics, on a connection of its own, and during a twentieth of the time (M2)"
ONLY_ANALYSED = "tested by the values that it has"
OTHERS = {
    **dict.fromkeys(("list_instances", "queues", "worker_loads", "count_new_requests", "count_open_offers"), OF_PEOPLE),
    "count_instances": "up to a limit, for a filter without an index",
    **dict.fromkeys(("delete_closed_events", "delete_closed_offers", "delete_refused_events"), PRUNING),
    **dict.fromkeys(("count_restored", "open_numbers", "running_attempts"), OF_PEOPLE),
    "count_open": MEASURED,
    **dict.fromkeys(("count_versions", "count_blocked_by"), OF_PEOPLE),
    "count_closed": "up to a limit, once at the start of a worker",
    "store_size": "the catalogue of the tables",
    "open_offers": OFFERED,
    "read_inbox_of_owner": ONLY_ANALYSED,
}
"""Statements that may read whole tables, and why. All others are hot: a new one is tested without being named."""
AUDIT = "audit_"
"""Statements of the audit scan whole tables, except the look-up of one id."""
SOURCES = Path(statements.__file__).parents[1]
HOT = sorted(
    {
        name
        for part in ("relational", "postgres")
        for path in (SOURCES / part / "sql").glob("*.sql")
        if (name := path.stem) not in OTHERS and (name == "audit_id" or not name.startswith(AUDIT))
    }
)
SMALL = ("secrets", "workers", "clock", "questions", "closings", "flows")
"""Tables of a few rows, whatever happens."""
SHORT = ("instances_blocked", "questions_waiting", "requests_new", "activity_events_waiting")
"""Indexes that only have what waits for somebody to see to it, and may be read from end to end."""
FILL: tuple[LiteralString, ...] = (
    """INSERT INTO {0}.instances (id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms,
        stamp_ms, input, input_hash, outcome, created_at_ms, closed_at_ms, parent, parent_execution, parent_step)
    SELECT 'i' || n, 'flow', '', CASE WHEN mod(n, 10) = 0 THEN 'RUNNING' ELSE 'COMPLETED' END, 1, 3, 1,
        CASE WHEN mod(n, 100) = 0 THEN 'w' || mod(n, 7) END, CASE WHEN mod(n, 100) = 10 THEN n END, n,
        '{{}}', 'hash', NULL, n, CASE WHEN mod(n, 10) <> 0 THEN n END,
        CASE WHEN n > 1000 AND mod(n, 3) = 0 THEN n - 1 END, 1, 0
    FROM generate_series(%s::int, %s::int) AS n""",
    """INSERT INTO {0}.history (number, execution, turn, events)
    SELECT number, 1, each, '[]' FROM {0}.instances, generate_series(0, 2) AS each WHERE number BETWEEN %s AND %s""",
    """INSERT INTO {0}.attempts (number, execution, activity, attempt, name, queue, state, ledger, owner, input,
        options, available_at_ms, scheduled_at_ms, closed_at_ms)
    SELECT number, 1, activity, 1, 'step', 'default',
        CASE WHEN closed_at_ms IS NULL THEN CASE activity WHEN 0 THEN 'RUNNING' ELSE 'READY' END ELSE 'COMPLETED' END,
        0, CASE WHEN activity = 0 THEN 'w' || mod(number, 7) END, '{{}}', '{{}}', number, number, closed_at_ms
    FROM {0}.instances, generate_series(0, 1) AS activity WHERE number BETWEEN %s AND %s""",
    """INSERT INTO {0}.inbox (number, execution, stamp_ms, event)
    SELECT number, 1, 0, '{{}}' FROM {0}.instances WHERE closed_at_ms IS NULL AND number BETWEEN %s AND %s""",
    """INSERT INTO {0}.timers (number, execution, timer, due_at_ms)
    SELECT number, 1, 0, 0 FROM {0}.instances WHERE number BETWEEN %s AND %s""",
    "INSERT INTO {0}.commits (id, part, at_ms) SELECT n, 0, n FROM generate_series(%s::int, %s::int) AS n",
    "INSERT INTO {0}.payloads (number, reference, data) SELECT n, 'r', 'x' FROM generate_series(%s::int, %s::int) AS n",
    "INSERT INTO {0}.kept (number, key, value) SELECT n, '', 'x' FROM generate_series(%s::int, %s::int) AS n",
    """INSERT INTO {0}.attributes (number, name, position, type, value, created_at_ms)
    SELECT n, 'customer', 0, 'text', 'tacme', n FROM generate_series(%s::int, %s::int) AS n""",
    "INSERT INTO {0}.received (number, id) SELECT n, 'm' FROM generate_series(%s::int, %s::int) AS n",
    """INSERT INTO {0}.updates (number, id, state, asked)
    SELECT n, 'u', 'asked', 'x' FROM generate_series(%s::int, %s::int) AS n""",
    """INSERT INTO {0}.requests (request_id, workflow, state, instance_number, handled_at_ms)
    SELECT 'r' || n, 'flow', CASE WHEN mod(n, 50) = 0 THEN 'REFUSED' ELSE 'ACCEPTED' END, n, n
    FROM generate_series(%s::int, %s::int) AS n""",
    """INSERT INTO {0}.offers (exec_id, number, execution, activity, attempt, entry, name)
    SELECT 'x' || n, n, 1, 1, 1, 1, 'step' FROM generate_series(%s::int, %s::int) AS n""",
    """INSERT INTO {0}.activity_events (event_id, activity_exec_id, transition, state, handled_at_ms)
    SELECT 'e' || n, 'x' || n, 'NOTE', CASE WHEN mod(n, 50) = 0 THEN 'REFUSED' ELSE 'APPLIED' END, n
    FROM generate_series(%s::int, %s::int) AS n""",
)


class Tables(NamedTuple):
    """A store, and a connection to it."""

    place: Place
    connection: Connection
    kind: str


def fill(connection: Connection, mine: Place, first: int, last: int) -> None:
    for text in FILL:
        run(connection, mine, text, first, last)


@pytest.fixture(scope="module", params=[EMPTY, "unanalysed", OUTDATED, ANALYSED])
def tables(request: pytest.FixtureRequest, postgres_server: str) -> Iterator[Tables]:
    """A store whose tables are as they are; nobody gathers statistics in the background."""
    with place(postgres_server) as mine, mine.connect() as connection:
        connection.execute(";".join(script(mine.schema)).encode())
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (mine.schema,)).fetchall()
        for (name,) in names:
            connection.execute(f'ALTER TABLE "{mine.schema}".{name} SET (autovacuum_enabled = false)'.encode())
        if request.param == OUTDATED:
            fill(connection, mine, 1, FEW)
            connection.execute("ANALYZE")
        if request.param != EMPTY:
            fill(connection, mine, FEW + 1, MANY)
        if request.param == ANALYSED:
            connection.execute("ANALYZE")
        yield Tables(mine, connection, request.param)


@pytest.mark.parametrize("name", HOT)
def test_a_statement_finds_its_rows_by_an_index(tables: Tables, name: str) -> None:
    """By the plan that serves any values: it is the one that PostgreSQL keeps inside functions.

    What is in the function may have been planned when its tables were empty; the others are planned each time anew.
    """
    mine, connection, kind = tables
    if kind == EMPTY and name not in BATCHED:
        return
    statement: str = getattr(statements_of(mine.schema), name)
    plan = [row[0] for row in connection.execute(f"EXPLAIN (GENERIC_PLAN) {statement}".encode()).fetchall()]
    assert not list(whole_reads(plan)), "\n".join(plan)


@pytest.mark.parametrize("name", sorted({*BATCHED, *FRAME}))
def test_a_statement_of_the_group_function_finds_its_rows_by_an_index(tables: Tables, name: str) -> None:
    """With the settings of the function, for one row and for many: a plan is kept as long as the connection, and the
    first one may be made on empty tables.
    """
    mine, connection, _ = tables
    statement: str = getattr(statements_of(mine.schema), name)
    texts = [statement]
    if name in SETS:
        bare = statement.replace(f'"{mine.schema}".', "")
        connection.execute(f'SET search_path = "{mine.schema}"'.encode())
        many = over_rows(TypedStatement(name, bare, types_of(connection, bare)))
        many = many.replace("_given[", "($1::text[])[").replace("_at +", "$2::int +")
        texts.append(re.sub(r"\b_n\b", "$3::int", many))
    connection.execute("BEGIN")
    try:
        for setting, value in SETTINGS.items():
            if setting != "search_path":
                connection.execute(f"SET LOCAL {setting} {value}".encode())
        for text in texts:
            plan = [row[0] for row in connection.execute(f"EXPLAIN (GENERIC_PLAN) {text}".encode()).fetchall()]
            assert not list(whole_reads(plan)), "\n".join(plan)
    finally:
        connection.execute("ROLLBACK")


def whole_reads(plan: Sequence[str]) -> Iterator[str]:
    """The lines of a plan that read a table or an index from end to end. The first row alone is not that."""
    for before, line, after in zip(["", *plan], plan, [*plan[1:], ""], strict=False):
        table = re.search(r"Seq Scan on (\w+)", line)
        index = re.search(r"Index (?:Only )?Scan (?:Backward )?(?:using|on) (\w+)", line)
        if table and table[1] not in SMALL:
            yield line
        if index and index[1] not in SHORT and "Index Cond" not in after and "Limit" not in before:
            yield line


def test_a_look_for_messages_begins_where_the_last_one_ended(tables: Tables) -> None:
    """By the values that it has: what is beyond the last row is little, whatever waits before it. Only statistics say
    so; without any the table is read, which has a row for each message that waits.
    """
    mine, connection, kind = tables
    look = statements_of(mine.schema).read_inbox_of_owner
    cursor: Any = RawCursor(connection)
    [(newest, writer)] = run(connection, mine, "SELECT COALESCE(max(row), 0), max(xid::text) FROM {}.inbox")
    plan = cursor.execute(f"EXPLAIN {look}", ("w1", newest, str(int(writer or 0) + 1))).fetchall()
    assert kind != ANALYSED or not [line for (line,) in plan if "Seq Scan on inbox" in line], plan


def pages(connection: Connection, statement: str, *values: Any) -> int:
    """The pages that a statement touches; what it changes is taken back."""
    cursor: Any = RawCursor(connection)
    connection.execute("BEGIN")
    try:
        [(found,)] = cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", values).fetchall()
    finally:
        connection.execute("ROLLBACK")
    plan: dict[str, Any] = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


KEYS = claim_keys(["flow", "other"], [("flow", ""), ("other", "")])
BACKLOG = (
    "UPDATE {}.instances SET state = 'RUNNING', claimable_at_ms = 0, owner = NULL",
    "UPDATE {}.instances SET state = 'BLOCKED', claimable_at_ms = NULL, owner = NULL WHERE mod(number, 10) = 0",
)
LACKING = claim_keys(["flow", "other"], [("flow", "2"), ("other", "1")])


@pytest.mark.slow
def test_what_a_claim_touches_does_not_grow_with_the_store(postgres_server: str) -> None:
    """Neither with instances that are finished nor with those that wait."""
    touched: list[int] = []
    for count in (1_000, 100_000):
        with place(postgres_server) as mine, mine.connect() as connection:
            connection.execute(";".join(script(mine.schema)).encode())
            run(connection, mine, FILL[0], 1, count)
            connection.execute("VACUUM ANALYZE")
            claim = statements_of(mine.schema).claim_instances
            touched.append(pages(connection, claim, "anna", 2**40, KEYS, 1))
    assert touched[1] - touched[0] <= 8, touched  # each index that a claim changes or looks into is a level deeper


@pytest.mark.parametrize("is_analysed", [False, True])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("claim_instances", ("anna", 2**40, LACKING, 5)),
        ("next_claimable", (LACKING, -1)),
        ("claim_blocked", ("anna", LACKING, "b", 5, 3)),
        ("blocked_elsewhere", (LACKING, "b")),
    ],
)
def test_R8_a_backlog_of_a_version_that_a_worker_lacks_costs_it_nothing(
    postgres_server: str, name: str, values: tuple[object, ...], is_analysed: bool
) -> None:
    """One look into the index for each key that the worker has, and none at the instances of other versions."""
    touched: list[int] = []
    for count in (1_000, MANY):
        with place(postgres_server) as mine, mine.connect() as connection:
            connection.execute(";".join(script(mine.schema)).encode())
            run(connection, mine, FILL[0], 1, count)
            run(connection, mine, "UPDATE {}.instances SET workflow = 'flow', version = '1'")
            run(connection, mine, BACKLOG["blocked" in name])
            connection.execute("VACUUM ANALYZE" if is_analysed else "VACUUM")
            touched.append(pages(connection, getattr(statements_of(mine.schema), name), *values))
    assert touched[1] - touched[0] <= 6, touched


@pytest.mark.parametrize(
    ("name", "values"), [("release_lost_instances", ("dead", 20, 0)), ("numbers_of_owner", ("dead", 20))]
)
def test_W6_a_batch_of_a_loss_touches_no_more_when_the_worker_had_more(
    postgres_server: str, name: str, values: tuple[object, ...]
) -> None:
    """Without statistics, too: a planner that knows nothing would rather sort all that it had, for each batch."""
    touched: list[int] = []
    for count in (1_000, MANY):
        with place(postgres_server) as mine, mine.connect() as connection:
            connection.execute(";".join(script(mine.schema)).encode())
            run(connection, mine, FILL[0], 1, count)
            run(connection, mine, "UPDATE {}.instances SET owner = 'dead' WHERE mod(number, 2) = 0")
            touched.append(pages(connection, getattr(statements_of(mine.schema), name), *values))
    assert touched[1] <= 2 * touched[0], touched


@pytest.mark.parametrize("is_analysed", [False, True])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("waiting_queues", ('["default", "other"]', 2**40, '["step", "more"]')),
        ("ready_attempts", ("default", 2**40, '["step", "more"]', 2)),
        ("next_ready", ("default", -1, '["step", "more"]')),
    ],
)
def test_A2_a_claim_of_what_waits_longest_touches_no_more_when_more_waits(
    postgres_server: str, name: str, values: tuple[object, ...], is_analysed: bool
) -> None:
    """With statistics and without: one look into the index for each queue, and none at the attempts behind it."""
    touched: list[int] = []
    for count in (1_000, MANY):
        with place(postgres_server) as mine, mine.connect() as connection:
            connection.execute(";".join(script(mine.schema)).encode())
            run(connection, mine, FILL[0], 1, count)
            run(connection, mine, FILL[2], 1, count)
            run(connection, mine, "UPDATE {}.attempts SET state = 'READY', owner = NULL, closed_at_ms = NULL")
            if is_analysed:
                connection.execute("VACUUM ANALYZE")
            touched.append(pages(connection, getattr(statements_of(mine.schema), name), *values))
    assert touched[1] <= 2 * touched[0], touched


def test_every_statement_is_hot_or_has_a_reason() -> None:
    """What is not named as cold is in the test above. What is named is there."""
    assert {*BATCHED} <= {*HOT}
    assert {"lock_instances_and_ids", "delete_old_commits", "dead_owners", "void_commit", "claim_instances"} <= {*HOT}
    assert all(getattr(statements_of("s"), name) for name in OTHERS)


@pytest.mark.parametrize(
    ("plan", "is_whole"),
    [
        (["Seq Scan on instances  (cost=0)"], True),
        (["Seq Scan on workers  (cost=0)"], False),
        (["Index Scan using instances_steps on instances child", "  Filter: (number = $1)"], True),
        (["Bitmap Heap Scan on attempts", "  ->  Bitmap Index Scan on attempts_held"], True),
        (["Index Scan using instances_pkey on instances", "  Index Cond: (number = $1)"], False),
        (["Limit", "  ->  Index Only Scan using instances_owned on instances"], False),
        (["Index Scan using instances_blocked on instances"], False),
    ],
)
def test_reading_from_end_to_end_is_seen(plan: list[str], is_whole: bool) -> None:
    assert bool(list(whole_reads(plan))) is is_whole
