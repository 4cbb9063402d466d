"""Deadlines of workflows: the code is asked to end, may clean up, and the instance fails (A9, C1)."""

import asyncio
import datetime as dt
from typing import Any

import pytest
from tests.scenarios.support import check_tables, path_of, skipping

import holdfast as hf
from holdfast.audit.auditor import audit

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])
DAY = 86_400
MONTH = dt.timedelta(days=30)


@hf.activity
async def undo(what: str) -> str:
    return f"undid {what}"


@hf.workflow(deadline=MONTH)
async def compensates() -> None:
    try:
        await asyncio.sleep(100 * DAY)
    finally:
        await undo("the booking")


@hf.workflow
async def sleeps(seconds: float = 100 * DAY) -> str:
    await asyncio.sleep(seconds)
    return "slept well"


@hf.workflow(deadline=DAY)
async def answers() -> str:
    try:
        await asyncio.sleep(100 * DAY)
    except asyncio.CancelledError as error:
        return f"enough: {error}"
    return "done"


@hf.workflow(deadline=DAY)
async def stumbles() -> None:
    try:
        await asyncio.sleep(100 * DAY)
    finally:
        raise ValueError("no paper")


@hf.workflow(deadline=DAY, deadline_grace=3_600)
async def dawdles(seconds: float) -> None:
    try:
        await asyncio.sleep(100 * DAY)
    finally:
        await asyncio.sleep(seconds)


@hf.workflow(deadline=10 * DAY)
async def rounds(number: int = 1) -> None:
    await asyncio.sleep(3 * DAY)
    hf.continue_as_new(number + 1)


@hf.workflow(deadline=DAY)
async def evades() -> None:
    try:
        await asyncio.sleep(100 * DAY)
    except asyncio.CancelledError:
        hf.continue_as_new()


ALL = (undo, compensates, sleeps, answers, stumbles, dawdles, rounds, evades)


async def failure_of(handle: hf.Handle[Any], seconds: float = 1_000 * DAY) -> hf.DeadlineExceeded:
    """Why it failed: its deadline."""
    with pytest.raises(hf.WorkflowFailed) as failed:
        await handle.result(timeout=seconds)
    assert isinstance(failed.value.cause, hf.DeadlineExceeded)
    assert isinstance(failed.value.cause, TimeoutError)
    assert (await handle.describe()).state == "FAILED"
    return failed.value.cause


async def kinds_of(handle: hf.Handle[Any]) -> list[str]:
    return [entry.kind for entry in await handle.history()]


def check(env: hf.Engine) -> None:
    check_tables(path_of(env))
    assert audit(path_of(env)) == []


@CACHES
def test_A9_at_its_deadline_the_code_is_asked_cleans_up_and_the_instance_fails(cache_size: int) -> None:
    async def scenario() -> None:
        async with skipping(*ALL, cache_size=cache_size) as env:
            began = env.now
            handle = await env.start(compensates, id="it")
            described = await handle.describe()
            assert described.deadline == described.created_at + MONTH
            error = await failure_of(handle)
            assert str(error) == "its deadline of 30 d has passed"
            assert error.__cause__ is None
            assert MONTH <= env.now - began < MONTH + dt.timedelta(seconds=5)
            assert env.calls(undo) == [{"what": "the booking"}]
            assert (await kinds_of(handle)).count("cancel_requested") == 1
            check(env)

    asyncio.run(scenario())


def test_code_that_answers_the_request_completes_and_code_that_stumbles_is_named_as_the_cause() -> None:
    async def scenario() -> None:
        async with skipping(*ALL) as env:
            assert await env.run(answers, id="polite") == "enough: its deadline of 1 d has passed"
            error = await failure_of(await env.start(stumbles, id="clumsy"))
            assert isinstance(error.__cause__, ValueError)
            check(env)

    asyncio.run(scenario())


def test_a_start_goes_before_the_workflow_and_may_say_that_there_is_none() -> None:
    async def scenario() -> None:
        async with skipping(*ALL) as env:
            began = env.now
            await failure_of(await env.start(sleeps, id="given", deadline=dt.timedelta(hours=2)))
            assert env.now - began < dt.timedelta(hours=3)
            await failure_of(await env.start(stumbles, id="shorter", deadline=60))
            assert env.now - began < dt.timedelta(hours=3)
            assert await env.run(answers.bind(), id="endless", deadline=None) == "done"
            assert await env.run(sleeps, 10.0, id="in time", deadline=11) == "slept well"
            assert (await env.get("endless").describe()).deadline is None
            assert await env.run("sleeps", 10.0, id="by name", deadline=None) == "slept well"
            check(env)

    asyncio.run(scenario())


