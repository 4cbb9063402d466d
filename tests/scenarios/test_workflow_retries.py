"""Retries that the body chooses (G13), and retries of whole executions (G18)."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, history_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import ExecutionFailed, Started
from holdfast.errors import InvalidOption

began: list[Any] = []


class Declined(Exception):
    pass


class DeclinedByBank(Declined):
    pass


class Busy(hf.RetryAfter):
    """A rate limit of the user's own."""


@hf.activity(retry=hf.Retry(attempts=3, initial=30))
async def limited(kind: str) -> str:
    began.append(kind)
    if len(began) == 1:
        if kind == "subclass":
            raise Busy(0.05)
        raise hf.RetryAfter(timedelta(milliseconds=50), "busy")
    return kind


@hf.activity(retry=hf.Retry(attempts=3, initial=30))
def limited_thread(kind: str) -> str:
    began.append(kind)
    if len(began) == 1:
        raise hf.RetryAfter(0.05)
    return kind


@hf.activity(process=True, retry=hf.Retry(attempts=3, initial=30), heartbeat=20)
def limited_process(path: str) -> str:
    if not Path(path).exists():
        Path(path).touch()
        raise hf.RetryAfter(0.05)
    return "done"


@hf.activity(process=True, retry=hf.Retry(attempts=5, initial=0, non_retryable=(Declined,)))
def declined_process(path: str) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write("x")
    raise DeclinedByBank("no")


@hf.activity(retry=hf.Retry(attempts=2, initial=0))
async def always_limited() -> None:
    raise hf.RetryAfter(0, "busy")


@hf.workflow
async def calls(name: str, argument: str) -> str:
    activity: Any = {each.name: each for each in (limited, limited_thread, limited_process, declined_process)}[name]
    return str(await activity(argument))


@hf.workflow
async def gives_up() -> str:
    try:
        await always_limited()
    except hf.RetryAfter as error:
        return f"{error} {error.delay_seconds:g}"
    return ""


@hf.workflow(retry=hf.Retry(attempts=3, initial=0.01, jitter=False, non_retryable=(Declined, "PermissionError")))
async def flaky(kind: str, succeeds_at: int) -> list[int]:
    info = hf.info()
    began.append((info.execution, info.attempt))
    hf.set_status(f"attempt {info.attempt}")
    seen = hf.state.get("seen", int, 0) + 1
    hf.state["seen"] = seen
    if info.attempt < succeeds_at:
        errors: dict[str, Exception] = {
            "value": ValueError("x"),
            "declined": DeclinedByBank("x"),
            "named": PermissionError("x"),
            "asks": hf.RetryAfter(0.02),
            "slow": hf.RetryAfter(3600),
        }
        raise errors[kind]
    return [info.attempt, info.execution, seen]


@hf.workflow(retry=hf.Retry(attempts=2, initial=0))
async def waits_first() -> str:
    if hf.info().attempt == 1:
        await hf.event("fail")
        raise ValueError("first")
    return str(await hf.event("word", str))


@hf.workflow(retry=hf.Retry(attempts=2, initial=0))
async def has_children() -> str:
    if hf.info().attempt == 1:
        await hf.start(waits, parent_close="cancel")
        await hf.start(waits)
        await hf.start(waits, id="kept", parent_close="abandon")
        raise ValueError("first")
    return "done"


@hf.workflow
async def waits() -> None:
    await hf.event("never")


@hf.workflow
async def parent() -> list[int]:
    return await flaky("value", 3)


@pytest.mark.parametrize(
    ("name", "argument"), [("limited", "x"), ("limited", "subclass"), ("limited_thread", "x"), ("limited_process", "")]
)
def test_G13_a_body_chooses_the_delay_of_its_retry(tmp_path: Path, name: str, argument: str) -> None:
    async def scenario() -> None:
        began.clear()
        given = argument or str(tmp_path / "mark")
        async with engine_of(tmp_path / "shop.db", calls, limited, limited_thread, limited_process) as engine:
            assert await engine.run(calls, name, given, id="a") in (given, "done")
        query = "SELECT attempt, available_at_ms, closed_at_ms FROM attempts ORDER BY attempt"
        (_, _, failed_at), (_, again_at, _) = rows(tmp_path / "shop.db", query)
        assert 0 <= again_at - failed_at <= 50
        check_tables(tmp_path / "shop.db")

    together(scenario())


def test_G13_a_delay_that_a_body_chooses_does_not_add_attempts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", gives_up, always_limited) as engine:
            assert await engine.run(gives_up, id="a") == "busy 0"
            assert rows(tmp_path / "shop.db", "SELECT count(*) FROM attempts") == [(2,)]

    together(scenario())


def test_G13_errors_that_are_not_retried_are_known_through_processes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", calls, declined_process) as engine:
            with pytest.raises(hf.WorkflowFailed, match="DeclinedByBank"):
                await engine.run(calls, "declined_process", str(tmp_path / "ran"), id="a")
            assert (tmp_path / "ran").read_text() == "x"

    together(scenario())


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), 367 * 86_400, True, "1"])
def test_G13_a_delay_is_bounded(delay: Any) -> None:
    with pytest.raises(InvalidOption, match=r"hf\.RetryAfter takes"):
        hf.RetryAfter(delay)


