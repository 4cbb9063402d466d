"""What other engines failed at, and scenarios of theirs that no other test here has.

`docs/reference/scenarios.md` says for each known scenario which test shows it.
"""

import asyncio
import datetime as dt
from functools import partial
from pathlib import Path

import pytest
from tests.scenarios.support import check_tables, engine_of, path_of, rows, skipping, together, until
from tests.support.inside import committer_of, turns_of, worker_of

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.storage.members.outcomes import Rejected
from holdfast.storage.records import AttemptKey, InstanceNumber
from holdfast.testing.conformance.bench import ANNA, completion
from holdfast.testing.environment import Environment

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])
HOUR = 3_600


@hf.activity
async def step(number: int) -> int:
    return number + 1


@hf.activity
async def hangs() -> int:
    await asyncio.sleep(1_000 * HOUR)
    return 0


@hf.workflow
async def mixed() -> list[int]:
    """One of each kind of message: an answer, a timer and an event."""
    first = await step(0)
    await asyncio.sleep(HOUR)
    return [first, await hf.event("number", int), await step(10)]


@hf.workflow
async def rounds(number: int = 0) -> None:
    number = await step(number)
    hf.continue_as_new(number)


@hf.workflow
async def races() -> str:
    slow = asyncio.create_task(hangs())
    quick = asyncio.create_task(asyncio.sleep(HOUR, "quick"))
    done, _ = await asyncio.wait({slow, quick}, return_when=asyncio.FIRST_COMPLETED)
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
    await asyncio.sleep(HOUR)
    return "quick" if quick in done else "slow"


@hf.workflow
async def two_steps() -> list[int]:
    return [await step(0), await step(1)]


ALL = (step, hangs, mixed, rounds, races, two_steps)


def check(env: hf.Engine) -> None:
    check_tables(path_of(env))
    assert audit(path_of(env)) == []


async def finish(env: Environment) -> None:
    handle = await env.start(mixed, id="it")
    await handle.raise_event("number", 7, id="seven")
    assert await handle.result() == [1, 7, 11]
    kinds = [entry.kind for entry in await handle.history()]
    assert [kinds.count(kind) for kind in ("activity_completed", "timer_fired", "event_received")] == [2, 1, 1]
    check(env)


@CACHES
@pytest.mark.parametrize("kind", ["event_received", "timer_fired", "activity_completed"])
def test_L11_a_duplicate_event_timer_or_completion_is_applied_once(kind: str, cache_size: int) -> None:
    """Reliability: duplicate external event, timer and completion."""

    async def scenario(env: Environment) -> None:
        env.duplicate(kind)
        env.duplicate("number")
        env.duplicate(step)
        await finish(env)
        assert len(env.calls(step)) == 2

    skipping(*ALL, cache_size=cache_size).run_sync(scenario)


@CACHES
@pytest.mark.parametrize("kind", ["started", "event_received", "timer_fired", "activity_completed"])
@pytest.mark.parametrize("point", ["before", "after"])
def test_L13_a_crash_after_dequeue_before_append_and_one_after_append_before_acknowledge(
    point: str, kind: str, cache_size: int
) -> None:
    """Reliability: what was taken and not recorded is taken again; what was recorded is not. Both are one commit."""

    async def scenario(env: Environment) -> None:
        crash = env.crash(**{point: kind})
        await finish(env)
        assert crash.deaths == 1

    skipping(*ALL, cache_size=cache_size).run_sync(scenario)


def test_G4_completions_of_old_and_of_future_executions_are_ignored() -> None:
    """Continue-as-new: an answer that names another execution finds no attempt, and changes nothing."""

    async def scenario(env: Environment) -> None:
        handle = await env.start(mixed, id="it")
        await env.skip(seconds=1)
        record = await env._session.store.read_instance(handle.number or InstanceNumber(0))
        assert record is not None
        for execution in (0, record.execution + 1):
            key = AttemptKey(record.number, execution, 0, 1)
            outcome = await committer_of(worker_of(env)).commit(completion(record, owner=ANNA, key=key, by_owner=False))
            assert isinstance(outcome, Rejected)
        await handle.raise_event("number", 7, id="seven")
        assert await handle.result() == [1, 7, 11]
        check(env)

    skipping(*ALL).run_sync(scenario)


