"""Rules of duties that any worker performs: two workers perform them concurrently, each through its own store (C1, C5).

Both read the same rows before either writes. Every change is made, and made once.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from unittest import SkipTest

import msgspec

from holdfast.core.activity_options import ActivityOptions
from holdfast.core.leases import WorkerKey
from holdfast.core.lifecycle import AttemptEvent, AttemptState, InstanceState
from holdfast.payloads.failures import RecordedFailure
from holdfast.storage.attempt_endings import end_by_failure
from holdfast.storage.contract import COMMITS_KEPT_MS, TOMBSTONES_KEPT_MS
from holdfast.storage.members.instances import Block, ClaimInstances, CloseChildren, Expire, Release
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import DeleteQueries
from holdfast.storage.members.outcomes import Applied, ClaimedInstances, Expired, Outcome, StartedInstance
from holdfast.storage.members.workers import MarkWorkerLost
from holdfast.storage.records import AttemptRecord, CommitId, TimerRow
from holdfast.testing.conformance.bench import (
    ANNA,
    BERT,
    Bench,
    Rules,
    applied,
    check,
    closing,
    new_attempt,
    start,
    turn,
)
from holdfast.testing.conformance.children import new_child, parent_with_children
from holdfast.testing.conformance.deadlines import LIMIT_MS, limited
from holdfast.testing.conformance.queries import LATER_MS, ask

COUNT = 24
OTHERS_IDS = 2_000_000
MOST_PIECES = 100
LATE = RecordedFailure(type="holdfast.errors.ActivityTimedOut", message="too late")
EXPLAINED = MarkWorkerLost(key=ANNA, at_deadline=False, limit=5)
UNEXPLAINED = MarkWorkerLost(key=ANNA, at_deadline=False, limit=5, unexplained=True)
Both = Sequence[Bench]


class ConcurrentDutyRules(Rules):
    """Expiry, lost workers, closing of children and clean-up by two workers at once."""

    def test_C1_two_workers_release_the_rows_of_a_lost_worker_once(self) -> None:
        async def case(both: Both) -> None:
            here = both[0]
            numbers = [(await here.started(f"i{number}")).number for number in range(COUNT)]
            moved = await asyncio.gather(*(_lose_all(bench) for bench in both))
            check(sum(moved) == 2 * COUNT, f"{moved} rows were moved")
            for number in numbers:
                states = [(str(each.state), each.losses) for each in await here.store.read_attempts(number, 1)]
                check(states == [("TIMED_OUT", 0), ("READY", 1)])

        self._on_both(case)

    def test_C1_two_workers_with_different_verdicts_on_a_loss_count_it_by_the_first_one(self) -> None:
        async def case(both: Both) -> None:
            for words, counted in ((EXPLAINED, 0), (UNEXPLAINED, 1)):
                first, second = (words, UNEXPLAINED if words is EXPLAINED else EXPLAINED)
                key = WorkerKey(f"lost{counted}")
                losses, _ = await _lost_by(both, key, first, second, is_flipped=True)
                check(losses == [1, *[counted] * (COUNT - 1)], f"{losses} losses were counted")

        self._on_both(case)

    def test_C1_two_workers_that_judge_a_loss_concurrently_use_one_verdict(self) -> None:
        async def case(both: Both) -> None:
            losses, _ = await _lost_by(both, WorkerKey("lost"), EXPLAINED, UNEXPLAINED, is_flipped=False)
            check(losses in ([1, *[0] * (COUNT - 1)], [1] * COUNT), f"{losses} losses were counted")

        self._on_both(case)

    def test_A10_rows_that_a_clean_stop_did_not_release_are_not_counted_as_lost(self) -> None:
        async def case(both: Both) -> None:
            clean = MarkWorkerLost(key=ANNA, at_deadline=False, limit=1, is_clean=True)
            losses, of_attempts = await _lost_by(both, WorkerKey("left"), clean, UNEXPLAINED, is_flipped=True)
            check(losses == [0] * COUNT, "instances")
            check(of_attempts == [0] * COUNT, "attempts")

        self._on_both(case)

    def test_C1_two_workers_that_look_for_dead_owners_release_their_rows_once(self) -> None:
        async def case(both: Both) -> None:
            here = both[0]
            for number in range(COUNT):
                await here.started(f"i{number}")
            check(applied(await here.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=1))))
            stranded = await asyncio.gather(*(bench.store.dead_owners() for bench in both))
            check(stranded == [[ANNA], [ANNA]])
            moved = await asyncio.gather(*(_lose_all(bench) for bench in both))
            check(sum(moved) == 2 * (COUNT - 1))
            check(await here.store.dead_owners() == [])

        self._on_both(case)

    def test_C5_two_workers_end_an_attempt_at_its_deadline_once(self) -> None:
        async def case(both: Both) -> None:
            here = both[0]
            record = await here.started("a", activities=0)
            options, at_ms = ActivityOptions(heartbeat_ms=50), here.clock.now_ms + 50
            silent = [new_attempt(each, owner=ANNA, options=options, expires_at_ms=at_ms) for each in range(COUNT)]
            check(applied(await here.one(turn(record, attempts=tuple(silent)))))
            here.clock.now_ms = at_ms
            read = [await bench.store.expired_attempts(COUNT) for bench in both]
            check(read[0] == read[1] and len(read[0]) == COUNT)
            ends = [bench.one(_expiry(bench, each)) for bench, late in zip(both, read, strict=True) for each in late]
            check(_count_applied(await asyncio.gather(*ends)) == COUNT)
            attempts = await here.store.read_attempts(record.number, 1)
            check(len(attempts) == 2 * COUNT, "each has one successor")

        self._on_both(case)

    def test_C1_two_workers_fire_a_timer_once(self) -> None:
        async def case(both: Both) -> None:
            here, at_ms = both[0], both[0].clock.now_ms + 5
            for number in range(COUNT):
                record = await here.started(f"i{number}", activities=0)
                timer = TimerRow(timer=1, due_at_ms=at_ms)
                check(applied(await here.one(turn(record, timers_started=(timer,)))))
                check(applied(await here.one(Release(number=record.number, owner=ANNA, fence=record.fence))))
            here.clock.now_ms = at_ms
            claims = [
                bench.one(ClaimInstances(owner=owner, workflows=("flow",), limit=COUNT))
                for bench, owner in zip(both, (ANNA, BERT), strict=True)
            ]
            claimed = _claimed(await asyncio.gather(*claims))
            check(len(claimed) == len(set(claimed)) == COUNT)

        self._on_both(case)

    def test_C1_two_workers_act_upon_the_deadline_of_an_instance_once(self) -> None:
        async def case(both: Both) -> None:
            here = both[0]
            numbers = [(await limited(here, f"i{number}")).number for number in range(COUNT)]
            here.clock.now_ms += LIMIT_MS
            expired = await asyncio.gather(*(bench.one(Expire(number=number)) for bench in both for number in numbers))
            check(sum(isinstance(outcome, Expired) for outcome in expired) == COUNT)
            for number in numbers:
                check(len((await here.store.load(number, 1)).inbox) == 1, "it was asked once")

        self._on_both(case)

    def test_C1_two_workers_close_the_children_of_an_ended_execution_once(self) -> None:
        async def case(both: Both) -> None:
            here = both[0]
            count = 1_050
            parent = await parent_with_children(here, *(new_child(at, f"p/1/{at}") for at in range(count)))
            check(applied(await here.one(closing(parent, has_relatives=True))))
            left = (await here.store.read_relatives(parent.number)).children.get(InstanceState.REQUESTED, 0)
            check(left > 0, "one commit is bounded")
            closed = CloseChildren(number=parent.number, execution=1, limit=200)
            moved = await asyncio.gather(*(_until_nothing_is_left(bench, closed) for bench in both))
            check(sum(moved) == left)
            check((await here.store.read_relatives(parent.number)).children == {InstanceState.TERMINATED: count})
            check(await here.store.open_closings(10) == [])

        self._on_both(case)

    def test_C1_two_workers_of_a_new_build_claim_a_blocked_instance_once(self) -> None:
        async def case(both: Both) -> None:
            here = both[0]
            for number in range(COUNT):
                record = await here.started(f"i{number}", activities=0)
                block = Block(number=record.number, owner=ANNA, fence=record.fence, reason="why", build="old")
                check(applied(await here.one(block)))
            claims = [
                bench.one(ClaimInstances(owner=owner, workflows=("flow",), limit=COUNT, blocked=True, build="new"))
                for bench, owner in zip(both, (ANNA, BERT), strict=True)
            ]
            claimed = _claimed(await asyncio.gather(*claims))
            check(len(claimed) == len(set(claimed)) == COUNT)

        self._on_both(case)

    def test_C1_two_workers_that_delete_expired_queries_leave_the_others(self) -> None:
        async def case(both: Both) -> None:
            here = both[0]
            record = await here.started("a")
            check(applied(await here.one(ask(record, "old"))))
            here.clock.now_ms = LATER_MS
            fresh = msgspec.structs.replace(ask(record, "new"), expires_at_ms=LATER_MS + 10_000)
            check(applied(await here.one(fresh)))
            check((await here.store.pending_queries()).has_expired)
            await asyncio.gather(*(bench.one(DeleteQueries()) for bench in both))
            waiting = await here.store.pending_queries()
            check((waiting.has_queries, waiting.has_expired) == (True, False))

        self._on_both(case)

    def test_C1_two_workers_that_prune_concurrently_delete_old_commits_only(self) -> None:
        async def case(both: Both) -> None:
            here, old = both[0], list[CommitId]()
            for number in range(COUNT):
                check(isinstance(await here.one(start(f"i{number}")), StartedInstance))
                old.append(here.last_id)
            here.clock.now_ms += COMMITS_KEPT_MS
            await asyncio.gather(*(_cleaned_up(bench) for bench in both))
            check(all([await here.store.was_committed(each) for each in old]), "it is not old enough")
            here.clock.now_ms += 1
            check(isinstance(await both[1].one(start("new")), StartedInstance))
            await asyncio.gather(*(_cleaned_up(bench) for bench in both))
            check(not any([await here.store.was_committed(each) for each in old]), "it is old enough")
            check(await here.store.was_committed(both[1].last_id))

        self._on_both(case)

    def test_W5_a_dead_key_is_pruned_after_a_day_unless_it_still_owns_rows(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.started("a", activities=0)
            await bench.started("b", activities=0)
            await bench.one(MarkWorkerLost(key=BERT, at_deadline=False, limit=1))
            await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=1))  # one of the two is still its own
            carl = WorkerKey("carl")
            for late_by_ms, keys in ((0, {ANNA, BERT, carl}), (2 * TOMBSTONES_KEPT_MS, {ANNA, carl})):
                bench.clock.now_ms += late_by_ms
                bench.beat(carl)
                await _cleaned_up(bench)
                check({worker.key for worker in await bench.store.workers()} == keys)
            await _lose_all(bench)
            await _cleaned_up(bench)
            check({worker.key for worker in await bench.store.workers()} == {carl})

        self.on_bench(case)

    def _on_both(self, case: Callable[[Both], Awaitable[None]]) -> None:
        async def on(bench: Bench) -> None:
            async with self._opened(bench) as other:
                await case((bench, other))

        self.on_bench(on)

    @asynccontextmanager
    async def _opened(self, bench: Bench) -> AsyncGenerator[Bench]:
        store = self.make_another(bench.clock)
        if store is None:
            raise SkipTest("make_another returns None: only one store object can have the data")
        await store.open()
        try:
            yield Bench(store, bench.clock, first_id=OTHERS_IDS)
        finally:
            await store.close()


async def _lost_by(
    both: Both, key: WorkerKey, first: MarkWorkerLost, second: MarkWorkerLost, *, is_flipped: bool
) -> tuple[list[int], list[int]]:
    """The losses counted for each instance, the one that the lost worker was running first, and for each attempt.

    With `is_flipped` the first worker has ended the lease and moved a batch before the second begins; else both
    run concurrently.
    """
    here = both[0]
    here.beat(key)
    numbers = [(await here.started(f"{key}-{each}", owner=key)).number for each in range(COUNT)]
    culprit = numbers[0] if not first.is_clean else None
    first, second = (
        msgspec.structs.replace(mark_lost, key=key, culprit=None if mark_lost.unexplained else culprit)
        for mark_lost in (first, second)
    )
    if is_flipped:
        check(applied(await here.one(first)))
        await _until_nothing_is_left(both[1], second)
    else:
        doing = [
            _until_nothing_is_left(bench, mark_lost) for bench, mark_lost in zip(both, (first, second), strict=True)
        ]
        await asyncio.gather(*doing)
    claimed = await here.one(ClaimInstances(owner=BERT, workflows=("flow",), limit=COUNT))
    losses = {each.number: each.losses for each in claimed.instances} if isinstance(claimed, ClaimedInstances) else {}
    attempts = [each for number in numbers for each in await here.store.read_attempts(number, 1)]
    ready = [each.losses for each in attempts if each.state is AttemptState.READY]
    return [losses[number] for number in numbers], ready


async def _lose_all(bench: Bench) -> int:
    return await _until_nothing_is_left(bench, MarkWorkerLost(key=ANNA, at_deadline=False, limit=5))


async def _until_nothing_is_left(bench: Bench, member: Member) -> int:
    """Commit a member until it changes nothing. Returns the number of rows that it changed."""
    moved = 0
    while True:
        outcome = await bench.one(member)
        if not isinstance(outcome, Applied) or outcome.changed == 0:
            return moved
        moved += outcome.changed
        await asyncio.sleep(0)


async def _cleaned_up(bench: Bench) -> None:
    for _ in range(MOST_PIECES):
        if not await bench.store.prune():
            return
    check(False, f"prune() still reports more rows after {MOST_PIECES} calls")


def _expiry(bench: Bench, attempt: AttemptRecord) -> Member:
    now_ms = bench.clock.now_ms
    ended = end_by_failure(attempt, LATE, (), event=AttemptEvent.EXPIRE, now_ms=now_ms, random_number=0.0)
    return msgspec.structs.replace(ended, by_owner=False)


def _count_applied(outcomes: Sequence[Outcome]) -> int:
    return sum(isinstance(outcome, Applied) for outcome in outcomes)


def _claimed(outcomes: Sequence[Outcome]) -> list[int]:
    claims = [outcome for outcome in outcomes if isinstance(outcome, ClaimedInstances)]
    return [record.number for outcome in claims for record in outcome.instances]
