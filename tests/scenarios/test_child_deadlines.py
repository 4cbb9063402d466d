"""Deadlines in families: a parent's reaches its children, and a child's reaches its parent as a typed error (A9)."""

import asyncio
from typing import Any

import pytest
from tests.scenarios.support import check_tables, path_of, rows, skipping
from tests.support.inside import live_instances, worker_of

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.testing.environment import Environment

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])
HOUR = 3_600


@hf.activity
async def undo(what: str) -> str:
    return f"undid {what}"


@hf.workflow(deadline=HOUR, deadline_grace=60)
async def hurried() -> str:
    try:
        await asyncio.sleep(100 * HOUR)
    finally:
        await undo("the booking")
    return "done"


@hf.workflow
async def patient() -> str:
    try:
        await asyncio.sleep(100 * HOUR)
    finally:
        await undo("the wait")
    return "done"


async def said(child: Any) -> str:
    try:
        return str(await child)
    except hf.WorkflowFailed as error:
        return f"{type(error.cause).__name__}: {error.cause}"


@hf.workflow
async def three() -> list[str]:
    shorter = await hf.start(hurried, deadline=60)
    endless = await hf.start(hurried.bind(), deadline=None)
    given = await hf.start(patient, deadline=2 * HOUR)
    awaited = asyncio.create_task(hurried())
    return [await said(child) for child in (shorter, awaited, given, endless)]


@hf.workflow
async def by_name(name: str, deadline: float) -> str:
    return await said(await hf.start(name, deadline=deadline))


@hf.workflow(deadline=10 * HOUR)
async def parent() -> str:
    return await patient()


@hf.workflow(deadline=10 * HOUR, deadline_grace=0)
async def abrupt() -> str:
    return await patient()


ALL = (undo, hurried, patient, three, by_name, parent, abrupt)


def states_of(env: Environment) -> dict[str, str]:
    return dict(rows(path_of(env), "SELECT id, state FROM instances"))


@CACHES
def test_A9_a_child_has_the_deadline_of_its_workflow_or_of_its_start_and_its_parent_gets_the_error(
    cache_size: int,
) -> None:
    async def scenario(env: Environment) -> None:
        assert await env.run(three, id="it") == [
            "DeadlineExceeded: its deadline of 1 min has passed",
            "DeadlineExceeded: its deadline of 1 h has passed",
            "DeadlineExceeded: its deadline of 2 h has passed",
            "done",
        ]
        check_tables(path_of(env))
        assert audit(path_of(env)) == []

    skipping(*ALL, cache_size=cache_size).run_sync(scenario)


def test_C1_a_child_that_nobody_can_run_fails_at_its_deadline() -> None:
    async def scenario(env: Environment) -> None:
        found = await env.run(by_name, "nobody-has-it", 60.0, id="it")
        assert found == "DeadlineExceeded: its deadline of 1 min has passed before it began"
        assert audit(path_of(env)) == []

    skipping(*ALL).run_sync(scenario)


@CACHES
def test_A9_the_deadline_of_a_parent_asks_the_child_it_awaits_which_may_clean_up(cache_size: int) -> None:
    async def scenario(env: Environment) -> None:
        with pytest.raises(hf.WorkflowFailed, match="deadline of 10 h"):
            await env.run(parent, id="it")
        await env.skip(seconds=60)
        assert states_of(env) == {"it": "FAILED", "it/1/0": "CANCELLED"}
        assert env.calls(undo) == [{"what": "the wait"}]
        assert audit(path_of(env)) == []

    skipping(*ALL, cache_size=cache_size).run_sync(scenario)


@CACHES
def test_A9_a_parent_that_is_ended_without_its_code_takes_its_children_with_it(cache_size: int) -> None:
    async def scenario(env: Environment) -> None:
        with pytest.raises(hf.WorkflowFailed, match="deadline of 10 h"):
            await env.run(abrupt, id="it")
        assert states_of(env) == {"it": "FAILED", "it/1/0": "TERMINATED"}
        assert not live_instances(worker_of(env))
        assert env.calls(undo) == []
        assert audit(path_of(env)) == []

    skipping(*ALL, cache_size=cache_size).run_sync(scenario)


@pytest.mark.parametrize("point", ["before", "after"])
def test_L13_the_worker_dies_at_every_step_of_a_family_with_deadlines(point: str) -> None:
    async def scenario(env: Environment) -> None:
        env.crash(**{point: ...})
        with pytest.raises(hf.WorkflowFailed, match="deadline of 10 h"):
            await env.run(parent, id="it")
        await env.skip(seconds=60)
        assert states_of(env) == {"it": "FAILED", "it/1/0": "CANCELLED"}
        assert env.deaths > 4
        assert audit(path_of(env)) == []

    skipping(*ALL).run_sync(scenario)
