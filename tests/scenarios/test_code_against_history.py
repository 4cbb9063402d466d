"""G12: code that does not match its history parks the instance and says where; the right code goes on with it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, rows, skipping, together, until
from tests.support.inside import committer_of, try_blocked, worker_of

import holdfast as hf
from holdfast.core.lifecycle import InstanceState


@hf.activity
async def first(number: int) -> int:
    return number + 1


@hf.activity
async def other(number: int) -> int:
    return number + 100


@hf.workflow(name="flow")
async def original() -> int:
    number = await first(0)
    await asyncio.sleep(0.3)
    return await first(number)


@hf.workflow(name="flow")
async def calls_another() -> int:
    number = await other(0)
    await asyncio.sleep(0.3)
    return await first(number)


@hf.workflow(name="flow")
async def sleeps_no_more() -> int:
    return await first(await first(0))


@hf.workflow(name="flow")
async def calls_one_more() -> int:
    number = await first(0)
    await asyncio.gather(asyncio.sleep(0.3), other(0))
    return await first(number)


@hf.workflow(name="flow")
async def ends_early() -> int:
    return 0


@hf.workflow(name="flow")
async def breaks() -> int:
    raise LookupError("not written yet")


@hf.workflow(name="flow")
async def says_more() -> int:
    number = await first(0)
    hf.log.info("a line, which is no step")
    await asyncio.sleep(5.0)
    return await first(number) + 1000


ALL = (first, other)


async def half_way(path: Path) -> None:
    async with engine_of(path, *ALL, original) as engine:
        await engine.start(original, id="a")
        await until(lambda: rows(path, "SELECT 1 FROM timers"))


@pytest.mark.parametrize(
    ("changed", "recorded", "produced"),
    [
        (calls_another, "recorded a call of activity 'first' (number 0)", "produced a call of activity 'other'"),
        (sleeps_no_more, "recorded the start of timer number 1", "produced a call of activity 'first' (number 1)"),
        (calls_one_more, "recorded nothing", "produced a call of activity 'other' (number 1)"),
        (ends_early, "recorded a call of activity 'first'", "produced the end of the workflow"),
        (breaks, "recorded a call of activity 'first'", "the failure of the workflow (not written yet)"),
    ],
)
@pytest.mark.parametrize("cache_size", [100, 0])
def test_G12_changed_code_blocks_with_the_first_differing_step_and_the_right_code_resumes(
    tmp_path: Path, changed: hf.Workflow[..., Any], recorded: str, produced: str, cache_size: int
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        await half_way(path)
        before = rows(path, "SELECT turn, events FROM history")
        async with skipping(*ALL, changed, store=path, cache_size=cache_size) as engine:
            handle = engine.get("a")
            with pytest.raises(hf.WorkflowBlocked) as caught:
                await handle.result(timeout=10)
            described = await handle.describe()
            assert described.state is InstanceState.BLOCKED
            for text in (str(caught.value), described.blocked or ""):
                assert recorded in text
                assert produced in text
            assert rows(path, "SELECT turn, events FROM history") == before
        check_tables(path)
        async with skipping(*ALL, original, store=path, cache_size=cache_size) as engine:
            assert await engine.get("a").result(timeout=10) == 2
            assert (await engine.get("a").describe()).blocked is None
        check_tables(path)

    together(scenario())


def test_G12_changes_that_are_no_other_steps_do_not_block(tmp_path: Path) -> None:
    """A longer wait applies to new timers only: the recorded one keeps its due time (G8)."""

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        await half_way(path)
        async with skipping(*ALL, says_more, store=path) as engine:
            assert await engine.get("a").result(timeout=4) == 1002

    together(scenario())


def test_G12_a_blocked_instance_keeps_its_messages(tmp_path: Path) -> None:
    """The activity is answered, and what would consume the answer is parked: it waits for the mended code."""
    go_on = asyncio.Event()

    @hf.activity(name="slow")
    async def slow() -> str:
        await go_on.wait()
        return "kept"

    @hf.workflow(name="waits")
    async def waits() -> str:
        return await slow()

    @hf.workflow(name="waits")
    async def waits_otherwise() -> str:
        await asyncio.sleep(1)
        return await slow()

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, slow, waits) as engine:
            await engine.start(waits, id="a")
        async with engine_of(path, slow, waits_otherwise) as engine:
            go_on.set()
            with pytest.raises(hf.WorkflowBlocked):
                await engine.get("a").result(timeout=10)
            assert len(rows(path, "SELECT 1 FROM inbox")) == 1
            assert (await engine.get("a").describe()).state is InstanceState.BLOCKED
        check_tables(path)
        async with engine_of(path, slow, waits) as engine:
            assert await engine.get("a").result(timeout=10) == "kept"
        check_tables(path)

    together(scenario())


def test_G12_it_never_loops_hot_and_a_build_that_has_not_tried_takes_it_while_both_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        await half_way(path)
        async with engine_of(path, *ALL, calls_another) as old, engine_of(path, *ALL, ends_early) as older:
            handle = old.get("a")
            with pytest.raises(hf.WorkflowBlocked):
                await handle.result(timeout=10)
            for worker in (worker_of(old), worker_of(older)) * 3:
                await try_blocked(worker)
                await committer_of(worker).drain()
            (fence,) = rows(path, "SELECT fence FROM instances")[0]
            assert fence <= 4  # one claim by the first engine, and one try of each build
            async with engine_of(path, *ALL, original):
                assert await handle.result(timeout=10) == 2
        check_tables(path)

    together(scenario())


def test_G12_a_worker_claims_only_workflows_it_knows(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        await half_way(path)
        async with skipping(*ALL, store=path) as engine:
            with pytest.raises(TimeoutError):
                await engine.get("a").result(timeout=10)
            assert (await engine.get("a").describe()).state is InstanceState.RUNNING
        async with skipping(*ALL, original, store=path) as engine:
            assert await engine.get("a").result(timeout=10) == 2

    together(scenario())


def test_G12_a_turn_that_never_idles_is_blocked_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "holdfast.replay.loop.event_loop.WorkflowLoop.run_until_idle.__kwdefaults__",
        {"max_steps": 1000, "deadline": None},
    )

    @hf.workflow
    async def spins() -> None:
        while True:  # noqa: ASYNC110 - wrong on purpose
            await asyncio.sleep(0)

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, original, spins) as engine:
            handle = await engine.start(spins, id="spins")
            with pytest.raises(hf.WorkflowBlocked, match="without waiting for anything durable"):
                await handle.result(timeout=10)
            assert await engine.run(original, id="fine") == 2

    together(scenario())
