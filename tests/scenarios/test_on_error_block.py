"""``on_error="block"`` (R18, R19): a bug blocks an instance and fixed code continues it; declared failures end it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, history_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import ExecutionFailed
from holdfast.errors import InvalidOption, UndeclaredError, UnknownWord


class Declined(hf.Failure):
    """Declared by its base class."""


class OutOfStock(Exception):
    """Declared by fails_with only."""


class Sold(OutOfStock):
    """Declared by a base class in fails_with."""


switch: dict[str, Any] = {}
"""What the code raises: a test breaks and mends it without another build."""


@pytest.fixture(autouse=True)
def _mended() -> None:
    switch.clear()


@hf.activity
async def pay() -> str:
    return "receipt"


@hf.workflow(name="order", on_error="block", fails_with=(OutOfStock,))
async def order() -> str:
    receipt = await pay()
    await hf.event("go")
    if (error := switch.get("code")) is not None:
        raise error
    return receipt


def state(path: Path, instance_id: str = "it") -> str:
    [(found,)] = rows(path, "SELECT state FROM instances WHERE id = ?", instance_id)
    return str(found)


async def is_blocked(path: Path, instance_id: str = "it") -> None:
    await until(lambda: state(path, instance_id) == "BLOCKED")


def test_R18_a_bug_blocks_with_its_traceback_and_the_turn_is_taken_again_by_mended_code(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        switch["code"] = KeyError("price")
        async with engine_of(path, order, pay) as engine:
            handle = await engine.start(order, id="it")
            await handle.raise_event("go", None, id="once")
            await is_blocked(path)
            described = await handle.describe()
            first, _, trace = (described.blocked or "").partition("\n")
            assert first.startswith("UndeclaredError: order raised KeyError: 'price', which is no declared failure")
            assert f'File "{__file__}", line ' in trace
            assert "in order" in trace
            with pytest.raises(hf.WorkflowBlocked, match="KeyError"):
                await handle.result(timeout=10)
            assert not any(isinstance(event, ExecutionFailed) for event in history_of(path, number(path)))
            check_tables(path)
            await handle.retry_blocked()
            await is_blocked(path)
            switch.clear()
            await handle.retry_blocked()
            assert await handle.result(timeout=10) == "receipt"
        check_tables(path)
        assert audit(path) == []

    together(scenario())


def number(path: Path) -> int:
    return int(rows(path, "SELECT number FROM instances")[0][0])


def test_R18_another_build_continues_a_blocked_instance_by_itself(tmp_path: Path) -> None:
    @hf.workflow(name="order", on_error="block")
    async def broken() -> str:
        await pay()
        raise LookupError("receipt")

    @hf.workflow(name="order", on_error="block")
    async def mended() -> str:
        return await pay()

    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, broken, pay) as engine:
            await engine.start(broken, id="it")
            await is_blocked(path)
        async with engine_of(path, mended, pay) as engine:
            assert await engine.get("it").result(timeout=10) == "receipt"
        assert rows(path, "SELECT count(*) FROM attempts") == [(1,)], "the activity did not run again"
        check_tables(path)

    together(scenario())


def test_R18_a_bug_in_the_first_turn_blocks_too(tmp_path: Path) -> None:
    @hf.workflow(on_error="block")
    async def early(cents: int) -> int:
        if switch.get("mended"):
            return cents
        raise ZeroDivisionError

    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, early) as engine:
            handle = await engine.start(early, 7, id="it")
            await is_blocked(path)
            switch["mended"] = True
            await handle.retry_blocked()
            assert await handle.result(timeout=10) == 7
        check_tables(path)

    together(scenario())


@pytest.mark.parametrize(
    "error",
    [
        hf.Failure("no card"),
        Declined("no funds"),
        OutOfStock("hats"),
        Sold("hat"),
        ExceptionGroup("both", [Declined("a"), OutOfStock("b")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_R18_declared_failures_fail_the_instance_with_their_type(tmp_path: Path, error: Exception) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        switch["code"] = error
        async with engine_of(path, order, pay) as engine:
            handle = await engine.start(order, id="it")
            await handle.raise_event("go")
            with pytest.raises(hf.WorkflowFailed) as caught:
                await handle.result(timeout=20)
            assert type(caught.value.cause) is type(error)
        check_tables(path)

    together(scenario())


@pytest.mark.parametrize(
    "error", [RuntimeError("x"), ExceptionGroup("one", [Declined("a"), ValueError("b")]), asyncio.CancelledError()]
)
def test_R18_other_exceptions_block(tmp_path: Path, error: BaseException) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        switch["code"] = error
        async with engine_of(path, order, pay) as engine:
            handle = await engine.start(order, id="it")
            await handle.raise_event("go")
            await is_blocked(path)
            await handle.terminate()
        check_tables(path)

    together(scenario())


@hf.activity(retry=hf.Retry(attempts=1))
async def refuse(name: str) -> None:
    raise {"declined": Declined, "bug": RuntimeError}[name](name)


@hf.workflow(on_error="block")
async def uses(name: str) -> str:
    await refuse(name)
    return "done"


def test_R18_the_failure_of_an_activity_fails_the_instance_only_if_it_is_declared(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, uses, refuse) as engine:
            with pytest.raises(hf.WorkflowFailed) as caught:
                await engine.run(uses, "declined", id="declined")
            assert type(caught.value.cause) is Declined
            await engine.start(uses, "bug", id="bug")
            await is_blocked(path, "bug")
        check_tables(path)

    together(scenario())


def test_R18_a_declared_type_that_is_not_known_here_is_compared_by_its_names(tmp_path: Path) -> None:
    """The class of the exception exists in the process of the activity only."""
    local = type("Elsewhere", (hf.Failure,), {"__module__": "elsewhere", "__qualname__": "Elsewhere"})

    @hf.activity(retry=hf.Retry(attempts=1))
    async def refuses() -> None:
        raise local("not here")

    @hf.workflow(on_error="block")
    async def calls() -> None:
        await refuses()

    async def scenario() -> None:
        async with engine_of(tmp_path / "it.db", calls, refuses) as engine:
            with pytest.raises(hf.WorkflowFailed, match="not here"):
                await engine.run(calls, id="it")

    together(scenario())


def test_R18_fails_with_makes_a_type_known_to_the_client(tmp_path: Path) -> None:
    """The class is no name of a registered module."""
    hidden = type("Hidden", (Exception,), {"__module__": "nowhere", "__qualname__": "Hidden"})

    @hf.workflow(on_error="block", fails_with=hidden)
    async def raises() -> None:
        raise hidden("x")

    async def scenario() -> None:
        async with engine_of(tmp_path / "it.db", raises) as engine:
            with pytest.raises(hf.WorkflowFailed) as caught:
                await engine.run(raises, id="it")
            assert type(caught.value.cause) is hidden

    together(scenario())


def test_R19_cancellation_and_deadline_keep_their_meaning(tmp_path: Path) -> None:
    @hf.workflow(on_error="block")
    async def waits() -> None:
        try:
            await hf.event("never")
        finally:
            if switch.get("cleanup"):
                raise RuntimeError("in the clean-up")

    async def scenario() -> None:
        path = tmp_path / "it.db"
        async with engine_of(path, waits) as engine:
            handle = await engine.start(waits, id="cancelled")
            await handle.cancel("enough")
            with pytest.raises(hf.WorkflowCancelled):
                await handle.result(timeout=10)
            handle = await engine.start(waits, id="late", deadline=0.05)
            with pytest.raises(hf.WorkflowFailed) as caught:
                await handle.result(timeout=10)
            assert isinstance(caught.value.cause, hf.DeadlineExceeded)
            switch["cleanup"] = True
            handle = await engine.start(waits, id="breaks")
            await handle.cancel("enough")
            await is_blocked(path, "breaks")
            switch.clear()
            await handle.retry_blocked()
            with pytest.raises(hf.WorkflowCancelled):
                await handle.result(timeout=10)
        check_tables(path)
        assert audit(path) == []

    together(scenario())


def test_R19_a_blocked_child_keeps_its_parent_waiting(tmp_path: Path) -> None:
    @hf.workflow(name="child", on_error="block")
    async def child() -> str:
        if (error := switch.get("code")) is not None:
            raise error
        return "from the child"

    @hf.workflow(name="parent")
    async def parent() -> str:
        return await child()

    async def scenario() -> None:
        path = tmp_path / "it.db"
        switch["code"] = RuntimeError("x")
        async with engine_of(path, parent, child) as engine:
            handle = await engine.start(parent, id="it")
            await until(lambda: rows(path, "SELECT 1 FROM instances WHERE state = 'BLOCKED'"))
            assert state(path) == "RUNNING"
            switch.clear()
            [(name,)] = rows(path, "SELECT id FROM instances WHERE state = 'BLOCKED'")
            await engine.get(name).retry_blocked()
            assert await handle.result(timeout=10) == "from the child"
        check_tables(path)

    together(scenario())


def test_R19_the_error_of_an_update_rejects_the_update_alone(tmp_path: Path) -> None:
    @hf.workflow(on_error="block")
    async def takes_updates() -> str:
        @hf.on_update("add")
        async def add() -> None:
            raise ValueError("wrong")

        await hf.event("go")
        return "done"

    async def scenario() -> None:
        async with engine_of(tmp_path / "it.db", takes_updates) as engine:
            handle = await engine.start(takes_updates, id="it")
            with pytest.raises(hf.UpdateFailed, match="wrong"):
                await handle.update("add")
            await handle.raise_event("go")
            assert await handle.result(timeout=10) == "done"

    together(scenario())


def test_R18_histories_that_failed_before_the_option_was_set_still_replay(tmp_path: Path) -> None:
    @hf.workflow(name="order")
    async def fails() -> None:
        raise RuntimeError("x")

    @hf.workflow(name="order", on_error="block")
    async def blocks() -> None:
        raise RuntimeError("x")

    async def scenario() -> None:
        async with engine_of(tmp_path / "it.db", fails) as engine:
            handle = await engine.start(fails, id="it")
            with pytest.raises(hf.WorkflowFailed):
                await handle.result(timeout=10)
            hf.testing.Replayer(workflows=[blocks]).replay(await handle.export_history())

    together(scenario())


def test_R18_wrong_options_are_refused() -> None:
    for types in ("x", 7, (7,), (BaseException,), ["ValueError"]):
        with pytest.raises(InvalidOption, match="fails_with"):
            hf.workflow(on_error="block", fails_with=types)  # type: ignore[call-overload]
    with pytest.raises(UnknownWord, match="value of on_error; use one of fail, block"):
        hf.workflow(on_error="stop")  # type: ignore[call-overload]
    assert issubclass(UndeclaredError, hf.HoldfastError)
