"""Which rows are locked, and in which order: nobody keeps others from what they do not take, or waits in a circle."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from psycopg import RawCursor
from tests.postgres.server import Place
from tests.postgres.stores import on_a_store, run

from holdfast.storage.members.instances import ClaimInstances, Release
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Applied, Outcome, StartedInstance
from holdfast.storage.members.workers import MarkWorkerLost
from holdfast.storage.postgres import writer as postgres_writer
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.postgres.writer import PostgresWriter
from holdfast.storage.records import CommitId
from holdfast.storage.relational.apply.dispatch import apply_members
from holdfast.testing.conformance.bench import ANNA, BERT, Bench, ManualClock, first_turn, start

WORKFLOWS = 10
OF_EACH = 8
LIMIT = 12
VERSION = ""


async def fill(store: PostgresStore) -> None:
    names = [f"flow-{number}" for number in range(WORKFLOWS)]
    many = [start(f"{name}-{each}", workflow=name) for name in names for each in range(OF_EACH)]
    await store.commit(CommitId(1), many)


def test_G1_a_claim_locks_no_row_that_it_does_not_take(postgres: Place) -> None:
    """However many workflows the worker has, others can claim the rest."""
    names = json.dumps([(f"flow-{number}", VERSION) for number in range(WORKFLOWS)])
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


def test_G1_workflows_whose_instances_are_due_since_the_same_time_share_a_claim(postgres: Place) -> None:
    """None has to wait behind the long queue of another one."""
    names = json.dumps([(f"flow-{number}", VERSION) for number in range(WORKFLOWS)])

    async def case(store: PostgresStore) -> None:
        await fill(store)
        with postgres.connect() as claimer:
            cursor: Any = RawCursor(claimer)
            rows = cursor.execute(store.sql.claim_instances, ("anna", 2**40, names, WORKFLOWS)).fetchall()
        assert len({row[2] for row in rows}) == WORKFLOWS

    on_a_store(postgres, case, clock=ManualClock())


@pytest.mark.parametrize("workflows", [1, WORKFLOWS])
def test_G1_what_others_are_claiming_is_made_up_for(postgres: Place, workflows: int) -> None:
    """Claimers at the same moment all get as many as they ask for, while there are enough."""
    names = json.dumps([(f"flow-{number}", VERSION) for number in range(workflows)])
    limit = workflows * OF_EACH // 2

    async def case(store: PostgresStore) -> None:
        await fill(store)
        with postgres.connect() as one, postgres.connect() as two:
            found: list[list[Any]] = []
            for connection, key in ((one, "anna"), (two, "bert")):
                cursor: Any = RawCursor(connection)
                connection.execute("BEGIN")
                found.append(cursor.execute(store.sql.claim_instances, (key, 2**40, names, limit)).fetchall())
        assert [len(rows) for rows in found] == [limit, limit]
        assert len({row[0] for rows in found for row in rows}) == 2 * limit

    on_a_store(postgres, case, clock=ManualClock())


# ---------------------------------------------------------------- a worker is lost while it commits

WAITING = """
    SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND query LIKE '%%' || %s || '%%'
"""
PATIENCE_SECONDS = 20


def never(_: Sequence[Member]) -> bool:
    return False


class Groups:
    """Counts how often groups are begun, and stops each after its first locks or before its commit, if told to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self.stop: Callable[[Sequence[Member]], None] = lambda _: None
        self.stop_applied: Callable[[Sequence[Member]], None] = lambda _: None
        begin = PostgresWriter._begin  # there is no other sign of a second try

        def count(*arguments: Any) -> Any:
            self.begun += 1
            return begin(*arguments)

        def apply(transaction: Any, members: Sequence[Member]) -> list[Outcome]:
            self.stop(members)
            outcomes = apply_members(transaction, members)
            self.stop_applied(members)
            return outcomes

        patch.setattr(PostgresWriter, "_begin", count)
        patch.setattr(postgres_writer, "apply_members", apply)
        patch.setattr(postgres_writer, "is_eligible", never)  # a group that is said at once has no middle


def until_somebody_waits(place: Place) -> None:
    """Until a transaction waits for another one in this schema."""
    with place.connect() as connection:
        for _ in range(10_000):
            if connection.execute(WAITING, (place.schema,)).fetchall() != [(0,)]:
                return
    raise AssertionError("nobody waits")


