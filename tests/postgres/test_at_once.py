"""Many who write to one PostgreSQL store at the same time: each member counts once, and no group is lost."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.postgres.server import Place
from tests.postgres.stores import ask, event, of_kind, on_a_store

from holdfast.core.admission import IdPolicy
from holdfast.core.leases import Heartbeat, WorkerKey
from holdfast.storage.members.attempts import ClaimAttempts
from holdfast.storage.members.instances import ClaimInstances, Terminate
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import (
    Applied,
    ClaimedAttempts,
    ClaimedInstances,
    Delivered,
    Outcome,
    Rejected,
    StartedInstance,
    TerminatedInstance,
)
from holdfast.storage.members.workers import MarkWorkerLost
from holdfast.storage.postgres import writer as postgres_writer
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.records import CommitId, InstanceId
from holdfast.storage.relational.apply.dispatch import apply_members
from holdfast.testing.conformance.bench import (
    ANNA,
    BERT,
    HERE,
    Bench,
    ManualClock,
    first_turn,
    new_attempt,
    start,
    turn,
)

THREADS = 4
ROUNDS = 25


def at_once(place: Place, act: Callable[[Bench, int, int], Awaitable[list[Outcome]]]) -> list[Outcome]:
    """Several threads, each with a store and a loop of its own, act `ROUNDS` times. All that came of it."""
    clock, barrier = ManualClock(), threading.Barrier(THREADS)

    async def on_bench(thread: int) -> list[Outcome]:
        store = PostgresStore(place.url, clock=clock)
        await store.open()
        try:
            bench = Bench(store, clock, first_id=1 + thread * 1_000_000)
            bench.beat(WorkerKey(f"w{thread}"))
            outcomes: list[Outcome] = []
            for number in range(ROUNDS):
                barrier.wait(20)
                outcomes += await act(bench, thread, number)
            return outcomes
        finally:
            await store.close()

    with ThreadPoolExecutor(THREADS) as threads:
        found = [threads.submit(asyncio.run, on_bench(thread)) for thread in range(THREADS)]
        return [outcome for done in found for outcome in done.result()]


def test_G3_of_many_who_start_an_id_at_once_one_creates_it(postgres: Place) -> None:
    async def act(bench: Bench, thread: int, number: int) -> list[Outcome]:
        order = (number, ROUNDS + number) if thread % 2 else (ROUNDS + number, number)
        return await bench.commit(*(start(f"i{each}") for each in order))

    outcomes = at_once(postgres, act)
    started = of_kind(outcomes, StartedInstance)
    assert len(started) == len(outcomes) == THREADS * ROUNDS * 2
    assert sum(outcome.created for outcome in started) == ROUNDS * 2


def test_G3_of_many_who_replace_an_id_at_once_each_ends_the_one_before(postgres: Place) -> None:
    async def act(bench: Bench, thread: int, number: int) -> list[Outcome]:
        given = b"%d" % (thread * ROUNDS + number)
        return await bench.commit(start("one", given=given, policy=IdPolicy.TERMINATE_EXISTING), event("one"))

    outcomes = at_once(postgres, act)
    created = [outcome for outcome in of_kind(outcomes, StartedInstance) if outcome.created]
    numbers = [outcome.instance.number for outcome in created]
    assert len(of_kind(outcomes, Delivered)) == THREADS * ROUNDS
    assert len(numbers) == len(set(numbers))
    assert sorted(outcome.replaced for outcome in created if outcome.replaced is not None) == sorted(numbers)[:-1]


def test_G1_of_many_who_claim_at_once_each_instance_and_attempt_has_one(postgres: Place) -> None:
    async def prepare(store: PostgresStore) -> None:
        store.heartbeat(Heartbeat(ANNA, None), HERE)
        ready = first_turn(ANNA, activities=0)
        for number in range(4):
            many = [start(f"i{number}-{each}") for each in range(100)]
            await store.commit(CommitId(10_000_000 + number), many)
        await store.commit(CommitId(10_000_100), [start("busy", first=ready)])
        busy = await store.find_instance(InstanceId("busy"))
        assert busy is not None
        attempts = tuple(new_attempt(each) for each in range(300))
        (outcome,) = await store.commit(CommitId(10_000_101), [turn(busy, attempts=attempts)])
        assert isinstance(outcome, Applied)

    async def act(bench: Bench, thread: int, number: int) -> list[Outcome]:
        del number
        key = WorkerKey(f"w{thread}")
        return await bench.commit(
            ClaimInstances(owner=key, workflows=("flow", "other"), limit=7),
            ClaimAttempts(owner=key, queues=("default",), names=("step",), limit=5),
        )

    on_a_store(postgres, prepare, clock=ManualClock())
    outcomes = at_once(postgres, act)
    instances = [each.number for outcome in of_kind(outcomes, ClaimedInstances) for each in outcome.instances]
    attempts = [each.key for outcome in of_kind(outcomes, ClaimedAttempts) for each in outcome.attempts]
    assert len(instances) == len(set(instances)) == 400
    assert len(attempts) == len(set(attempts)) == 300


def test_G6_messages_to_the_same_instances_in_any_order_are_all_taken_once(postgres: Place) -> None:
    """Groups that name the same instances in opposite orders lock them in the same one."""
    targets = [f"i{number}" for number in range(6)]

    async def prepare(store: PostgresStore) -> None:
        await store.commit(CommitId(10_000_000), [start(each) for each in targets])

    async def act(bench: Bench, thread: int, number: int) -> list[Outcome]:
        order = targets if thread % 2 else targets[::-1]
        return await bench.commit(*(event(each, f"m{number}") for each in order))

    on_a_store(postgres, prepare, clock=ManualClock())
    outcomes = at_once(postgres, act)
    assert len(of_kind(outcomes, Delivered)) == len(outcomes)
    rows = ask(postgres, "SELECT number, count(*) FROM {}.inbox GROUP BY number")
    assert [count for _, count in rows] == [ROUNDS + 1] * len(targets)


def test_A9_of_many_who_end_an_instance_at_once_one_does(postgres: Place) -> None:
    async def prepare(store: PostgresStore) -> None:
        await store.commit(CommitId(10_000_000), [start(f"i{number}") for number in range(ROUNDS)])

    async def act(bench: Bench, thread: int, number: int) -> list[Outcome]:
        del thread
        return await bench.commit(Terminate(id=InstanceId(f"i{number}")), event(f"i{number}"))

    on_a_store(postgres, prepare, clock=ManualClock())
    ended = of_kind(at_once(postgres, act), TerminatedInstance)
    assert sum(outcome.was_open for outcome in ended) == ROUNDS


def never(_: Sequence[Member]) -> bool:
    return False


def test_W6_a_worker_that_is_lost_while_it_commits_has_no_turn_after_its_loss(postgres: Place) -> None:
    """Its groups share its row; whoever ends its lease waits for them, and those that come later are refused."""

    async def case(store: PostgresStore) -> None:
        bench = Bench(store, ManualClock())
        bench.beat(ANNA)
        bench.beat(BERT)
        record = await bench.started("a", activities=0)
        new = start("b", first=first_turn(ANNA, activities=0))  # nobody else can see it before it is committed
        inside, go_on = threading.Event(), threading.Event()

        def slow(transaction: Any, members: Sequence[Member]) -> list[Outcome]:
            outcomes = apply_members(transaction, members)
            inside.set()
            go_on.wait(10)
            return outcomes

        other = PostgresStore(postgres.url, clock=ManualClock())
        await other.open()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postgres_writer, "apply_members", slow)
            patch.setattr(postgres_writer, "is_eligible", never)  # a group that is said at once has no middle
            under_way = asyncio.create_task(store.commit(CommitId(50), [new]))
            await asyncio.to_thread(inside.wait, 10)
            patch.undo()
            losing = asyncio.create_task(
                other.commit(CommitId(51), [MarkWorkerLost(key=ANNA, at_deadline=False, limit=10)])
            )
            done, _ = await asyncio.wait([losing], timeout=0.2)
            assert not done, "it did not wait for the group that is under way"
            go_on.set()
            assert isinstance((await under_way)[0], StartedInstance)
            assert await losing == [Applied(changed=2)], "what was begun meanwhile moves on, too"
        assert (await bench.instance("b")).owner is None
        assert isinstance(await bench.one(turn(record)), Rejected)
        await other.close()

    on_a_store(postgres, case, clock=ManualClock())
