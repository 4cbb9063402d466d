"""Cancellation: the code is asked to end, and may clean up (A9, G14, invariant 19)."""

import asyncio
from pathlib import Path

import pytest
from tests.scenarios.support import check_tables, engine_of, path_of, rows, skipping, together

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.testing.environment import Environment

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])


@hf.activity
async def undo(what: str) -> str:
    return f"undid {what}"


@hf.activity
async def hangs() -> None:
    await asyncio.sleep(3600)


@hf.workflow
async def sleeps() -> None:
    await asyncio.sleep(3600)


@hf.workflow
async def compensates() -> str:
    try:
        await hangs()
    except asyncio.CancelledError:
        await undo("the booking")
        raise
    return "done"


@hf.workflow
async def refuses() -> str:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError as error:
        return f"not now: {error}"
    return "done"


@hf.workflow
async def stumbles() -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        raise ValueError("no paper")


@hf.workflow
async def shields() -> str:
    kept = asyncio.create_task(undo("nothing"))
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return await asyncio.shield(kept)
    return "done"


ALL = (undo, hangs, sleeps, compensates, refuses, stumbles, shields)


@CACHES
def test_A9_a_cancelled_workflow_ends_cancelled_and_whoever_waits_is_told_why(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(sleeps, id="it")
            await handle.cancel("ordered twice")
            with pytest.raises(hf.WorkflowCancelled, match="it was cancelled: ordered twice"):
                await handle.result(timeout=10)
            assert (await handle.describe()).state == "CANCELLED"
        check_tables(tmp_path / "shop.db")
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


@CACHES
def test_the_code_cleans_up_with_durable_steps(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(compensates, id="it")
            await handle.cancel()
            with pytest.raises(hf.WorkflowCancelled):
                await handle.result(timeout=10)
            assert ("undo", "COMPLETED") in rows(tmp_path / "shop.db", "SELECT name, state FROM attempts")
        states = dict(rows(tmp_path / "shop.db", "SELECT name, state FROM attempts"))
        assert states["hangs"] == "CANCELLED"
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


def test_code_may_answer_otherwise(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            polite = await engine.start(refuses, id="polite")
            await polite.cancel("please")
            assert await polite.result(timeout=10) == "not now: please"
            clumsy = await engine.start(stumbles, id="clumsy")
            await clumsy.cancel()
            with pytest.raises(hf.WorkflowFailed, match="no paper"):
                await clumsy.result(timeout=10)
            shielded = await engine.start(shields, id="shielded")
            await shielded.cancel()
            assert await shielded.result(timeout=10) == "undid nothing"

    together(scenario())


def test_cancelling_twice_is_the_same_as_once_and_after_the_end_it_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            handle = await engine.start(compensates, id="it")
            await handle.cancel("first")
            await handle.cancel("second")
            with pytest.raises(hf.WorkflowCancelled, match="first"):
                await handle.result(timeout=10)
            with pytest.raises(hf.InstanceClosed, match="CANCELLED"):
                await handle.cancel()
            with pytest.raises(hf.InstanceNotFound):
                await engine.get("nobody").cancel()

    together(scenario())


def test_A9_before_it_began_there_is_no_code_to_ask(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await hf.connect(path, workflows=[sleeps])
        handle = await client.start(sleeps, id="it")
        await handle.cancel("not needed")
        with pytest.raises(hf.WorkflowCancelled, match="not needed"):
            await handle.result(timeout=10)
        kinds = [entry.kind for entry in await handle.history()]
        assert kinds == ["started", "instance_cancelled"]
        await client.close()
        assert audit(path) == []

    together(scenario())


@pytest.mark.parametrize("point", ["before", "after"])
def test_a_request_survives_the_death_of_the_owner(point: str) -> None:
    async def scenario(env: Environment) -> None:
        handle = await env.start(compensates, id="it")
        env.crash(**{point: "cancel_requested"})
        await handle.cancel("still wanted")
        with pytest.raises(hf.WorkflowCancelled, match="still wanted"):
            await handle.result()
        assert env.deaths == 1
        assert env.calls(undo) == [{"what": "the booking"}]
        assert audit(path_of(env)) == []

    skipping(*ALL).run_sync(scenario)


@hf.workflow(name="changes")
async def before() -> str:
    try:
        await asyncio.sleep(3600)
    finally:
        await undo("the booking")
    return "done"


@hf.workflow(name="changes")
async def after() -> str:
    await undo("something else")
    return "done"


def test_G12_what_was_asked_to_end_is_parked_if_its_code_does_not_fit_and_ends_with_code_that_does(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, undo, before) as engine:
            await engine.start(before, id="it")
        client = await hf.connect(path)
        await client.get("it").cancel("enough")
        async with engine_of(path, undo, after) as wrong:
            with pytest.raises(hf.WorkflowBlocked):
                await wrong.get("it").result(timeout=10)
        async with engine_of(path, undo, before) as right:
            with pytest.raises(hf.WorkflowCancelled, match="enough"):
                await right.get("it").result(timeout=10)
        await client.close()
        assert ("undo", "COMPLETED") in rows(path, "SELECT name, state FROM attempts")
        assert audit(path) == []

    together(scenario())
