"""The end of a cancelled call (A14), and the verdicts on messages that workflow code sends (G19)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, history_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import ActivityCancelRequested, ActivityScheduled

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])
log: list[str] = []
begun: list[asyncio.Event] = []
go: list[asyncio.Event] = []


def reset() -> None:
    log.clear()
    begun[:] = [asyncio.Event()]
    go[:] = [asyncio.Event()]


@hf.activity(retry=hf.Retry(initial=0))
async def slow(end: str) -> str:
    begun[0].set()
    try:
        await go[0].wait()
    except asyncio.CancelledError:
        log.append("asked")
        await asyncio.sleep(0.05)
        log.append("ended")
        if end == "raises":
            raise ValueError(end) from None
        if end == "returns":
            return end
        raise
    log.append("finished")
    return end


@hf.activity
async def note(text: str) -> None:
    log.append(text)


@hf.workflow
async def calls(mode: Any, end: str) -> str:
    call = asyncio.create_task(slow.with_options(on_cancel=mode)(end))
    await hf.event("cancel")
    call.cancel()
    await asyncio.sleep(0)
    call.cancel()
    try:
        await call
    except asyncio.CancelledError:
        await note("continued")
        return "cancelled"
    return "completed"


@hf.workflow
async def only_calls(mode: Any) -> None:
    await slow.with_options(on_cancel=mode)("stops")


@hf.workflow
async def cancels_unclaimed() -> str:
    try:
        async with asyncio.timeout(0.05):
            await slow.with_options(on_cancel="wait", queue="nobody")("stops")
    except TimeoutError:
        return "timed out"
    return "completed"


@hf.workflow
async def listens() -> str:
    return str(await hf.event("word", str))


@hf.workflow
async def tells(target: str, late: bool) -> str:
    sent = hf.raise_event(target, "word", "x")
    if late:
        await asyncio.sleep(0.01)
    try:
        await sent
        await sent
    except hf.HoldfastError as error:
        return f"{type(error).__name__}: {error}"
    return "taken"


@hf.workflow
async def cancels(target: str, late: bool) -> str:
    sent = hf.cancel(target, "not needed")
    if late:
        await asyncio.sleep(0.01)
    try:
        await sent
    except hf.HoldfastError as error:
        return f"{type(error).__name__}: {error}"
    return "taken"


@hf.workflow
async def cancels_silently(target: str) -> str:
    hf.cancel(target)
    hf.raise_event("nobody", "x")
    return "sent"


@CACHES
@pytest.mark.parametrize("end", ["stops", "raises", "returns"])
def test_A14_a_call_waits_until_its_body_has_ended(tmp_path: Path, end: str, cache_size: int) -> None:
    async def scenario() -> None:
        reset()
        async with engine_of(tmp_path / "shop.db", calls, slow, note, cache_size=cache_size) as engine:
            handle = await engine.start(calls, "wait", end, id="a")
            await begun[0].wait()
            await handle.raise_event("cancel")
            assert await handle.result() == "cancelled"
            assert log == ["asked", "ended", "continued"]
        check_tables(tmp_path / "shop.db")
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


@CACHES
def test_A14_by_default_the_code_does_not_wait(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        reset()
        async with engine_of(tmp_path / "shop.db", calls, slow, note, cache_size=cache_size) as engine:
            handle = await engine.start(calls, "request", "stops", id="a")
            await begun[0].wait()
            await handle.raise_event("cancel")
            assert await handle.result() == "cancelled"
            await until(lambda: len(log) == 3)
            assert log.index("continued") < log.index("ended")

    together(scenario())


@pytest.mark.parametrize("how", ["by its code", "by the end of the workflow", "by a termination"])
def test_A14_an_abandoned_body_runs_on_and_its_result_is_dropped(tmp_path: Path, how: str) -> None:
    async def scenario() -> None:
        reset()
        async with engine_of(tmp_path / "shop.db", calls, only_calls, slow, note) as engine:
            if how == "by its code":
                handle: Any = await engine.start(calls, "abandon", "kept", id="a")
            else:
                handle = await engine.start(only_calls, "abandon", id="a")
            await begun[0].wait()
            if how == "by its code":
                await handle.raise_event("cancel")
                assert await handle.result() == "cancelled"
            else:
                await (handle.terminate() if how == "by a termination" else handle.cancel())
                with pytest.raises((hf.WorkflowCancelled, hf.WorkflowTerminated)):
                    await handle.result()
            assert "asked" not in log
            go[0].set()
            await until(
                lambda: rows(tmp_path / "shop.db", "SELECT 1 FROM attempts WHERE name = 'slow' AND state = 'COMPLETED'")
            )
            assert "finished" in log
        check_tables(tmp_path / "shop.db")
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


def test_A14_a_request_from_outside_stops_an_abandoned_body(tmp_path: Path) -> None:
    async def scenario() -> None:
        reset()
        async with engine_of(tmp_path / "shop.db", only_calls, slow) as engine:
            handle = await engine.start(only_calls, "abandon", id="a")
            await begun[0].wait()
            await handle.cancel_activity("slow")
            with pytest.raises(hf.WorkflowFailed, match="was cancelled"):
                await handle.result()
            assert log == ["asked", "ended"]

    together(scenario())


def test_A14_a_call_whose_body_has_not_begun_ends_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        reset()
        async with engine_of(tmp_path / "shop.db", cancels_unclaimed, slow) as engine:
            assert await engine.run(cancels_unclaimed, id="a") == "timed out"
            assert rows(tmp_path / "shop.db", "SELECT state FROM attempts") == [("CANCELLED",)]
        check_tables(tmp_path / "shop.db")

    together(scenario())


def test_A14_a_workflow_that_is_cancelled_ends_when_the_body_has_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        reset()
        async with engine_of(tmp_path / "shop.db", only_calls, slow) as engine:
            handle = await engine.start(only_calls, "wait", id="a")
            await begun[0].wait()
            await handle.cancel()
            with pytest.raises(hf.WorkflowCancelled):
                await handle.result()
            assert log == ["asked", "ended"]
        ((number,),) = rows(tmp_path / "shop.db", "SELECT number FROM instances")
        history = history_of(tmp_path / "shop.db", number)
        assert [event.waits for event in history if isinstance(event, ActivityScheduled)] == [True]
        assert len([event for event in history if isinstance(event, ActivityCancelRequested)]) == 1

    together(scenario())


@CACHES
@pytest.mark.parametrize("late", [False, True])
def test_G19_an_awaited_event_reports_whether_it_was_taken(tmp_path: Path, late: bool, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", tells, listens, cache_size=cache_size) as engine:
            target = await engine.start(listens, id="there")
            assert await engine.run(tells, "there", late, id="1") == "taken"
            assert await target.result() == "x"
            assert await engine.run(tells, "there", late, id="2") == (
                "InstanceClosed: 'there' has ended, and the event 'word' was not taken"
            )
            assert await engine.run(tells, "nobody", late, id="3") == (
                "InstanceNotFound: no instance has the id 'nobody', and the event 'word' was not taken"
            )
        check_tables(tmp_path / "shop.db")
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


@CACHES
@pytest.mark.parametrize("late", [False, True])
def test_G19_a_workflow_cancels_another_one(tmp_path: Path, late: bool, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", cancels, cancels_silently, listens, cache_size=cache_size) as engine:
            target = await engine.start(listens, id="there")
            assert await engine.run(cancels, "there", late, id="1") == "taken"
            with pytest.raises(hf.WorkflowCancelled, match="not needed"):
                await target.result()
            assert "InstanceNotFound" in await engine.run(cancels, "nobody", late, id="2")
            if not late:
                assert "InstanceClosed" in await engine.run(cancels, "there", late, id="3")
            other = await engine.start(listens, id="other")
            assert await engine.run(cancels_silently, "other", id="4") == "sent"
            with pytest.raises(hf.WorkflowCancelled):
                await other.result()
        check_tables(tmp_path / "shop.db")
        assert audit(tmp_path / "shop.db") == []

    together(scenario())
