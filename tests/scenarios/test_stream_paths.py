"""The two ways of streamed values: with the turn that applies them, or through the inbox (L13, L14, L15).

Whichever way they go, and whatever happens on it, each value comes once and in order.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.held import store_at
from tests.scenarios.support import check_tables, engine_of, finish, rows, together, until
from tests.scenarios.test_store_trouble import FailOnce

import holdfast as hf
from holdfast.runtime.attempts.streams import MAX_AHEAD, MAX_TOGETHER
from holdfast.runtime.platform import FaultPoint
from holdfast.storage.members.member import Member
from holdfast.storage.members.turns import StreamValues, Turn

PARTS = 6
LEDGER = "SELECT sum(ledger / 1000000 % 1000000) FROM attempts"
"""How many responses have entered."""


@hf.activity(resumable=True, retry=hf.Retry(initial=0.001))
async def counted() -> AsyncIterator[int]:
    for number in range(hf.activity_info().delivered, PARTS):
        yield number
        await asyncio.sleep(0.002)


@hf.workflow
async def collect() -> list[int]:
    return [number async for number in counted()]


def one_by_one(store: Path) -> tuple[hf.Workflow[[], list[int]], hf.Activity[[], AsyncIterator[int]]]:
    """The same with values that are each on disk before the next one is yielded."""

    @hf.activity(resumable=True, retry=hf.Retry(initial=0.001))
    async def slowly() -> AsyncIterator[int]:
        for number in range(hf.activity_info().delivered, PARTS):
            yield number
            await until(lambda: rows(store, LEDGER)[0][0] > number)  # noqa: B023 - awaited at once

    @hf.workflow
    async def take() -> list[int]:
        return [number async for number in slowly()]

    return take, slowly


def ever_in_inbox(store: Path) -> int:
    """How many messages have ever waited in an inbox."""
    return sum(count for (count,) in rows(store, "SELECT seq FROM sqlite_sequence WHERE name = 'inbox'"))


def test_L13_values_and_their_end_ride_with_the_turns_that_apply_them(tmp_path: Path) -> None:
    assert finish(collect, counted, store=tmp_path / "a.db") == list(range(PARTS))
    assert ever_in_inbox(tmp_path / "a.db") == 0


def test_L15_values_of_an_instance_that_is_not_live_wait_in_the_inbox(tmp_path: Path) -> None:
    take, slowly = one_by_one(tmp_path / "a.db")
    assert finish(take, slowly, store=tmp_path / "a.db", cache_size=0) == list(range(PARTS))
    assert ever_in_inbox(tmp_path / "a.db") == PARTS + 1


def test_L15_values_overtake_no_others_when_the_instance_becomes_live_again(tmp_path: Path) -> None:
    """One instance at a time is live here; another one takes its place between two values."""
    store, steps = tmp_path / "a.db", asyncio.Semaphore(0)

    @hf.activity
    async def held() -> AsyncIterator[int]:
        for number in range(3 * PARTS):
            await steps.acquire()
            yield number

    @hf.workflow
    async def take() -> list[int]:
        return [number async for number in held()]

    @hf.workflow
    async def rest() -> None:
        await hf.event("never")

    async def scenario() -> None:
        async with engine_of(store, take, rest, held, cache_size=1) as engine:
            handle = await engine.start(take, id="it")
            for number in range(PARTS):
                await engine.start(rest, id=f"other-{number}")
                for _ in range(3):
                    steps.release()
                await until(lambda: rows(store, LEDGER)[0][0] >= 3 * (number + 1))  # noqa: B023 - awaited at once
            assert await handle.result() == list(range(3 * PARTS))
        check_tables(store)

    together(scenario())
    assert ever_in_inbox(store) > 0


def test_L15_a_value_does_not_overtake_one_stored_after_the_inbox_was_read(tmp_path: Path) -> None:
    """A value is stored alone between the read of the inbox and the replay: the next value goes to the inbox, too."""
    store, steps = tmp_path / "a.db", asyncio.Semaphore(0)

    @hf.activity
    async def held() -> AsyncIterator[int]:
        for number in range(3):
            await steps.acquire()
            yield number

    @hf.workflow
    async def take() -> list[int]:
        return [number async for number in held()]

    @hf.workflow
    async def rest() -> None:
        await hf.event("never")

    async def scenario() -> None:
        opened = store_at(store)
        async with engine_of(opened, take, rest, held, cache_size=1) as engine:
            handle = await engine.start(take, id="it")
            await engine.start(rest, id="other")  # takes the place of the first
            load = opened.load

            async def load_then_store_a_value(*of_instance: Any) -> Any:
                loaded = await load(*of_instance)
                opened.load = load
                steps.release()
                await until(lambda: rows(store, LEDGER) == [(2,)])
                steps.release()  # the next value comes as soon as the instance is live
                return loaded

            opened.load = load_then_store_a_value
            steps.release()
            assert await handle.result() == [0, 1, 2]
        check_tables(store)

    together(scenario())


@pytest.mark.parametrize("point", list(FaultPoint))
@pytest.mark.parametrize("cache_size", [0, 10])
@pytest.mark.parametrize("at", range(1, PARTS + 1))
def test_L13_values_survive_a_commit_that_fails(tmp_path: Path, at: int, cache_size: int, point: FaultPoint) -> None:
    """Before it is written, or after, so that nobody knows what came of it."""
    fault = FailOnce(point, at, only=Turn if cache_size else StreamValues)

    store = tmp_path / "a.db"
    take, slowly = one_by_one(store)

    async def scenario() -> None:
        async with engine_of(store, take, slowly, cache_size=cache_size, fault_hook=fault) as engine:
            await engine.start(take, id="it")
            assert await engine.get("it").result(timeout=20) == list(range(PARTS))
        check_tables(store)
        assert rows(store, LEDGER) == [(PARTS + 1,)]
        assert fault.has_failed

    together(scenario())


def test_L15_an_executor_elsewhere_streams_to_the_owner_of_the_instance(tmp_path: Path) -> None:
    """One engine knows the workflow, another the activity."""

    async def scenario() -> None:
        store = tmp_path / "a.db"
        async with engine_of(store, collect) as owner, engine_of(store, counted):
            handles = [await owner.start(collect, id=f"i{number}") for number in range(5)]
            for handle in handles:
                assert await handle.result() == list(range(PARTS))
        check_tables(store)
        assert rows(store, "SELECT DISTINCT ledger FROM attempts") == [(888_000_007_000_007,)]

    together(scenario())


def test_L15_a_stream_goes_on_when_its_instance_moves_to_another_engine(tmp_path: Path) -> None:
    """The body lives in an engine that stays; the instance's owner leaves in the middle, and another one goes on."""
    store, seen = tmp_path / "a.db", asyncio.Event()

    @hf.activity
    async def long() -> AsyncIterator[int]:
        yield 0
        await seen.wait()
        for number in range(1, PARTS):
            yield number

    @hf.workflow
    async def take() -> list[int]:
        return [number async for number in long()]

    async def scenario() -> None:
        async with engine_of(store, long):
            async with engine_of(store, take) as first:
                await first.start(take, id="it")
                await until(lambda: rows(store, "SELECT ledger FROM attempts") == [(889_000_001_000_001,)])
            seen.set()
            await until(lambda: rows(store, LEDGER) == [(PARTS + 1,)])
            async with engine_of(store, take) as second:
                assert await second.get("it").result() == list(range(PARTS))
        check_tables(store)

    together(scenario())
    assert rows(store, "SELECT count(*) FROM attempts") == [(1,)], "the healthy executor went on (G1)"


