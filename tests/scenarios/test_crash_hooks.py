"""`Environment.crash` and `Environment.duplicate`: deaths and duplicates where a test says (L11, L13, G6)."""

import asyncio
import datetime as dt
from itertools import count
from typing import Any

import pytest
from tests.scenarios.support import check_tables, path_of, skipping

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.errors import InvalidOption, InvariantBroken, UsageError
from holdfast.testing.environment import Environment

SOON = dt.timedelta(seconds=5)


@hf.activity
async def charge(cents: int) -> int:
    return cents + 1


@hf.activity(retry=hf.Retry(attempts=3, initial=60, jitter=False))
async def flaky(cents: int) -> int:
    if hf.activity_info().attempt == 1:
        raise ConnectionError("try again")
    return cents * 2


@hf.workflow
async def order() -> list[int]:
    first = await charge(1)
    await asyncio.sleep(3_600)
    extra = await hf.event("extra", int)
    return [first, extra, *await asyncio.gather(charge(10), flaky(20))]


@hf.workflow
async def sleeps() -> None:
    await asyncio.sleep(86_400)


@hf.workflow
async def rounds(number: int = 0) -> int:
    number = await charge(number)
    return number if number > 2 else hf.continue_as_new(number)


ALL = (charge, flaky, order, sleeps, rounds)
RESULT = [2, 7, 11, 40]


async def finish(env: Environment) -> list[int]:
    handle = await env.start(order, id="it")
    await handle.raise_event("extra", 7, id="seven")
    return await handle.result()


def check(env: Environment) -> None:
    check_tables(path_of(env))
    assert audit(path_of(env)) == []


PLACES: list[Any] = [charge, flaky, "charge", "extra", "started", "timer_fired", "workflow_completed", 1, 2, 3, 4]


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("point", ["before", "after"])
def test_L13_the_worker_dies_where_it_is_told_and_another_goes_on(point: str, place: Any) -> None:
    async def scenario(env: Environment) -> None:
        began = env.now
        worker = env._local.running
        crash = env.crash(**{point: place})
        assert await finish(env) == RESULT
        assert crash.deaths == env.deaths == 1
        assert env._local.running is not worker
        assert env.now - began < dt.timedelta(hours=1, minutes=3)
        check(env)

    skipping(*ALL).run_sync(scenario)


@pytest.mark.parametrize("cache_size", [1_000, 0])
@pytest.mark.parametrize("point", ["before", "after"])
def test_L13_the_worker_dies_at_every_step_once(point: str, cache_size: int) -> None:
    async def scenario(env: Environment) -> None:
        crash = env.crash(**{point: ...})
        assert await finish(env) == RESULT
        assert crash.deaths >= 5  # two answers that come together are one step
        assert await env.run(rounds, id="rounds") == 3
        check(env)

    skipping(*ALL, cache_size=cache_size).run_sync(scenario)


def test_L13_before_its_end_is_recorded_an_activity_runs_again_and_after_it_does_not() -> None:
    async def scenario(env: Environment) -> None:
        env.crash(after=charge)
        await env.run(rounds, id="after")
        assert len(env.calls(charge)) == 3
        env.crash(before=charge)
        await env.run(rounds, id="before")
        assert len(env.calls(charge)) == 3 + 4
        assert env.deaths == 2

    skipping(*ALL).run_sync(scenario)


def test_a_worker_may_die_while_it_takes_over() -> None:
    async def scenario(env: Environment) -> None:
        handle = await env.start(sleeps, id="it")
        began = env.now
        for number in (1, 2, 3):
            env.crash(before=number)
            env.crash(after=number)
        await env.start(sleeps, id="another")
        await handle.result()
        assert env.deaths == 6
        assert env.now - began < dt.timedelta(days=1) + SOON
        check(env)

    skipping(*ALL).run_sync(scenario)


@pytest.mark.parametrize("point", ["before", "after"])
def test_what_the_test_itself_does_goes_on_with_the_next_worker(point: str) -> None:
    async def scenario(env: Environment) -> None:
        handle = await env.start(sleeps, id="it")
        env.crash(**{point: 1})
        await handle.cancel("enough")
        with pytest.raises(hf.WorkflowCancelled, match="enough"):
            await handle.result()
        ended = await env.start(sleeps, id="ended")
        env.crash(**{point: 1})
        await ended.terminate("at once")
        with pytest.raises(hf.WorkflowTerminated, match="at once"):
            await ended.result()
        env.crash(**{point: 1})
        assert await env.run(rounds, id="started") == 3
        assert env.deaths == 3
        check(env)

    skipping(*ALL).run_sync(scenario)


def test_names_that_never_come_kill_nobody_and_senseless_ones_are_refused() -> None:
    async def scenario(env: Environment) -> None:
        assert env.crash(before="nothing").deaths == 0
        await finish(env)
        assert env.deaths == 0
        wrong: Any
        for wrong in ({}, {"before": 1, "after": 1}, {"before": 1.5}, {"after": True}):
            with pytest.raises(UsageError):
                env.crash(**wrong)
        with pytest.raises(InvalidOption):
            env.crash(before=0)
        wrong = 3
        with pytest.raises(UsageError, match="name an activity"):
            env.duplicate(wrong)

    skipping(*ALL).run_sync(scenario)


@pytest.mark.parametrize("what", [..., charge, "extra", "timer_fired"], ids=str)
def test_L11_what_comes_twice_is_done_once(what: Any) -> None:
    async def scenario(env: Environment) -> None:
        env.duplicate(what)
        assert await finish(env) == RESULT
        assert await env.run(rounds, id="rounds") == 3
        assert len(env.calls(charge)) == 2 + 3
        check(env)

    skipping(*ALL).run_sync(scenario)


def test_L13_deaths_and_duplicates_together_change_nothing() -> None:
    async def scenario(env: Environment) -> None:
        env.duplicate()
        env.crash(before=...)
        env.crash(after=...)
        assert await finish(env) == RESULT
        check(env)

    skipping(*ALL).run_sync(scenario)


def test_what_was_done_twice_is_told_when_the_environment_is_closed() -> None:
    async def scenario(env: Environment) -> None:
        store: Any = env._session.store
        store.violations.append("a turn was done twice")

    with pytest.raises(InvariantBroken, match="a turn was done twice"):
        skipping(*ALL).run_sync(scenario)


@pytest.mark.slow
def test_crash_reports_compare_every_execution() -> None:
    lives = count()

    @hf.workflow
    async def fickle(number: int = 0) -> int:
        if number == 0 and hf.side_effect(lambda: next(lives), int):
            await charge(0)
        return number or hf.continue_as_new(1)

    async def scenario(env: Environment) -> None:
        report = await env.crash_at_every_commit(fickle)
        with pytest.raises(InvariantBroken, match=r"execution 1: .* steps were recorded"):
            report.check()
        (await env.crash_at_every_commit(rounds)).check()

    skipping(charge, rounds, fickle).run_sync(scenario)
