"""External activities in the test environment: a replacement is run by the environment, without an executor (C4)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.scenarios.support import path_of, rows, skipping

import holdfast as hf
from holdfast.testing.environment import Environment


@hf.activity(external=True, queue="gpu", heartbeat=30, retry=hf.Retry(attempts=2, jitter=False))
async def train(text: str, steps: int = 2) -> int: ...  # type: ignore[empty-body]


@hf.activity(external=True, queue="gpu", start_to_close=600)
def quotes(count: int) -> AsyncIterator[int]: ...  # type: ignore[empty-body]


@hf.workflow
async def trains(text: str) -> int:
    return await train(text)


@hf.workflow
async def sums(count: int) -> int:
    return sum([value async for value in quotes(count)])


async def fake(text: str, steps: int) -> int:
    await asyncio.sleep(3_600)  # without a heartbeat
    return len(text) * steps


async def fake_quotes(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


def environment(**options: Any) -> Environment:
    return skipping(trains, sums, train, quotes, **options)


def test_C4_a_replaced_external_activity_runs_in_the_environment() -> None:
    async def scenario(env: Environment) -> None:
        assert await env.run(trains, "abc", id="it") == 6
        assert env.calls(train) == [{"text": "abc", "steps": 2}]
        assert await env.run(sums, 4, id="stream") == 6
        assert rows(path_of(env), "SELECT count(*) FROM offers") == [(0,)], "nothing was offered to executors"

    environment(replace={train: fake, quotes: fake_quotes}).run_sync(scenario)


def test_C4_a_replacement_that_fails_is_retried_by_the_policy_of_the_activity() -> None:
    async def scenario(env: Environment) -> None:
        env.replace(train, with_=ValueError("no"))
        with pytest.raises(hf.WorkflowFailed, match="no"):
            await env.run(trains, "abc", id="it")
        assert len(env.calls(train)) == 2
        crash = env.crash(after="train")
        env.replace(train, with_=fake)
        assert await env.run(trains, "abc", id="again") == 6
        assert crash.deaths == 1

    environment().run_sync(scenario)


def test_C4_without_a_replacement_the_attempt_is_offered() -> None:
    async def scenario(env: Environment) -> None:
        env.replace(train, with_=fake)
        env.restore(train)
        handle = await env.start(trains, "abc", id="it")
        with pytest.raises(TimeoutError):
            await handle.result(timeout=60)
        assert rows(path_of(env), "SELECT count(*) FROM open_activities") == [(1,)]
        assert env.calls(train) == []

    environment().run_sync(scenario)


def test_C4_a_replaced_external_activity_survives_a_crash_at_every_commit() -> None:
    async def scenario(env: Environment) -> None:
        report = await env.crash_at_every_commit(trains, "abc")
        assert report.result == "6"
        assert report.crashes > 2
        assert not report.problems

    environment(replace={train: fake}).run_sync(scenario)
