"""`hf.patched` (R14): open instances keep the steps that they have taken, new ones take the changed steps."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, history_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import EventAwaited, PatchApplied
from holdfast.errors import InvalidId, NotInWorkflow, NotReadOnly


@hf.activity
async def one(text: str) -> str:
    return f"{text}1"


@hf.activity
async def two(text: str) -> str:
    return f"{text}2"


@hf.activity
async def three(text: str) -> str:
    return f"{text}3"


ACTIVITIES = (one, two, three)


@hf.workflow(name="order")
async def original() -> str:
    text = await two(await one(""))
    await hf.event("go")
    return await one(text)


@hf.workflow(name="order")
async def adds() -> str:
    text = await two(await one(await three("")))
    await hf.event("go")
    return await one(text)


@hf.workflow(name="order")
async def changes() -> str:
    text = await one("")
    await asyncio.sleep(0.001)
    await hf.event("go")
    return await one(text)


@hf.workflow(name="order")
async def renames() -> str:
    text = await two(await three(""))
    await hf.event("go")
    return await one(text)


@hf.workflow(name="order")
async def removes() -> str:
    text = await two("")
    await hf.event("go")
    return await one(text)


@hf.workflow(name="order")
async def reorders() -> str:
    text = await one(await two(""))
    await hf.event("go")
    return await one(text)


@hf.workflow(name="order")
async def adds_patched() -> str:
    text = await three("") if hf.patched("add") else ""
    text = await two(await one(text))
    await hf.event("go")
    return await one(text)


@hf.workflow(name="order")
async def changes_patched() -> str:
    text = await one("")
    if hf.patched("change"):
        await asyncio.sleep(0.001)
    else:
        text = await two(text)
    await hf.event("go")
    return await one(text)


@hf.workflow(name="order")
async def renames_patched() -> str:
    first = three if hf.patched("rename") else one
    text = await two(await first(""))
    await hf.event("go")
    return await one(text)


@hf.workflow(name="order")
async def removes_patched() -> str:
    text = "" if hf.patched("remove") else await one("")
    text = await two(text)
    await hf.event("go")
    return await one(text)


@hf.workflow(name="order")
async def reorders_patched() -> str:
    if hf.patched("reorder"):
        text = await one(await two(""))
    else:
        text = await two(await one(""))
    await hf.event("go")
    return await one(text)


AnyCode = hf.Workflow[..., Any]
EDITS = [
    pytest.param(adds, adds_patched, "one' (number 0)", "three' (number 0)", "3121", id="add"),
    pytest.param(changes, changes_patched, "two' (number 1)", "the start of timer", "11", id="change"),
    pytest.param(renames, renames_patched, "one' (number 0)", "three' (number 0)", "321", id="rename"),
    pytest.param(removes, removes_patched, "one' (number 0)", "two' (number 0)", "21", id="remove"),
    pytest.param(reorders, reorders_patched, "one' (number 0)", "two' (number 0)", "211", id="reorder"),
]


async def half_way(path: Path, code: AnyCode, instance_id: str) -> None:
    async with engine_of(path, *ACTIVITIES, code) as engine:
        await engine.start(code, id=instance_id)
        await until(lambda: any(isinstance(event, EventAwaited) for event in history_of(path, 1)))


def patches_of(path: Path, instance_id: str = "it") -> list[str]:
    [(number,)] = rows(path, "SELECT number FROM instances WHERE id = ?", instance_id)
    return [event.name for event in history_of(path, number) if isinstance(event, PatchApplied)]


@pytest.mark.parametrize(("plain", "patched", "recorded", "produced", "new"), EDITS)
def test_R14_an_edit_blocks_with_its_first_difference_and_a_patch_continues_the_old_branch(
    tmp_path: Path, plain: AnyCode, patched: AnyCode, recorded: str, produced: str, new: str
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        await half_way(path, original, "old")
        async with engine_of(path, *ACTIVITIES, plain) as engine:
            await engine.get("old").raise_event("go")
            await until(lambda: rows(path, "SELECT 1 FROM instances WHERE state = 'BLOCKED'"))
            reason = (await engine.get("old").describe()).blocked or ""
            difference = reason.partition("recorded ")[2].partition(", but the code produced ")
            assert recorded in difference[0]
            assert produced in difference[2]
        async with engine_of(path, *ACTIVITIES, patched) as engine:
            assert await engine.get("old").result(timeout=10) == "121"
            handle = await engine.start(patched, id="new")
            await handle.raise_event("go")
            assert await handle.result(timeout=10) == new
        assert [patches_of(path, "old"), len(patches_of(path, "new"))] == [[], 1]
        async with engine_of(path, *ACTIVITIES, patched) as engine:  # closed histories still replay
            for each in ("old", "new"):
                hf.testing.Replayer(workflows=[patched]).replay(await engine.get(each).export_history())
            hf.testing.Replayer(workflows=[plain]).replay(await engine.get("new").export_history())
        check_tables(path)
        assert audit(path) == []

    together(scenario())


@pytest.mark.parametrize("cache_size", [100, 0])
def test_R14_a_decision_is_kept_by_every_replay_in_loops_and_ends_with_the_execution(
    tmp_path: Path, cache_size: int
) -> None:
    @hf.workflow(name="loop")
    async def before(rounds: int = 0) -> list[str]:
        seen: list[str] = []
        while rounds == 0:
            await hf.event("next")
            seen.append(await one(""))
        return seen

    @hf.workflow(name="loop")
    async def after(rounds: int = 0) -> list[str]:
        seen: list[str] = []
        for _ in range(3):
            await hf.event("next")
            seen.append(await (two if hf.patched("loop") else one)(""))
        if rounds == 0:
            hf.continue_as_new(1)
        return seen

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, one, two, before) as engine:
            handle = await engine.start(before, id="it")
            await handle.raise_event("next")
            await until(lambda: rows(path, "SELECT 1 FROM history WHERE turn = 2"))
        async with engine_of(path, one, two, after, cache_size=cache_size) as engine:
            for _ in range(2):
                await engine.get("it").raise_event("next")
            await until(lambda: rows(path, "SELECT 1 FROM instances WHERE execution = 2"))
            stored = history_of(path, 1)
            assert not any(isinstance(event, PatchApplied) for event in stored), "the first call of the loop decided"
            for _ in range(3):
                await engine.get("it").raise_event("next")
            assert await engine.get("it").result(timeout=10) == ["2", "2", "2"], "the next execution is undecided"
        assert patches_of(path) == ["loop"], "the event is recorded once"
        check_tables(path)

    together(scenario())


def test_R14_a_call_behind_the_replayed_history_takes_the_new_branch(tmp_path: Path) -> None:
    @hf.workflow(name="order")
    async def later() -> str:
        text = await two(await one(""))
        await hf.event("go")
        return await (three if hf.patched("last") else one)(text)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        await half_way(path, original, "it")
        async with engine_of(path, *ACTIVITIES, later) as engine:
            await engine.get("it").raise_event("go")
            assert await engine.get("it").result(timeout=10) == "123"
        assert patches_of(path) == ["last"]

    together(scenario())


def test_R14_code_without_the_call_replays_histories_that_took_the_new_branch(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        await half_way(path, adds_patched, "it")
        assert patches_of(path) == ["add"]
        async with engine_of(path, *ACTIVITIES, adds) as engine:
            await engine.get("it").raise_event("go")
            assert await engine.get("it").result(timeout=10) == "3121"

    together(scenario())


def test_R14_the_length_of_the_history_is_the_same_with_and_without_the_call(tmp_path: Path) -> None:
    @hf.workflow(name="measured")
    async def with_call() -> list[int]:
        lengths = [hf.info().history_length]
        assert hf.patched("measure")
        lengths.append(hf.info().history_length)
        await hf.event("go")
        return [*lengths, hf.info().history_length]

    @hf.workflow(name="measured")
    async def without_call() -> list[int]:
        lengths = [hf.info().history_length]
        lengths.append(hf.info().history_length)
        await hf.event("go")
        return [*lengths, hf.info().history_length]

    async def scenario() -> list[list[int]]:
        results: list[list[int]] = []
        async with engine_of(tmp_path / "at-once.db", with_call) as engine:
            handle = await engine.start(with_call, id="it")
            await handle.raise_event("go")
            results.append(await handle.result(timeout=10))
        for second in (with_call, without_call):
            path = tmp_path / f"{second.fn.__name__}.db"
            await half_way(path, with_call, "it")
            async with engine_of(path, second) as engine:
                await engine.get("it").raise_event("go")
                results.append(await engine.get("it").result(timeout=10))
        return results

    assert together(scenario()) == [[1, 1, 3]] * 3


def test_R14_patched_is_refused_outside_of_workflow_code_in_queries_and_without_a_name(tmp_path: Path) -> None:
    with pytest.raises(NotInWorkflow, match=r"hf\.patched works in workflow code only"):
        hf.patched("x")

    @hf.activity(name="asks")
    async def asks() -> bool:
        return hf.patched("x")

    @hf.workflow(name="bad")
    async def bad(name: Any) -> bool:
        return hf.patched(name)

    @hf.workflow(name="calls")
    async def calls() -> bool:
        return await asks()

    @hf.workflow(name="asked")
    async def asked() -> None:
        @hf.on_query("which")
        def which() -> bool:
            return hf.patched("x")

        await hf.event("go")

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, asks, bad, calls, asked) as engine:
            for name in ("", 7, "a\nb"):
                with pytest.raises(hf.WorkflowFailed) as caught:
                    await engine.run(bad, name, id=f"bad-{name!a}")
                assert isinstance(caught.value.__cause__, InvalidId)
            with pytest.raises(hf.WorkflowFailed) as failed:
                await engine.run(calls, id="calls")
            assert isinstance(failed.value.__cause__, NotInWorkflow)
            handle = await engine.start(asked, id="asked")
            with pytest.raises(hf.QueryFailed) as refused:
                await handle.query("which")
            assert isinstance(refused.value.__cause__, NotReadOnly)

    together(scenario())
