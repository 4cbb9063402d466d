"""Code that may only look (G11): what a query does that would change its workflow is refused, and changes nothing."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, together

import holdfast as hf

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])


@hf.activity
async def step(number: int) -> int:
    return number + 1


@hf.workflow
async def misbehaves() -> str:  # noqa: C901 - many small functions
    box: asyncio.Queue[str] = asyncio.Queue()

    @hf.on_query
    def sets_status() -> None:
        hf.set_status("asked")

    @hf.on_query
    def sets_state() -> None:
        hf.state["asked"] = 1

    @hf.on_query
    def calls_activity() -> None:
        step(1)  # type: ignore[unused-coroutine]

    @hf.on_query
    def raises_event() -> None:
        hf.raise_event("me", "x")

    @hf.on_query
    def draws() -> float:
        return hf.random().random()

    @hf.on_query
    def records() -> int:
        return hf.side_effect(lambda: 1)

    @hf.on_query
    def starts_task() -> None:
        asyncio.ensure_future(asyncio.sleep(1))  # noqa: RUF006 - it is refused

    @hf.on_query
    def gives_awaitable() -> Any:
        return hf.event("x")

    @hf.on_query
    def registers() -> None:
        hf.on_query(gives_awaitable)

    @hf.on_query
    def wakes_the_workflow() -> None:
        box.put_nowait("from a query")

    @hf.on_query
    def breaks() -> None:
        raise LookupError("nothing there")

    @hf.on_query
    def looks() -> list[Any]:
        hf.log.info("asked")
        return [hf.info().id, hf.now().year > 2000, hf.state.get("kept"), "kept" in hf.state, len(hf.state)]

    hf.state["kept"] = 7
    waiting = asyncio.create_task(box.get())
    await hf.event("go")
    assert not waiting.done()
    return "unharmed"


def test_a_handler_that_raises_is_a_typed_error_with_its_cause() -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", step, misbehaves) as engine:
            handle = await engine.start(misbehaves, id="it")
            with pytest.raises(hf.QueryFailed, match="LookupError: nothing there") as caught:
                await handle.query("breaks")
            assert isinstance(caught.value.cause, LookupError)
            await handle.raise_event("go")
            assert await handle.result() == "unharmed"

    together(scenario())


REFUSED = (
    *("sets_status", "sets_state", "calls_activity", "raises_event", "draws", "records"),
    *("starts_task", "gives_awaitable", "registers", "wakes_the_workflow"),
)


@CACHES
@pytest.mark.parametrize("name", REFUSED)
def test_G11_a_query_that_would_change_something_is_refused_and_leaves_the_workflow_as_it_was(
    tmp_path: Path, cache_size: int, name: str
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, step, misbehaves, cache_size=cache_size) as engine:
            handle = await engine.start(misbehaves, id="it")
            for _ in range(2):
                with pytest.raises(hf.QueryFailed, match=f"the query '{name}' is read-only") as caught:
                    await handle.query(name)
                assert isinstance(caught.value.cause, hf.errors.NotReadOnly)
            assert await handle.state() == {"kept": 7}
            await handle.raise_event("go")
            assert await handle.result(timeout=10) == "unharmed"
        check_tables(path)

    together(scenario())


@CACHES
def test_a_query_may_look_at_everything_and_log(cache_size: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="holdfast.workflow")

    async def scenario() -> None:
        async with engine_of(":memory:", step, misbehaves, cache_size=cache_size) as engine:
            handle = await engine.start(misbehaves, id="it")
            assert await handle.query("looks") == ["it", True, 7, True, 1]
            assert [line.message for line in caplog.records if line.name == "holdfast.workflow"] == ["asked"]

    together(scenario())


@hf.workflow
async def looks_at_what_is_over() -> str:
    over = asyncio.create_task(asyncio.sleep(1))
    over.cancel()

    @hf.on_query
    def reads() -> None:
        over.result()

    @hf.on_query
    def leaves() -> None:
        raise SystemExit(3)

    @hf.on_query
    def is_there() -> bool:
        return True

    @hf.on_update
    def takes(how: str) -> None:
        assert how
        over.result()

    @takes.validator
    def judge(how: str) -> None:
        if how == "reads":
            over.result()
        if how == "leaves":
            raise SystemExit(3)

    await step(1)
    await hf.event("go")
    return "unharmed"


@CACHES
def test_G11_a_handler_that_raises_no_ordinary_exception_harms_neither_who_asks_nor_the_worker(
    tmp_path: Path, cache_size: int
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, step, looks_at_what_is_over, cache_size=cache_size) as engine:
            handle = await engine.start(looks_at_what_is_over, id="it")
            async with await hf.connect(path) as client:
                for asked in (handle, client.get("it")):  # here, and by the worker that answers others
                    for name, said in (("reads", "CancelledError"), ("leaves", "SystemExit: 3")):
                        with pytest.raises(hf.QueryFailed, match=f"'{name}' of 'it' failed: .*{said}$"):
                            await asked.query(name)
                        with pytest.raises(hf.UpdateRejected, match=f"'takes' of 'it' was rejected: .*{said}$"):
                            await asked.update("takes", name)
                    assert await asked.query("is_there")
            with pytest.raises(hf.UpdateFailed, match=r"'takes' of 'it' failed: .*CancelledError$"):
                await handle.update("takes", "accepted")
            await handle.raise_event("go")
            assert await handle.result(timeout=10) == "unharmed"
        check_tables(path)

    together(scenario())
