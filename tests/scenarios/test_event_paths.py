"""The two ways of raised events: with the turn that takes them, or through the inbox (G6, G10, G11).

Whichever way they go, and whatever happens on it, each event comes once, in order, and its sender is told the truth.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.scenarios.held import HeldTurns, store_at
from tests.scenarios.support import check_tables, engine_of, history_of, rows, skipping, together, until
from tests.scenarios.test_store_trouble import FailOnce
from tests.support.inside import committer_of, end_lease, live_instances, worker_of

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import EventReceived
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.runtime.platform import FaultPoint
from holdfast.storage.members.member import Member
from holdfast.storage.members.turns import Turn
from holdfast.testing.environment import Environment

NUMBER = "number"


@hf.workflow
async def collects(count: int) -> list[int]:
    found: list[int] = []
    async for number in hf.events(NUMBER, int):
        found.append(number)
        if len(found) == count:
            break
    return found


@hf.activity
async def pause() -> None: ...


@hf.workflow
async def pauses(count: int) -> list[int]:
    """Nobody waits for a number while the activity runs."""
    found: list[int] = []
    for _ in range(count):
        found.append(await hf.event(NUMBER, int))
        await pause()
    return found


@hf.workflow
async def measures() -> int:
    return len(await hf.event("text", str))


@hf.workflow
async def in_parts(left: int) -> int:
    """One event for each execution."""
    number = await hf.event(NUMBER, int)
    return number if left == 1 else hf.continue_as_new(left - 1)


@hf.workflow(event_policy="drop_unsubscribed")
async def drops() -> int:
    await hf.event("go")
    return await hf.event(NUMBER, int)


ALL = (collects, pause, pauses, measures, in_parts, drops)


def ever_in_inbox(store: Path) -> int:
    """How many messages have ever waited in an inbox."""
    return sum(count for (count,) in rows(store, "SELECT seq FROM sqlite_sequence WHERE name = 'inbox'"))


def check(store: Path) -> None:
    check_tables(store)
    assert audit(store) == []


def groups_of(engine: hf.Engine) -> int:
    return committer_of(worker_of(engine)).groups


@pytest.mark.parametrize("by_id", [False, True])
def test_G6_an_event_is_on_disk_with_the_turn_that_takes_it(tmp_path: Path, by_id: bool) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "a.db", *ALL) as engine:
            handle = await engine.start(collects, 3, id="it")
            handle = engine.get("it") if by_id else handle
            for number in range(3):
                before = groups_of(engine)
                assert await handle.raise_event(NUMBER, number)
                assert groups_of(engine) == before + 1
                assert len([event for event in history_of(tmp_path / "a.db", 1) if type(event) is EventReceived]) == (
                    number + 1
                )
            assert await handle.result() == [0, 1, 2]
        assert ever_in_inbox(tmp_path / "a.db") == 0
        check(tmp_path / "a.db")

    together(scenario())


def test_G6_events_that_are_raised_together_are_one_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "a.db", *ALL) as engine:
            handle = await engine.start(collects, 20, id="it")
            await asyncio.gather(*(handle.raise_event(NUMBER, number) for number in range(20)))
            assert await handle.result() == list(range(20))
            assert (await handle.describe()).turn == 2
        assert ever_in_inbox(tmp_path / "a.db") == 0

    together(scenario())


def test_G6_events_that_nobody_waits_for_are_kept_in_the_inbox_and_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "a.db", *ALL) as engine:
            handle = await engine.start(pauses, 20, id="it")
            await asyncio.gather(*(handle.raise_event(NUMBER, number) for number in range(20)))
            assert await handle.result() == list(range(20))
        assert ever_in_inbox(tmp_path / "a.db") == 19
        check(tmp_path / "a.db")

    together(scenario())


def test_G6_events_with_an_id_are_known_to_the_store_and_overtake_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "a.db", *ALL) as engine:
            handle = await engine.start(collects, 20, id="it")
            with_ids = [handle.raise_event(NUMBER, n, id=f"{n}" if n % 3 == 1 else None) for n in range(20)]
            again = [handle.raise_event(NUMBER, 7, id="7") for _ in range(3)]
            assert await asyncio.gather(*with_ids, *again, return_exceptions=False) == [True] * 23
            assert await handle.result() == list(range(20))
        check(tmp_path / "a.db")

    together(scenario())


def test_G10_an_event_overtakes_none_that_another_process_raised_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            engine_of(tmp_path / "a.db", *ALL) as engine,
            await hf.connect(tmp_path / "a.db") as client,
        ):
            handle, there = await engine.start(collects, 40, id="it"), client.get("it")
            for number in range(0, 40, 2):
                await there.raise_event(NUMBER, number)
                await handle.raise_event(NUMBER, number + 1)
            assert await handle.result() == list(range(40))
        check(tmp_path / "a.db")

    together(scenario())


def test_G10_an_event_overtakes_none_that_its_own_turn_leaves_to_the_store(tmp_path: Path) -> None:
    """One turn applies 1, leaves 2 to the store, and applies the result after which the code waits for 3."""
    may_end = asyncio.Event()

    @hf.activity
    async def held() -> None:
        await may_end.wait()

    @hf.workflow
    async def alternates() -> list[int]:
        step = asyncio.create_task(held())
        await hf.event("go")
        first = await hf.event(NUMBER, int)
        await step
        return [first, await hf.event(NUMBER, int), await hf.event(NUMBER, int)]

    async def scenario() -> None:
        store = store_at(tmp_path / "a.db")
        async with engine_of(store, alternates, held) as engine:
            handle = await engine.start(alternates, id="it")
            [live] = live_instances(worker_of(engine)).values()
            turns = HeldTurns(store)
            raised = [asyncio.create_task(handle.raise_event("go"))]
            await turns.is_stuck.wait()
            raised += [asyncio.create_task(handle.raise_event(NUMBER, number)) for number in (1, 2)]
            await until(lambda: len(live.queue) == 2)
            may_end.set()
            await until(lambda: len(live.queue) == 3)
            raised.append(asyncio.create_task(handle.raise_event(NUMBER, 3)))
            await until(lambda: len(live.queue) == 4)
            turns.go_on.set()
            assert await handle.result() == [1, 2, 3]
            assert await asyncio.gather(*raised) == [True] * 4
        check(tmp_path / "a.db")

    together(scenario())


def test_G7_events_behind_the_one_that_ends_the_instance_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "a.db", *ALL) as engine:
            handle = await engine.start(collects, 2, id="it")
            raised = (handle.raise_event(NUMBER, number) for number in range(4))
            told = await asyncio.gather(*raised, return_exceptions=True)
            assert told[:2] == [True, True]
            assert [type(error) for error in told[2:]] == [hf.InstanceClosed, hf.InstanceClosed]
            assert await handle.result() == [0, 1]
        check(tmp_path / "a.db")

    together(scenario())


def test_G7_an_event_for_an_instance_that_was_ended_elsewhere_is_refused_or_reaches_its_successor(
    tmp_path: Path,
) -> None:
    """The turn that took it is rejected: its instance is closed, and the worker here does not know it yet."""

    async def scenario() -> None:
        async with (
            engine_of(tmp_path / "a.db", *ALL) as engine,
            await hf.connect(tmp_path / "a.db") as client,
        ):
            handle = await engine.start(collects, 1, id="it")
            await client.get("it").terminate()
            with pytest.raises(hf.InstanceClosed):
                await handle.raise_event(NUMBER, 1)
            await engine.start(collects, 1, id="next")
            next_one = await client.start("collects", 1, id="next", policy="terminate_existing")
            assert await engine.get("next").raise_event(NUMBER, 2)
            assert await next_one.result() == [2]
        check(tmp_path / "a.db")

    together(scenario())


def test_G4_events_behind_the_one_that_begins_the_next_execution_reach_that_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "a.db", *ALL) as engine:
            handle = await engine.start(in_parts, 5, id="it")
            await asyncio.gather(*(handle.raise_event(NUMBER, number) for number in range(5)))
            assert await handle.result() == 4
        check(tmp_path / "a.db")

    together(scenario())


def test_G6_an_event_that_is_dropped_or_too_many_is_told_its_sender(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "a.db", *ALL) as engine:
            handle = await engine.start(drops, id="it")
            told = await asyncio.gather(*(handle.raise_event(name, 1) for name in (NUMBER, "go", NUMBER)))
            assert told[0] is False
            await handle.raise_event(NUMBER, 3)
            assert await handle.result() in (1, 3)

    together(scenario())


def test_G11_a_large_value_that_rides_is_there_after_a_restart(tmp_path: Path) -> None:
    text = "x" * (INLINE_LIMIT_BYTES + 1)

    @hf.workflow
    async def remembers() -> int:
        first = await hf.event("text", str)
        return len(first) + len(await hf.event("text", str))

    async def scenario() -> None:
        async with engine_of(tmp_path / "a.db", remembers) as engine:
            handle = await engine.start(remembers, id="it")
            await handle.raise_event("text", text)
            assert ever_in_inbox(tmp_path / "a.db") == 0
        async with engine_of(tmp_path / "a.db", remembers) as engine:
            await engine.get("it").raise_event("text", text)
            assert await engine.get("it").result() == 2 * len(text)
        check(tmp_path / "a.db")

    together(scenario())


@pytest.mark.parametrize("point", FaultPoint)
def test_G11_where_the_turn_may_or_may_not_be_on_disk_its_sender_is_told(tmp_path: Path, point: FaultPoint) -> None:
    fault = FailOnce(point, 1, only=Turn)

    async def scenario() -> None:
        async with engine_of(tmp_path / "a.db", *ALL, fault_hook=fault) as engine:
            handle = await engine.start(collects, 2, id="it")
            with pytest.raises(hf.StoreError):
                await handle.raise_event(NUMBER, 1)
            assert await handle.raise_event(NUMBER, 2)
            if point is FaultPoint.BEFORE_COMMIT:
                await handle.raise_event(NUMBER, 3)
            assert await handle.result() == ([2, 3] if point is FaultPoint.BEFORE_COMMIT else [1, 2])
        check(tmp_path / "a.db")

    together(scenario())


@pytest.mark.parametrize("point", ["before", "after"])
def test_L13_a_worker_that_dies_at_the_commit_of_an_event_loses_none_and_takes_none_twice(point: str) -> None:
    async def scenario(env: Environment) -> None:
        crash = env.crash(**{point: NUMBER})
        handle = await env.start(collects, 1, id="it")
        await handle.raise_event(NUMBER, 1)
        assert await handle.result() == [1]
        assert crash.deaths == 1

    skipping(*ALL).run_sync(scenario)


def test_W10_events_of_a_worker_that_stops_are_stored_for_the_next(tmp_path: Path) -> None:
    raised: list[asyncio.Task[bool]] = []

    async def scenario() -> None:
        async with engine_of(tmp_path / "a.db", *ALL) as engine:
            handle = await engine.start(collects, 10, id="it")
            raised.extend(asyncio.create_task(handle.raise_event(NUMBER, number)) for number in range(10))
            await asyncio.sleep(0)  # they are in the line
        assert await asyncio.gather(*raised) == [True] * 10
        async with engine_of(tmp_path / "a.db", *ALL) as engine:
            assert await engine.get("it").result() == list(range(10))
        check(tmp_path / "a.db")

    together(scenario())


def test_W7_an_event_needs_no_lease(tmp_path: Path) -> None:
    """The worker finds out by its own clock that its lease is over: the turn is not written, and the event is."""
    held: list[Member] = []

    def note(point: FaultPoint, members: Sequence[Member]) -> None:
        if point is FaultPoint.BEFORE_COMMIT:
            held.extend(members)

    async def scenario() -> None:
        async with engine_of(tmp_path / "a.db", *ALL, fault_hook=note) as engine:
            handle = await engine.start(collects, 1, id="it")
            end_lease(worker_of(engine))
            assert await handle.raise_event(NUMBER, 1)
            assert not any(isinstance(member, Turn) for member in held)
            assert await handle.result() == [1]
        assert ever_in_inbox(tmp_path / "a.db") == 1
        check(tmp_path / "a.db")

    together(scenario())


def test_G12_events_of_a_turn_that_cannot_be_taken_are_kept_each_once(tmp_path: Path) -> None:
    @hf.workflow
    async def spins() -> None:
        await hf.event("go")
        while True:  # noqa: ASYNC110 - a turn without an end
            await asyncio.sleep(0)

    async def scenario() -> None:
        async with engine_of(tmp_path / "a.db", spins, turn_limit_ms=200) as engine:
            handle = await engine.start(spins, id="it")
            assert await asyncio.gather(*(handle.raise_event(name) for name in ("early", "go", "late"))) == [True] * 3
            with pytest.raises(hf.WorkflowBlocked):
                await handle.result()
        kept = rows(tmp_path / "a.db", "SELECT name FROM inbox ORDER BY row")
        assert [name for (name,) in kept] == ["early", "go", "late"]
        check(tmp_path / "a.db")

    together(scenario())
