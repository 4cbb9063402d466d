"""Another store on the same data, as another process opens it: what was acknowledged is there, and guards hold."""

import asyncio
from unittest import SkipTest

from holdfast.core.events import ActivityCompleted, decode_event
from holdfast.errors import StoreError
from holdfast.storage.contract import (
    ClaimedInstances,
    ClaimInstances,
    CommitId,
    Failed,
    InstanceId,
    LargePayload,
    MarkWorkerLost,
    Member,
    Outcome,
    Rejected,
    StartedInstance,
    StateValue,
    Store,
    TimerRow,
)
from holdfast.testing.conformance.bench import (
    ANNA,
    BERT,
    Bench,
    Rules,
    applied,
    check,
    completion,
    new_attempt,
    start,
    turn,
)

OTHERS_IDS = 1_000_000
"""From here on the other store numbers its commits."""


class SharingRules(Rules):
    """C1, G1, G3, W7, W9, and that acknowledged means on disk."""

    def test_a_closed_store_is_not_opened_again(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.store.close()
            await bench.store.close()
            refused = ""
            try:
                await bench.store.open()
            except StoreError as error:
                refused = str(error)
            check("cannot be opened again" in refused)

        self.on_bench(case)

    def test_what_was_acknowledged_is_there_for_whoever_opens_the_store_next(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=2)
            whole = turn(
                record,
                attempts=(new_attempt(2),),
                timers_started=(TimerRow(timer=1, due_at_ms=bench.clock.now_ms + 5),),
                payloads=(LargePayload(reference="hash", data=b"data"),),
                kept=(StateValue(key="k", value=b"1"),),
            )
            check(applied(await bench.one(whole)))
            check(applied(await bench.one(completion(record, 0))))
            await bench.store.commit(CommitId(4_711), [start("b")])
            seen = await _everything(bench.store, "a")
            await bench.store.close()
            async with self._another(bench) as other:
                check(await _everything(other.store, "a") == seen)
                check(await other.store.was_committed(CommitId(4_711)))
                check({worker.key for worker in await other.store.workers()} == {ANNA, BERT})
                (waiting,) = await other.store.messages_for(ANNA, 0)
                check(isinstance(decode_event(waiting.event), ActivityCompleted))
                new = await other.one(start("c"))
                numbers = {record.number, (await other.instance("b")).number}
                check(isinstance(new, StartedInstance) and new.instance.number not in numbers)

        self.on_bench(case)

    def test_W9_the_clock_does_not_go_back_for_whoever_opens_the_store_next(self) -> None:
        async def case(bench: Bench) -> None:
            bench.clock.now_ms += 60_000
            await bench.one(start("a"))
            before = bench.store.now_ms()
            await bench.store.close()
            bench.clock.now_ms -= 120_000
            async with self._another(bench) as other:
                await other.one(start("b"))
                check(other.store.now_ms() >= before)
                check((await other.instance("b")).created_at_ms >= (await other.instance("a")).created_at_ms)

        self.on_bench(case)

    def test_G1_claims_through_two_stores_at_once_never_get_the_same_instance(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.commit(*(start(f"i{number}") for number in range(40)))
            async with self._another(bench) as other:
                claims = [(bench, ANNA), (other, BERT)] * 5
                outcomes = await asyncio.gather(
                    *(each.one(ClaimInstances(owner=owner, workflows=("flow",), limit=4)) for each, owner in claims)
                )
            claimed = [
                record.number
                for outcome in outcomes
                if isinstance(outcome, ClaimedInstances)
                for record in outcome.instances
            ]
            check(len(claimed) == len(set(claimed)) == 40)

        self.on_bench(case)

    def test_G3_starts_through_two_stores_at_once_are_one_instance(self) -> None:
        async def case(bench: Bench) -> None:
            async with self._another(bench) as other:
                outcomes = await asyncio.gather(*(each.one(start("a")) for each in (bench, other) * 5))
            started = [outcome for outcome in outcomes if isinstance(outcome, StartedInstance)]
            check(len(started) == 10)
            check(sum(outcome.created for outcome in started) == 1)
            check(len({outcome.instance.number for outcome in started}) == 1)

        self.on_bench(case)

    def test_G9_the_same_turn_through_two_stores_at_once_is_taken_once(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            async with self._another(bench) as other:
                outcomes = await asyncio.gather(*(each.one(turn(record)) for each in (bench, other)))
            check(sorted(applied(outcome) for outcome in outcomes) == [False, True])
            check([row.turn for row in await bench.store.read_history(record.number, 1)] == [0, 1])

        self.on_bench(case)

    def test_L9_the_same_completion_through_two_stores_at_once_counts_once(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            async with self._another(bench) as other:
                outcomes = await asyncio.gather(*(each.one(completion(record)) for each in (bench, other)))
            check(sorted(applied(outcome) for outcome in outcomes) == [False, True])
            check(len((await bench.store.load(record.number, 1)).inbox) == 1)

        self.on_bench(case)

    def test_W7_whoever_was_lost_through_another_store_changes_nothing_here(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            async with self._another(bench) as other:
                check(applied(await other.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=1_000))))
                late: tuple[Member, ...] = (turn(record), completion(record))
                for member in late:
                    check(isinstance(await bench.one(member), Rejected))
                check((await other.instance("a")).turn == record.turn)

        self.on_bench(case)

    def test_a_commit_id_counts_once_whoever_uses_it(self) -> None:
        async def case(bench: Bench) -> None:
            async with self._another(bench) as other:
                await bench.store.commit(CommitId(4_711), [start("a")])
                check(await other.store.was_committed(CommitId(4_711)))
                again: list[Outcome] = await other.store.commit(CommitId(4_711), [start("b")])
                check(isinstance(again[0], Failed | Rejected))
                check(await other.store.find(InstanceId("b")) is None)

        self.on_bench(case)

    def _another(self, bench: Bench) -> "_Another":
        store = self.make_another(bench.clock)
        if store is None:
            raise SkipTest("what is in memory has no other store")
        return _Another(Bench(store, bench.clock, first_id=OTHERS_IDS))


class _Another:
    """Another store, while it is open."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def __aenter__(self) -> Bench:
        await self._bench.store.open()
        return self._bench

    async def __aexit__(self, *_: object) -> None:
        await self._bench.store.close()


async def _everything(store: Store, instance_id: str) -> list[object]:
    record = await store.find(InstanceId(instance_id))
    if record is None:
        return []
    number = record.number
    return [
        record,
        await store.load(number, 1),
        await store.read_history(number, 1),
        await store.read_attempts(number, 1),
        await store.read_payloads(number),
        await store.read_kept(number),
        await store.held_by(ANNA),
    ]