def test_G3_the_same_start_with_another_deadline_is_the_same_instance_with_the_first() -> None:
    async def scenario() -> None:
        async with skipping(*ALL) as env:
            first = await (await env.start(sleeps, id="it", deadline=60)).describe()
            second = await (await env.start(sleeps, id="it", deadline=90)).describe()
            assert first.deadline == second.deadline

    asyncio.run(scenario())


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), "soon", True])
def test_a_deadline_is_a_duration_above_zero(wrong: Any) -> None:
    with pytest.raises(hf.errors.InvalidOption, match="deadline"):
        hf.workflow(deadline=wrong)

    async def scenario() -> None:
        async with skipping(*ALL) as env:
            with pytest.raises(hf.errors.InvalidOption, match="deadline"):
                await env.start(sleeps, deadline=wrong)

    asyncio.run(scenario())


@CACHES
def test_a_clean_up_that_takes_longer_than_its_grace_is_cut_off(cache_size: int) -> None:
    async def scenario() -> None:
        async with skipping(*ALL, cache_size=cache_size) as env:
            in_time = await failure_of(await env.start(dawdles, 3_590.0, id="in time"))
            assert "grace" not in str(in_time)
            began = env.now
            handle = await env.start(dawdles, 4_000.0, id="too slow")
            assert "did not end within the grace of 1 h" in str(await failure_of(handle))
            assert env.now - began < dt.timedelta(seconds=DAY + 3_700)
            assert (await kinds_of(handle))[-1] == "deadline_passed"
            check(env)

    asyncio.run(scenario())


def test_without_a_grace_no_code_is_asked() -> None:
    @hf.workflow(name="abrupt", deadline=60, deadline_grace=0)
    async def abrupt() -> None:
        try:
            await asyncio.sleep(DAY)
        finally:
            await undo("never")

    async def scenario() -> None:
        async with skipping(undo, abrupt) as env:
            handle = await env.start(abrupt, id="it")
            await failure_of(handle)
            assert await kinds_of(handle) == ["started", "timer_started", "deadline_passed"]
            assert env.calls(undo) == []
            check(env)

    asyncio.run(scenario())


def test_G4_a_deadline_goes_through_all_executions_and_ends_one_that_would_begin_anew() -> None:
    async def scenario() -> None:
        async with skipping(*ALL) as env:
            began = env.now
            handle = await env.start(rounds, id="it")
            await failure_of(handle)
            assert (await handle.describe()).execution == 4
            assert dt.timedelta(days=10) <= env.now - began < dt.timedelta(days=10, seconds=5)
            evasive = await env.start(evades, id="evasive")
            await failure_of(evasive)
            assert (await evasive.describe()).execution == 1
            check(env)

    asyncio.run(scenario())


def test_what_was_cancelled_before_ends_cancelled_unless_its_clean_up_outlasts_the_grace() -> None:
    async def scenario() -> None:
        async with skipping(*ALL) as env:
            for name, seconds in (("quick", 40 * 60.0), ("slow", 20.0 * 3_600)):
                await env.start(dawdles, seconds, id=name, deadline=3_600)
            await env.skip(minutes=50)
            for name in ("quick", "slow"):
                await env.get(name).cancel("enough")
            with pytest.raises(hf.WorkflowCancelled, match="enough"):
                await env.get("quick").result(timeout=DAY)
            assert "grace" in str(await failure_of(env.get("slow")))
            check(env)

    asyncio.run(scenario())


def test_a_cancel_after_the_deadline_changes_nothing() -> None:
    async def scenario() -> None:
        async with skipping(*ALL) as env:
            handle = await env.start(dawdles, 60.0, id="it", deadline=10)
            await env.skip(seconds=20)
            assert (await handle.describe()).state == "CANCEL_REQUESTED"
            await handle.cancel("too late")
            assert "too late" not in str(await failure_of(handle))

    asyncio.run(scenario())