def test_G1_a_stream_reaches_the_engine_that_took_the_instance_over(tmp_path: Path) -> None:
    """The instance was claimed elsewhere while its turn with values was on its way: the turn changes nothing."""
    store = tmp_path / "a.db"

    def claim_elsewhere(point: FaultPoint, members: Sequence[Member]) -> None:
        if point is FaultPoint.BEFORE_COMMIT and not taken and any(has_values(member) for member in members):
            taken.append(True)
            rows(store, "UPDATE instances SET fence = fence + 1, owner = NULL, claimable_at_ms = 0")

    taken: list[bool] = []

    async def scenario() -> None:
        async with engine_of(store, collect, counted, fault_hook=claim_elsewhere) as engine:
            assert await engine.run(collect, id="it") == list(range(PARTS))
        check_tables(store)

    together(scenario())
    assert taken
    assert rows(store, "SELECT attempt, ledger FROM attempts") == [(1, 888_000_007_000_007)]


def has_values(member: Member) -> bool:
    return isinstance(member, Turn) and member.effects is not None and bool(member.effects.stream_values)


@pytest.mark.parametrize("cache_size", [0, 10])
def test_L15_a_body_waits_when_it_is_far_ahead_of_the_disk(tmp_path: Path, cache_size: int) -> None:
    store, yielded, ahead = tmp_path / "a.db", list[int](), list[int]()

    @hf.activity
    async def fast() -> AsyncIterator[int]:
        for number in range(5 * MAX_AHEAD):
            yielded.append(number)
            yield number

    @hf.workflow
    async def count() -> int:
        return len([number async for number in fast()])

    def look(point: FaultPoint, members: Sequence[Member]) -> None:
        if point is FaultPoint.BEFORE_COMMIT and yielded and members:
            ahead.append(len(yielded) - rows(store, LEDGER)[0][0])

    assert finish(count, fast, store=store, cache_size=cache_size, fault_hook=look) == 5 * MAX_AHEAD
    assert MAX_TOGETHER <= max(ahead) <= MAX_AHEAD


def test_W10_a_worker_that_stops_leaves_every_value_that_was_yielded(tmp_path: Path) -> None:
    """Values that were on their way when the worker stopped are kept; a resumable stream goes on behind them."""
    store = tmp_path / "a.db"

    async def scenario() -> None:
        async with engine_of(store, collect, counted) as first:
            await first.start(collect, id="it")
            await until(lambda: rows(store, LEDGER)[0][0] >= 2)
        check_tables(store)
        async with engine_of(store, collect, counted) as second:
            assert await second.get("it").result() == list(range(PARTS))
        check_tables(store)

    together(scenario())
