"""How many pages a claim touches: of one instance and of one attempt, among few and among very many."""

from typing import Any, Final

import psycopg
from psycopg import RawCursor
from tests.postgres.server import Place

from benchmarks.measure import Sample
from benchmarks.programs import sequence, step
from holdfast.storage.postgres.store import PostgresStore

NOW_MS: Final = 1_000_000
INSTANCES: Final = """
    INSERT INTO {schema}.instances (id, workflow, version, state, execution, turn, fence, claimable_at_ms, stamp_ms,
        input, input_hash, outcome, created_at_ms, closed_at_ms)
    SELECT $1 || number, $2, '', $3, 1, 1, 1, $4::bigint, 0, '{{}}', '\\x00', '{{"data":5}}', 0, $5::bigint
    FROM generate_series(1, $6::int) AS number
"""
ATTEMPTS: Final = """
    INSERT INTO {schema}.attempts (number, execution, activity, attempt, name, queue, state, ledger, input, options,
        available_at_ms, scheduled_at_ms, closed_at_ms)
    SELECT number, 1, 0, 1, $1, 'default', $2, 888000000000000, '{{}}', '{{}}', 0, 0, $3::bigint
    FROM {schema}.instances WHERE state = $4
"""


async def claim_pages(place: Place, *, finished: int, waiting: int) -> Sample:
    """Pages that the claim of one instance and the search for one attempt touch, by the word of the server."""
    store = PostgresStore(place.url)
    await store.open()
    await store.close()
    sql = store.sql
    with place.connect() as connection:
        cursor: Any = RawCursor(connection)
        schema = f'"{place.schema}"'
        fill, open_attempts = INSTANCES.format(schema=schema), ATTEMPTS.format(schema=schema)
        cursor.execute(fill, ("done-", sequence.name, "COMPLETED", None, 1, finished))
        cursor.execute(fill, ("open-", sequence.name, "REQUESTED", 0, None, waiting))
        cursor.execute(open_attempts, (step.name, "COMPLETED", 1, "COMPLETED"))
        cursor.execute(open_attempts, (step.name, "READY", None, "REQUESTED"))
        for table in ("instances", "attempts"):
            connection.execute(f"VACUUM ANALYZE {schema}.{table}".encode())
        workflows, activities = f'["{sequence.name}"]', f'["{step.name}"]'
        return {
            "instance_pages": _pages(connection, sql.claim_instances, "me", NOW_MS, workflows, 1),
            "attempt_pages": _pages(connection, sql.ready_attempts, "default", NOW_MS, activities, 1),
        }


def _pages(connection: "psycopg.Connection[tuple[object, ...]]", statement: str, *values: object) -> float:
    """Of the second run: the first one also reads what the planner wants to know."""
    cursor: Any = RawCursor(connection)
    touched = 0
    for _ in range(2):
        connection.execute("BEGIN")
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", values)
        plan = cursor.fetchall()[0][0][0]["Plan"]
        connection.execute("ROLLBACK")
        touched = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return touched
