"""Groups: one transaction, isolated members, and an id by which an unknown outcome is settled."""

from typing import Any, cast

import msgspec

from holdfast.core.events import ActivityCompleted, EventReceived, Payload, decode_event
from holdfast.storage.contract import (
    CommitId,
    Deliver,
    Failed,
    Fence,
    InstanceId,
    InstanceNumber,
    LargePayload,
    Rejected,
    StartedInstance,
    StateValue,
    TimerRow,
)
from holdfast.testing.conformance.bench import (
    ANNA,
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

NULL = Payload(msgspec.Raw(b"null"))


class GroupRules(Rules):
    """The isolation rules of the contract, W9's clock, and commit ids."""

    def test_a_stale_member_changes_nothing_and_the_others_go_on(self) -> None:
        async def case(bench: Bench) -> None:
            first, second = await bench.started("a"), await bench.started("b")
            stale = turn(first, turn=9, attempts=(new_attempt(5),))
            outcomes = await bench.commit(turn(first), stale, turn(second), start("c"))
            check([applied(outcome) for outcome in outcomes[:3]] == [True, False, True])
            check(isinstance(outcomes[3], StartedInstance))
            check((await bench.instance("a")).turn == (await bench.instance("b")).turn == 2)

        self.on_bench(case)

    def test_a_member_that_the_database_refuses_falls_alone_out_of_its_group(self) -> None:
        async def case(bench: Bench) -> None:
            records = [await bench.started(f"i{number}") for number in range(7)]
            members = [turn(record, attempts=(new_attempt(1),)) for record in records]
            members[3] = turn(records[3], attempts=(new_attempt(0),))  # opens an attempt that is there already
            outcomes = await bench.commit(*members)
            check([isinstance(outcome, Failed) for outcome in outcomes] == [at == 3 for at in range(7)])
            check([(await bench.instance(f"i{at}")).turn for at in range(7)] == [2, 2, 2, 1, 2, 2, 2])
            check(await bench.store.was_committed(bench.last_id), "the others are on disk, and so is the id")

        self.on_bench(case)

    def test_G11_nothing_of_a_turn_that_falls_is_left_whatever_it_carried(self) -> None:
        """Refused by its guard, or by the database after most of it was written."""

        async def case(bench: Bench) -> None:
            record, target = await bench.started("a", activities=2), await bench.started("target", activities=0)
            check(applied(await bench.one(completion(record, 1))))
            (row,) = await bench.store.messages_for(ANNA, 0)
            before = await _all_of(bench, record.number)
            parts: dict[str, Any] = {
                "consumed": (row.row,),
                "abandoned": (0,),
                "timers_started": (TimerRow(timer=1, due_at_ms=5),),
                "payloads": (LargePayload(reference="hash", data=b"data"),),
                "kept": (StateValue(key="k", value=b"1"),),
                "sent": (Deliver(id=target.id, event=EventReceived(time_ms=0, name="go", value=NULL), message_id="m"),),
                "waits": ("go",),
                "release": True,
            }
            for falls in (
                turn(record, turn=record.turn + 1, attempts=(new_attempt(7),), **parts),
                turn(record, fence=Fence(record.fence + 1), attempts=(new_attempt(7),), **parts),
                turn(record, attempts=(new_attempt(7), new_attempt(0)), **parts),
                closing(record, attempts=(new_attempt(0),), kept=parts["kept"]),
            ):
                check(not applied(await bench.one(falls)))
                check(await _all_of(bench, record.number) == before)
                check(not (await bench.store.load(target.number, 1)).inbox, "its message was sent all the same")
            check(applied(await bench.one(turn(record, attempts=(new_attempt(7),), **parts))))
            check(await _all_of(bench, record.number) != before)
            check(len((await bench.store.load(target.number, 1)).inbox) == 1)

        self.on_bench(case)

    def test_a_commit_is_found_by_its_id_and_one_that_never_was_is_not(self) -> None:
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
            check(await bench.store.find(InstanceId("b")) is None)

        self.on_bench(case)

    def test_W9_the_stores_clock_never_goes_back(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a"))
            before = bench.store.now_ms()
            bench.clock.now_ms -= 60_000
            await bench.one(start("b"))
            check(bench.store.now_ms() >= before)
            check((await bench.instance("b")).created_at_ms >= (await bench.instance("a")).created_at_ms)

        self.on_bench(case)

    def test_G10_messages_are_kept_in_the_order_of_their_arrival(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=5)
            for activity in (3, 0, 4, 1, 2):
                bench.clock.now_ms += 1
                check(applied(await bench.one(completion(record, activity))))
            rows = await bench.store.messages_for(ANNA, 0)
            check([row.stamp_ms for row in rows] == sorted(row.stamp_ms for row in rows))
            check([cast(ActivityCompleted, decode_event(row.event)).activity for row in rows] == [3, 0, 4, 1, 2])
            check(
                [row.row for row in await bench.store.messages_for(ANNA, rows[2].row)]
                == [each.row for each in rows[3:]]
            )

        self.on_bench(case)

    def test_G10_what_was_consumed_is_gone_and_what_came_later_stays(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=2)
            check(applied(await bench.one(completion(record, 0))))
            check(applied(await bench.one(completion(record, 1))))
            rows = await bench.store.messages_for(ANNA, 0)
            check(applied(await bench.one(turn(record, consumed=(rows[0].row,)))))
            check([row.row for row in await bench.store.messages_for(ANNA, 0)] == [rows[1].row])

        self.on_bench(case)


async def _all_of(bench: Bench, number: InstanceNumber) -> list[object]:
    """Everything that a turn of an instance can change of it."""
    store = bench.store
    loaded = await store.load(number, 1)
    return [await store.read_instance(number), loaded, await store.read_payloads(number), await store.read_kept(number)]
