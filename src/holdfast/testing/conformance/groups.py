"""Rules of groups: one transaction, isolated members, and an id that settles an unknown outcome.

Rules of shared data: another store object, as another process opens it, reads what was acknowledged, and guards hold.
"""

import asyncio
from typing import TYPE_CHECKING, Any, cast
from unittest import SkipTest

import msgspec

from holdfast.core.history import ActivityCompleted, EventReceived, Payload, decode_event
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.errors import StoreError
from holdfast.storage.contract import Store
from holdfast.storage.members.instances import ClaimInstances
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import ClaimedInstances, Failed, Outcome, Rejected, StartedInstance
from holdfast.storage.members.workers import MarkWorkerLost
from holdfast.storage.records import CommitId, Fence, InstanceId, InstanceNumber, LargePayload, StateValue, TimerRow
from holdfast.testing.conformance.bench import (
    ANNA,
    BERT,
    Bench,
    Rules,
    applied,
    check,
    closing,
    completion,
    new_attempt,
    start,
    turn,
)

if TYPE_CHECKING:
    from holdfast.storage.members.member import Member

NULL = Payload(msgspec.Raw(b"null"))


class GroupRules(Rules):
    """The isolation rules of the contract, W9's clock, and commit ids."""

    def test_a_stale_member_changes_nothing_and_the_others_are_applied(self) -> None:
        async def case(bench: Bench) -> None:
            first, second = await bench.started("a"), await bench.started("b")
            stale = turn(first, turn=9, attempts=(new_attempt(5),))
            outcomes = await bench.commit(turn(first), stale, turn(second), start("c"))
            check([applied(outcome) for outcome in outcomes[:3]] == [True, False, True])
            check(isinstance(outcomes[3], StartedInstance))
            check((await bench.instance("a")).turn == (await bench.instance("b")).turn == 2)

        self.on_bench(case)

    def test_G9_members_about_one_instance_are_applied_in_their_order_also_among_others(self) -> None:
        """A store that brings statements of one kind together must not let the last turn overtake an earlier one."""

        async def case(bench: Bench) -> None:
            records = [await bench.started(f"i{number}") for number in range(6)]
            one = records[2]
            group = [turn(record, completions=(completion(record),), attempts=(new_attempt(1),)) for record in records]
            group.append(turn(one, turn=one.turn + 1, attempts=(new_attempt(2),)))
            group.append(closing(one, turn=one.turn + 2, read_to=0))
            outcomes = await bench.commit(*group)
            check([applied(outcome) for outcome in outcomes] == [True] * 8)
            ended = await bench.instance("i2")
            check((ended.state, ended.turn, ended.owner) == (InstanceState.COMPLETED, one.turn + 3, None))
            attempts = await bench.store.read_attempts(one.number, 1)
            check(
                [attempt.state for attempt in attempts]
                == [AttemptState.COMPLETED, AttemptState.CANCELLED, AttemptState.CANCELLED],
                "the end of the instance cancels what the turns before it in the group have opened",
            )
            check([(await bench.instance(f"i{at}")).turn for at in (0, 5)] == [2, 2])

        self.on_bench(case)

    def test_a_member_that_the_database_refuses_fails_alone(self) -> None:
        async def case(bench: Bench) -> None:
            records = [await bench.started(f"i{number}") for number in range(7)]
            members = [turn(record, attempts=(new_attempt(1),)) for record in records]
            members[3] = turn(records[3], attempts=(new_attempt(0),))  # opens an attempt that is there already
            outcomes = await bench.commit(*members)
            check([isinstance(outcome, Failed) for outcome in outcomes] == [at == 3 for at in range(7)])
            check([(await bench.instance(f"i{at}")).turn for at in range(7)] == [2, 2, 2, 1, 2, 2, 2])
            check(await bench.store.was_committed(bench.last_id), "the others are on disk, and so is the id")

        self.on_bench(case)

    def test_G11_a_turn_that_is_rejected_or_fails_leaves_nothing(self) -> None:
        """The guard rejects the turn, or the database fails after most of it was written."""

        async def case(bench: Bench) -> None:
            record, target = await bench.started("a", activities=2), await bench.started("target", activities=0)
            check(applied(await bench.one(completion(record, 1))))
            (row,) = await bench.store.read_inbox_of(ANNA, 0)
            before = await _all_of(bench, record.number)
            parts: dict[str, Any] = {
                "consumed": (row.row,),
                "abandoned": (0,),
                "timers_started": (TimerRow(timer=1, due_at_ms=5),),
                "payloads": (LargePayload(reference="hash", data=b"data"),),
                "state_values": (StateValue(key="k", value=b"1"),),
                "sent": (Deliver(id=target.id, event=EventReceived(time_ms=0, name="go", value=NULL), message_id="m"),),
                "waits": ("go",),
                "release": True,
            }
            for falls in (
                turn(record, turn=record.turn + 1, attempts=(new_attempt(7),), **parts),
                turn(record, fence=Fence(record.fence + 1), attempts=(new_attempt(7),), **parts),
                turn(record, attempts=(new_attempt(7), new_attempt(0)), **parts),
                closing(record, attempts=(new_attempt(0),), state_values=parts["state_values"]),
            ):
                check(not applied(await bench.one(falls)))
                check(await _all_of(bench, record.number) == before)
                check(not (await bench.store.load(target.number, 1)).inbox, "a rejected turn delivered its message")
            check(applied(await bench.one(turn(record, attempts=(new_attempt(7),), **parts))))
            check(await _all_of(bench, record.number) != before)
            check(len((await bench.store.load(target.number, 1)).inbox) == 1)

        self.on_bench(case)

    def test_a_commit_is_found_by_its_id(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.store.commit(CommitId(4_711), [start("a")])
            check(await bench.store.was_committed(CommitId(4_711)))
            check(not await bench.store.was_committed(CommitId(4_712)))

        self.on_bench(case)

    def test_the_same_commit_id_twice_is_applied_once(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            await bench.store.commit(CommitId(4_711), [completion(record)])
            outcomes = await bench.store.commit(CommitId(4_711), [start("b")])
            check(isinstance(outcomes[0], Failed | Rejected))
            check(await bench.store.find_instance(InstanceId("b")) is None)

        self.on_bench(case)

    def test_W9_the_stores_clock_never_goes_back(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a"))
            before = bench.store.now_ms()
            bench.clock.now_ms -= 60_000
            await bench.one(start("b"))
            check(bench.store.now_ms() >= before)
            check((await bench.instance("b")).created_at_ms >= (await bench.instance("a")).created_at_ms)
            bench.clock.now_ms += 120_000
            read = bench.store.now_ms()
            bench.clock.now_ms -= 1
            check(bench.store.now_ms() >= read, "a time that was only read counts as well")

        self.on_bench(case)

    def test_G10_messages_are_kept_in_the_order_of_their_arrival(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=5)
            for activity in (3, 0, 4, 1, 2):
                bench.clock.now_ms += 1
                check(applied(await bench.one(completion(record, activity))))
            rows = await bench.store.read_inbox_of(ANNA, 0)
            check([row.stamp_ms for row in rows] == sorted(row.stamp_ms for row in rows))
            check([cast("ActivityCompleted", decode_event(row.event)).activity for row in rows] == [3, 0, 4, 1, 2])
            check(
                [row.row for row in await bench.store.read_inbox_of(ANNA, rows[2].row)]
                == [each.row for each in rows[3:]]
            )

        self.on_bench(case)

    def test_G10_consumed_messages_are_deleted_and_later_ones_stay(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=2)
            check(applied(await bench.one(completion(record, 0))))
            check(applied(await bench.one(completion(record, 1))))
            rows = await bench.store.read_inbox_of(ANNA, 0)
            check(applied(await bench.one(turn(record, consumed=(rows[0].row,)))))
            check([row.row for row in await bench.store.read_inbox_of(ANNA, 0)] == [rows[1].row])

        self.on_bench(case)


async def _all_of(bench: Bench, number: InstanceNumber) -> list[object]:
    """All rows of an instance that a turn can change."""
    store = bench.store
    loaded = await store.load(number, 1)
    return [
        await store.read_instance(number),
        loaded,
        await store.read_payloads(number),
        await store.read_state_values(number),
    ]


OTHERS_IDS = 1_000_000
"""From here on the other store numbers its commits."""


class SharedStoreRules(Rules):
    """C1, G1, G3, W7, W9, and that acknowledged means on disk."""

    def test_a_closed_store_is_not_opened_again(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.store.close()
            await bench.store.close()
            is_refused = False
            try:
                await bench.store.open()
            except StoreError:
                is_refused = True
            check(is_refused)

        self.on_bench(case)

    def test_acknowledged_data_is_there_when_the_store_is_opened_again(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=2)
            whole = turn(
                record,
                attempts=(new_attempt(2),),
                timers_started=(TimerRow(timer=1, due_at_ms=bench.clock.now_ms + 5),),
                payloads=(LargePayload(reference="hash", data=b"data"),),
                state_values=(StateValue(key="k", value=b"1"),),
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
                (waiting,) = await other.store.read_inbox_of(ANNA, 0)
                check(isinstance(decode_event(waiting.event), ActivityCompleted))
                new = await other.one(start("c"))
                numbers = {record.number, (await other.instance("b")).number}
                check(isinstance(new, StartedInstance) and new.instance.number not in numbers)

        self.on_bench(case)

    def test_W9_the_clock_does_not_go_back_when_the_store_is_opened_again(self) -> None:
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

    def test_W7_a_worker_that_was_lost_through_another_store_changes_nothing(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            async with self._another(bench) as other:
                check(applied(await other.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=1_000))))
                late: tuple[Member, ...] = (turn(record), completion(record))
                for member in late:
                    check(isinstance(await bench.one(member), Rejected))
                check((await other.instance("a")).turn == record.turn)

        self.on_bench(case)

    def test_a_commit_id_counts_once_for_all_stores(self) -> None:
        async def case(bench: Bench) -> None:
            async with self._another(bench) as other:
                await bench.store.commit(CommitId(4_711), [start("a")])
                check(await other.store.was_committed(CommitId(4_711)))
                again: list[Outcome] = await other.store.commit(CommitId(4_711), [start("b")])
                check(isinstance(again[0], Failed | Rejected))
                check(await other.store.find_instance(InstanceId("b")) is None)

        self.on_bench(case)

    def _another(self, bench: Bench) -> "_Another":
        store = self.make_another(bench.clock)
        if store is None:
            raise SkipTest("make_another returns None: only one store object can have the data")
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
    record = await store.find_instance(InstanceId(instance_id))
    if record is None:
        return []
    number = record.number
    return [
        record,
        await store.load(number, 1),
        await store.read_history(number, 1),
        await store.read_attempts(number, 1),
        await store.read_payloads(number),
        await store.read_state_values(number),
        await store.rows_owned_by(ANNA),
    ]