def test_W6_a_loss_and_a_group_of_the_same_worker_do_not_wait_in_a_circle(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group has the instance and wants its worker; so the loss asks for the instance before it has the worker."""
    groups, inside, go_on = Groups(monkeypatch), threading.Event(), threading.Event()

    def stop(members: Sequence[Member]) -> None:
        if isinstance(members[0], Release):
            inside.set()
            go_on.wait(PATIENCE_SECONDS)

    async def case(store: PostgresStore) -> None:
        bench = Bench(store, ManualClock())
        bench.beat(ANNA)
        record = await bench.started("a", activities=1)
        await bench.started("b", activities=1)
        other = PostgresStore(postgres.url, clock=ManualClock())
        await other.open()
        groups.begun, groups.stop = 0, stop
        release = Release(owner=ANNA, number=record.number, fence=record.fence)
        ghost = asyncio.create_task(store.commit(CommitId(50), [release]))
        await asyncio.to_thread(inside.wait, PATIENCE_SECONDS)
        lose = MarkWorkerLost(key=ANNA, at_deadline=False, limit=10)
        losing = asyncio.create_task(other.commit(CommitId(51), [lose]))
        await asyncio.to_thread(until_somebody_waits, postgres)
        go_on.set()
        assert await ghost == [Applied(changed=1)]
        [lost] = await losing
        assert isinstance(lost, Applied)
        assert lost.changed == 3, "the other instance, and what both of them ran"
        assert groups.begun == 2, "a group was tried again"
        await other.close()

    on_a_store(postgres, case, clock=ManualClock())


def test_W6_a_loss_waits_for_a_claim_of_the_same_worker_and_releases_it(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim has found its worker ACTIVE. An instance that it commits after the loss would never be released."""
    groups, inside, go_on = Groups(monkeypatch), threading.Event(), threading.Event()

    def stop(members: Sequence[Member]) -> None:
        if isinstance(members[0], ClaimInstances):
            inside.set()
            go_on.wait(PATIENCE_SECONDS)

    async def case(store: PostgresStore) -> None:
        bench = Bench(store, ManualClock())
        bench.beat(ANNA)
        await store.commit(CommitId(49), [start("a", workflow="flow")])
        other = PostgresStore(postgres.url, clock=ManualClock())
        await other.open()
        groups.stop_applied = stop
        claim = ClaimInstances(owner=ANNA, workflows=("flow",), limit=1)
        ghost = asyncio.create_task(store.commit(CommitId(50), [claim]))
        await asyncio.to_thread(inside.wait, PATIENCE_SECONDS)
        lose = MarkWorkerLost(key=ANNA, at_deadline=False, limit=10)
        losing = asyncio.create_task(other.commit(CommitId(51), [lose]))
        try:
            await asyncio.to_thread(until_somebody_waits, postgres)
        finally:
            go_on.set()
        await ghost
        assert await losing == [Applied(changed=1)]
        with postgres.connect() as connection:
            assert run(connection, postgres, "SELECT id, owner FROM {}.instances") == [("a", None)]
        await other.close()

    on_a_store(postgres, case, clock=ManualClock())


def test_W6_two_workers_that_lose_each_other_do_not_wait_in_a_circle(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were silent for too long. Each has a group of its own under way, and ends the other's lease in it."""
    groups, met = Groups(monkeypatch), threading.Barrier(2)

    def stop(members: Sequence[Member]) -> None:
        if any(isinstance(member, MarkWorkerLost) for member in members):
            with suppress(threading.BrokenBarrierError):
                met.wait(0.5)  # if both come here, each has what the other wants

    async def case(store: PostgresStore) -> None:
        bench = Bench(store, ManualClock())
        other = PostgresStore(postgres.url, clock=ManualClock())
        await other.open()
        bench.beat(ANNA)
        bench.beat(BERT)
        groups.begun, groups.stop = 0, stop
        of_anna: list[Member] = [
            start("a", first=first_turn(ANNA, activities=0)),
            MarkWorkerLost(key=BERT, at_deadline=False, limit=10),
        ]
        of_bert: list[Member] = [
            start("b", first=first_turn(BERT, activities=0)),
            MarkWorkerLost(key=ANNA, at_deadline=False, limit=10),
        ]
        first, second = await asyncio.gather(store.commit(CommitId(50), of_anna), other.commit(CommitId(51), of_bert))
        assert sum(isinstance(outcomes[0], StartedInstance) for outcomes in (first, second)) == 1
        assert groups.begun == 2, "a group was tried again"
        await other.close()

    on_a_store(postgres, case, clock=ManualClock())