@pytest.mark.parametrize("is_cancel_first", [True, False])
def test_A9_a_cancel_and_a_completion_in_the_same_turn(tmp_path: Path, is_cancel_first: bool) -> None:
    """Cancellation: both wait in the inbox, and are applied in the order in which they came."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    @hf.activity
    async def slow() -> int:
        begun.set()
        await go_on.wait()
        return 7

    @hf.workflow
    async def waits() -> int:
        number = await slow()
        hf.set_status(f"got {number}")
        await asyncio.sleep(HOUR)
        return number

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, waits) as engine:
            await engine.start(waits, id="it")
        async with engine_of(path, slow) as elsewhere:
            await begun.wait()
            if is_cancel_first:
                await elsewhere.get("it").cancel("enough")
            go_on.set()
            await until(lambda: rows(path, "SELECT 1 FROM attempts WHERE state = 'COMPLETED'"))
            if not is_cancel_first:
                await elsewhere.get("it").cancel("enough")
            assert rows(path, "SELECT count(*) FROM inbox") == [(2,)]
        async with engine_of(path, waits) as engine:
            with pytest.raises(hf.WorkflowCancelled, match="enough"):
                await engine.get("it").result(timeout=10)
            described = await engine.get("it").describe()
            assert described.custom_status == (None if is_cancel_first else "got 7")
            assert described.turn == 2
        check_tables(path)
        assert audit(path) == []

    together(scenario())


def is_beyond(path: Path, execution: int) -> bool:
    return bool(rows(path, "SELECT max(execution) > ? FROM instances", execution)[0][0])


@CACHES
def test_A9_a_cancel_during_continue_as_new_reaches_the_execution_that_follows(tmp_path: Path, cache_size: int) -> None:
    """Cancellation: it comes at any moment of executions that follow each other without a pause."""

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await hf.connect(path)
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handles = [await engine.start(rounds, id=str(number)) for number in range(4)]
            for number, handle in enumerate(handles):
                await until(partial(is_beyond, path, number))
                await client.get(handle.id).cancel(f"enough of {number}")
            for number, handle in enumerate(handles):
                with pytest.raises(hf.WorkflowCancelled, match=f"enough of {number}"):
                    await handle.result(timeout=20)
        await client.close()
        assert rows(path, "SELECT min(execution) > 0, count(*) FROM instances WHERE state = 'CANCELLED'") == [(1, 4)]
        assert audit(path) == []

    together(scenario())


def test_D5_the_loser_of_a_race_learns_of_it_at_once() -> None:
    """Elsewhere the loser learnt of its cancellation after 25 seconds."""
    lost = asyncio.Event()
    told_at: list[dt.datetime] = []

    async def scenario(env: Environment) -> None:
        async def patient() -> int:
            try:
                await asyncio.sleep(1_000 * HOUR)
                return 0
            finally:
                told_at.append(env.now)
                lost.set()

        env.replace(hangs, with_=patient)
        began = env.now
        handle = await env.start(races, id="it")
        await lost.wait()
        assert told_at[0] - began < dt.timedelta(seconds=HOUR + 1)
        assert (await handle.describe()).state == "RUNNING"
        assert await handle.result() == "quick"
        assert [view.state for view in (await handle.describe()).attempts] == ["CANCELLED"]
        check(env)

    skipping(*ALL).run_sync(scenario)


@CACHES
def test_D6_what_is_counted_is_counted_once(cache_size: int) -> None:
    """Elsewhere metrics counted replayed steps again. Turns that were taken are those that are recorded."""

    async def scenario(env: Environment) -> None:
        for number in range(3):
            await env.run(two_steps, id=str(number))
        recorded = rows(path_of(env), "SELECT count(*), sum(turn) FROM history")[0][0]
        assert turns_of(worker_of(env)).turns == recorded
        assert len(env.calls(step)) == 6

    skipping(*ALL, cache_size=cache_size).run_sync(scenario)


@CACHES
def test_G6_two_waiters_on_one_name_both_wake_and_two_early_events_are_both_read(cache_size: int) -> None:
    """Elsewhere the first of two waiters never woke, and the first of two early signals was lost."""

    @hf.workflow
    async def pair() -> list[list[int]]:
        both = list(await asyncio.gather(hf.event("late", int), hf.event("late", int)))
        return [both, [await hf.event("early", int), await hf.event("early", int)]]

    async def scenario(env: Environment) -> None:
        handle = await env.start(pair, id="it")
        for number in (1, 2):
            await handle.raise_event("early", number)
        for number in (3, 4):
            await handle.raise_event("late", number)
        assert await handle.result() == [[3, 4], [1, 2]]
        check(env)

    skipping(pair, cache_size=cache_size).run_sync(scenario)
