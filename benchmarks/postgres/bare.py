"""The bare limits on PostgreSQL: one autocommitted insert, and B1 written by a loop that does nothing else.

The bare loop writes the rows of B1 with the statements, guards and locks of the store, as sets by kind, in one call for
each group of 50. No event loop, no workflow code, no members, no reads.
"""

import asyncio
import time
from typing import Any, Final

from tests.postgres.server import Place

from benchmarks.measure import Sample, percentile
from holdfast.core.activity_options import ActivityOptions, encode_options
from holdfast.core.checks import require
from holdfast.core.leases import WorkerKey
from holdfast.storage.members.outcomes import Applied
from holdfast.storage.postgres.optimistic.group_call import BatchedStatement, GroupHead, call_of, runs_of
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.records import CommitId
from holdfast.testing.conformance.bench import (
    ANNA,
    Bench,
    ManualClock,
    completion,
    first_turn,
    new_attempt,
    start,
    turn,
)

IN_FLIGHT: Final = 50
STEPS: Final = 5
RUNNING_LEDGER: Final = 889_000_000_000_000
APPLIED_LEDGER: Final = 888_000_001_000_001
TURNS_IN_A_ROW: Final = 20
"""Commits and inserts alternate in blocks of this size: the speed of the disk changes from second to second."""
LEASE_MS: Final = 3_600_000


class BareLoop:
    """Writes B1, one group of instances in the same turn after the other."""

    def __init__(self, place: Place, connection: Any) -> None:
        store = PostgresStore(place.url)
        self._schema = place.schema
        self._sql = store.sql
        self._connection = connection
        self._options = encode_options(ActivityOptions())
        self._queued: list[BatchedStatement] = []
        self._groups = 0
        self._numbers = 0

    def run(self) -> None:
        """Fifty instances from their start to their end."""
        numbers = range(self._numbers + 1, self._numbers + 1 + IN_FLIGHT)
        self._numbers = numbers[-1]
        sql = self._sql
        for number in numbers:
            values = (number, f"b1-{number}", "sequence", "", "RUNNING", 1, 1, ANNA, None, 1, b"[5]", b"h" * 32, 1)
            self._one(sql.start_numbered, *values, None, None)
            self._one(sql.append_history, number, 1, 0, b'[["started",1,"sequence",5],["scheduled",0,"step"]]')
            self._attempt(number, 0)
        self._write([], [f"b1-{number}" for number in numbers])
        for step in range(STEPS):
            for number in numbers:
                self._step(number, step)
            self._write([*numbers], [])

    def _step(self, number: int, step: int) -> None:
        sql = self._sql
        key = (number, 1, step, "", 1)
        moved = ("COMPLETED", APPLIED_LEDGER, None, 1, *key, ANNA, "RUNNING", RUNNING_LEDGER, None)
        self._one(sql.move_attempt, *moved)
        is_last = step == STEPS - 1
        if is_last:
            self._one(sql.has_read_all, number, 0)
        self._one(sql.commit_turn, step + 2, 1, number, 1, ANNA, step + 1)
        self._one(sql.append_history, number, 1, step + 1, b'[["completed",1,0,1],["scheduled",1,"step"]]')
        if not is_last:
            self._attempt(number, step + 1)
            return
        for cleared in (sql.exit_responses, sql.delete_inbox_of_instance, sql.delete_asked_updates, sql.clear_timers):
            self._any(cleared, number)
        self._any(sql.cancel_activities, 1, number)
        self._one(sql.close_instance, "COMPLETED", b'{"data":5}', 1, number)

    def _attempt(self, number: int, activity: int) -> None:
        values = (number, 1, activity, 1, "step", "default", "RUNNING", RUNNING_LEDGER, ANNA, b"[1]", self._options)
        self._one(self._sql.insert_attempt, *values, 1, 1, 1, None, 0, 0, None)

    def _one(self, statement: str, *values: Any) -> None:
        self._queued.append(BatchedStatement(statement, values, one=True))

    def _any(self, statement: str, *values: Any) -> None:
        self._queued.append(BatchedStatement(statement, values, one=False))

    def _write(self, numbers: list[int], ids: list[str]) -> None:
        self._groups += 1
        runs = runs_of(self._schema, self._queued) or []
        self._queued = []
        head = GroupHead(self._groups, 0, 1, numbers, ids)
        self._connection.execute(call_of(self._schema, runs, head=head).encode())


def b1(place: Place, scale: float) -> Sample:
    """The steps per second of the bare loop."""
    asyncio.run(_make_tables(place))
    with place.connect() as connection:
        loop = BareLoop(place, connection)
        loop.run()
        rounds = max(2, int(20 * scale))
        before = time.perf_counter()
        for _ in range(rounds):
            loop.run()
        seconds = time.perf_counter() - before
    return {"steps_per_s": rounds * IN_FLIGHT * STEPS / seconds}


async def _make_tables(place: Place) -> None:
    store = PostgresStore(place.url)
    await store.open()
    await store.close()


def one_turn(place: Place, scale: float) -> Sample:
    """A commit of one turn by the store, and a bare autocommitted insert of a small row, in turns."""
    return asyncio.run(_one_turn(place, max(3, int(20 * scale))))


async def _one_turn(place: Place, rounds: int) -> Sample:
    turns_ms: list[float] = []
    inserts_ms: list[float] = []
    store = PostgresStore(place.url, elapsed_ms=lambda: time.perf_counter() * 1_000)
    await store.open()
    with place.connect() as connection:
        connection.execute(f'CREATE TABLE "{place.schema}".bare (n BIGSERIAL PRIMARY KEY, a BIGINT, b TEXT)'.encode())
        insert = f'INSERT INTO "{place.schema}".bare (a, b) VALUES (%s, %s)'.encode()
        bench = Bench(store, ManualClock())
        bench.beat(WorkerKey(ANNA), lease_ms=LEASE_MS)
        await bench.one(start("one", first=first_turn()))
        record = await bench.instance("one")
        for step in range(rounds * TURNS_IN_A_ROW):
            now = record.turn + step
            ended, opened = completion(record, step), new_attempt(step + 1, owner=ANNA)
            following = turn(record, turn=now, completions=(ended,), attempts=(opened,))
            before = time.perf_counter()
            [outcome] = await store.commit(CommitId(1_000_000 + step), [following])
            turns_ms.append((time.perf_counter() - before) * 1_000)
            require(isinstance(outcome, Applied), f"the turn was not applied: {outcome}")
            if step % TURNS_IN_A_ROW == 0:
                for _ in range(TURNS_IN_A_ROW):
                    before = time.perf_counter()
                    connection.execute(insert, (1, "x" * 100))
                    inserts_ms.append((time.perf_counter() - before) * 1_000)
    await store.close()
    turn_ms, insert_ms = percentile(turns_ms, 50), percentile(inserts_ms, 50)
    return {"turn_p50_ms": turn_ms, "insert_p50_ms": insert_ms, "of_insert": turn_ms / insert_ms}