@pytest.mark.parametrize("cache_size", [1_000, 0])
@pytest.mark.parametrize("kind", ["value", "asks"])
def test_G18_a_failed_execution_is_followed_by_the_next_with_the_same_input(
    tmp_path: Path, kind: str, cache_size: int
) -> None:
    async def scenario() -> None:
        began.clear()
        async with engine_of(tmp_path / "shop.db", flaky, cache_size=cache_size) as engine:
            assert await engine.run(flaky, kind, 3, id="a") == [3, 3, 3]
            assert set(began) == {(1, 1), (2, 2), (3, 3)}
        check_tables(tmp_path / "shop.db")
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


@pytest.mark.parametrize(("kind", "attempts"), [("value", 3), ("declined", 1), ("named", 1)])
def test_G18_the_policy_decides_which_failure_is_the_last(tmp_path: Path, kind: str, attempts: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", flaky) as engine:
            with pytest.raises(hf.WorkflowFailed):
                await engine.run(flaky, kind, 9, id="a")
            assert rows(tmp_path / "shop.db", "SELECT state, execution FROM instances") == [("FAILED", attempts)]
        check_tables(tmp_path / "shop.db")

    together(scenario())


def test_G18_a_parent_waits_for_the_last_execution_of_its_child(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", parent, flaky) as engine:
            assert await engine.run(parent, id="a") == [3, 3, 3]

    together(scenario())


@pytest.mark.parametrize("ends", ["cancel", "terminate", "deadline"])
def test_G18_an_instance_that_waits_for_its_retry_can_be_ended(tmp_path: Path, ends: str) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", flaky) as engine:
            handle = await engine.start(flaky, "slow", 9, id="a", deadline=1.0 if ends == "deadline" else None)
            await until(lambda: rows(tmp_path / "shop.db", "SELECT 1 FROM instances WHERE execution = 2"))
            if ends != "deadline":
                await getattr(handle, ends)()
            expected = {
                "cancel": hf.WorkflowCancelled,
                "terminate": hf.WorkflowTerminated,
                "deadline": hf.WorkflowFailed,
            }
            with pytest.raises(expected[ends]):
                await handle.result()
        check_tables(tmp_path / "shop.db")

    together(scenario())


def test_G18_a_delay_goes_on_in_another_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", flaky) as engine:
            await engine.start(flaky, "slow", 9, id="a")
            await until(lambda: rows(tmp_path / "shop.db", "SELECT 1 FROM timers"))
        due = rows(tmp_path / "shop.db", "SELECT due_at_ms FROM timers")
        async with engine_of(tmp_path / "shop.db", flaky) as engine:
            with pytest.raises(TimeoutError):
                await engine.get("a").result(timeout=0.2)
        assert rows(tmp_path / "shop.db", "SELECT due_at_ms FROM timers") == due
        assert rows(tmp_path / "shop.db", "SELECT execution FROM instances") == [(2,)]

    together(scenario())


def test_G18_events_that_the_failed_execution_did_not_take_go_to_the_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", waits_first) as engine:
            handle = await engine.start(waits_first, id="a")
            await handle.raise_event("word", "kept")
            await handle.raise_event("fail")
            assert await handle.result() == "kept"

    together(scenario())


def test_G18_the_children_of_a_failed_execution_end_by_their_policy(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", has_children, waits) as engine:
            assert await engine.run(has_children, id="a") == "done"
            states = "SELECT state FROM instances WHERE workflow = 'waits' ORDER BY number"
            await until(lambda: rows(tmp_path / "shop.db", states)[0] == ("CANCELLED",))
            assert rows(tmp_path / "shop.db", states) == [("CANCELLED",), ("TERMINATED",), ("RUNNING",)]
        check_tables(tmp_path / "shop.db")

    together(scenario())


def test_G18_a_history_says_why_the_next_execution_began(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", flaky) as engine:
            await engine.run(flaky, "value", 2, id="a")
        ((number,),) = rows(tmp_path / "shop.db", "SELECT number FROM instances")
        history = history_of(tmp_path / "shop.db", number)
        (failed,) = [event for event in history if isinstance(event, ExecutionFailed)]
        _, second = [event for event in history if isinstance(event, Started)]
        assert failed.retry_at_ms is not None
        assert (second.attempt, second.begins_at_ms) == (2, failed.retry_at_ms)

    together(scenario())


def test_G18_a_wrong_policy_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"retry takes hf\.Retry"):
        hf.workflow(retry=3)  # type: ignore[call-overload]


@hf.workflow(retry=hf.Retry(attempts=5, initial=0))
async def fails_when_cancelled() -> None:
    try:
        await hf.event("never")
    except BaseException as error:
        raise ValueError("the clean-up failed") from error


def test_G18_a_failure_after_a_cancel_is_not_retried(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", fails_when_cancelled) as engine:
            handle = await engine.start(fails_when_cancelled, id="a")
            await handle.cancel()
            with pytest.raises(hf.WorkflowFailed, match="the clean-up failed"):
                await handle.result()
            assert rows(tmp_path / "shop.db", "SELECT execution FROM instances") == [(1,)]

    together(scenario())


@hf.workflow(on_error="block", retry=hf.Retry(attempts=2, initial=0))
async def declares(ends: str) -> object:
    if hf.info().attempt == 1:
        raise hf.Failure("once")
    if ends == "error":
        raise KeyError(ends)
    return object()


@pytest.mark.parametrize("ends", ["result", "error"])
def test_R18_an_undeclared_error_blocks_an_execution_instead_of_a_retry(tmp_path: Path, ends: str) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", declares) as engine:
            await engine.start(declares, ends, id="a")
            query = "SELECT state, execution FROM instances"
            await until(lambda: rows(tmp_path / "shop.db", query) == [("BLOCKED", 2)])

    together(scenario())
