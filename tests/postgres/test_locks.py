"""Which rows are locked, and in which order: nobody keeps others from what they do not take, or waits in a circle."""

import json
from typing import Any

from psycopg import RawCursor
from tests.postgres.server import Place
from tests.postgres.stores import on_a_store, run

from holdfast.storage.contract import CommitId
from holdfast.storage.postgres.store import PostgresStore
from holdfast.testing.conformance.bench import ManualClock, start

WORKFLOWS = 10
OF_EACH = 8
LIMIT = 12


async def fill(store: PostgresStore) -> None:
    names = [f"flow-{number}" for number in range(WORKFLOWS)]
    many = [start(f"{name}-{each}", workflow=name) for name in names for each in range(OF_EACH)]
    await store.commit(CommitId(1), many)


def test_G1_a_claim_locks_no_row_that_it_does_not_take(postgres: Place) -> None:
    """However many workflows the worker has, others can claim the rest."""
    names = json.dumps([f"flow-{number}" for number in range(WORKFLOWS)])
    left = "SELECT count(*) FROM (SELECT 1 FROM {}.instances FOR NO KEY UPDATE SKIP LOCKED) AS free"

    async def case(store: PostgresStore) -> None:
        await fill(store)
        with postgres.connect() as claimer, postgres.connect() as other:
            cursor: Any = RawCursor(claimer)
            claimer.execute("BEGIN")
            taken = cursor.execute(store.sql.claim_instances, ("anna", 2**40, names, LIMIT)).fetchall()
            assert len(taken) == LIMIT
            assert run(other, postgres, left) == [(WORKFLOWS * OF_EACH - LIMIT,)]

    on_a_store(postgres, case, clock=ManualClock())


def test_G1_no_workflow_waits_for_ever_behind_the_long_queue_of_another(postgres: Place) -> None:
    """Each claim takes few, and begins with another workflow: in the course of time every one is the first."""
    names = json.dumps([f"flow-{number}" for number in range(WORKFLOWS)])

    async def case(store: PostgresStore) -> None:
        await fill(store)
        found: set[str] = set()
        with postgres.connect() as claimer:
            cursor: Any = RawCursor(claimer)
            for now_ms in range(100):
                claimer.execute("BEGIN")
                [row] = cursor.execute(store.sql.claim_instances, ("anna", now_ms, names, 1)).fetchall()
                claimer.execute("ROLLBACK")
                found.add(row[2])
        assert len(found) == WORKFLOWS

    on_a_store(postgres, case, clock=ManualClock())
