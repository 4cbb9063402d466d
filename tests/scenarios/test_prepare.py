"""Activities with `prepare=`: PREPARING on disk, then RUNNING, then the body (A5, A8, L2, L3)."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.bodies import calling, outcome_of
from tests.scenarios.prepared import CONCLUDED, ENTERED, Steps, stored
from tests.scenarios.support import check_tables, engine_of, path_of, rows, skipping, together, until
from tests.support import inside

import holdfast as hf
from holdfast.core.lifecycle import AttemptState
from holdfast.errors import InvalidOption, UsageError

ONCE = hf.Retry(attempts=1)
SOON = hf.Retry(attempts=3, initial=0.001)


def marked(function: Callable[..., Any], **options: Any) -> Any:
    """An activity of any kind."""
    return hf.activity(**options)(function)


def pauses(seconds: float) -> Any:
    """A preparation that takes some time."""

    async def start_gpu() -> None:
        await asyncio.sleep(seconds)

    return start_gpu


# ------------------------------------------------------------ what the body receives


async def get_ready(name: str, times: int = 2) -> dict[str, Any]:
    assert hf.activity_info().prepared is None
    return {"name": name, "times": times, "lock": threading.Lock()}


def get_ready_in_thread(name: str, times: int = 2) -> dict[str, Any]:
    assert threading.current_thread() is not threading.main_thread()
    return {"name": name, "times": times, "lock": threading.Lock()}


def use() -> str:
    prepared = hf.activity_info().prepared
    with prepared["lock"]:
        return str(prepared["name"] * prepared["times"])


async def body(name: str, times: int = 2) -> str:
    del name, times
    return use()


def body_in_thread(name: str, times: int = 2) -> str:
    del name, times
    return use()


async def values(name: str, times: int = 2) -> AsyncIterator[str]:
    del name, times
    yield use()
    yield use()


def values_in_thread(name: str, times: int = 2) -> Iterator[str]:
    del name, times
    yield use()
    yield use()


PREPARES = [get_ready, get_ready_in_thread]


@pytest.mark.parametrize("prepare", PREPARES)
@pytest.mark.parametrize("function", [body, body_in_thread])
def test_L3_the_body_has_the_value_of_the_preparation(prepare: Any, function: Any) -> None:
    """Any object, which is never stored."""
    activity = marked(function, name="use", prepare=prepare, start_to_close=30)

    @hf.workflow
    async def flow() -> list[str]:
        return [await activity("a"), await activity("b", 3), await activity(times=1, name="c")]

    async def scenario() -> None:
        async with engine_of(":memory:", flow, activity) as engine:
            assert await engine.run(flow, id="it") == ["aa", "bbb", "c"]
            assert {digits for _, digits in stored(path_of(engine))} == {888_000_001_000_001}
            check_tables(path_of(engine))

    together(scenario())


@pytest.mark.parametrize("prepare", PREPARES)
@pytest.mark.parametrize("function", [values, values_in_thread])
def test_L15_a_generator_has_the_value_of_the_preparation(prepare: Any, function: Any) -> None:
    activity = marked(function, name="use", prepare=prepare)

    @hf.workflow
    async def flow() -> list[str]:
        return [value async for value in activity("a")]

    async def scenario() -> None:
        async with engine_of(":memory:", flow, activity) as engine:
            assert await engine.run(flow, id="it") == ["aa", "aa"]
            assert stored(path_of(engine)) == [("COMPLETED", 888_000_003_000_003)]
            check_tables(path_of(engine))

    together(scenario())


@pytest.mark.parametrize("prepare", PREPARES)
@pytest.mark.parametrize("function", [body, body_in_thread])
def test_L3_a_plain_call_is_prepared_as_well(prepare: Any, function: Any) -> None:
    activity = marked(function, name="use", prepare=prepare)
    assert asyncio.run(activity("a", times=3)) == "aaa"
    with pytest.raises(UsageError, match="activity_info"):
        hf.activity_info()


@pytest.mark.parametrize("function", [values, values_in_thread])
def test_L15_a_plain_stream_is_prepared_as_well(function: Any) -> None:
    activity = marked(function, name="use", prepare=get_ready)

    async def all_of() -> list[str]:
        found = [value async for value in activity("a", times=3)]
        with pytest.raises(UsageError, match="activity_info"):
            hf.activity_info()
        return found

    assert asyncio.run(all_of()) == ["aaa", "aaa"]


# ------------------------------------------------------------ the two commits


@pytest.mark.parametrize("max_activities", [100, 1], ids=["eager", "claimed"])
def test_L2_an_attempt_is_preparing_while_it_is_prepared_and_running_before_its_body(
    tmp_path: Path, max_activities: int
) -> None:
    """With one slot, the attempt waits for a claim."""
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        steps = Steps()

        async def start_gpu() -> str:
            steps.seen.append(rows(path, "SELECT state, ledger, started_at_ms FROM attempts WHERE name = 'train'"))
            await steps.go.wait()
            return "cuda:0"

        @hf.activity(prepare=start_gpu, heartbeat=30)
        async def train() -> str:
            steps.seen.append(rows(path, "SELECT state, ledger FROM attempts WHERE name = 'train'"))
            [(started, heard, expires)] = rows(
                path, "SELECT started_at_ms, heartbeat_at_ms, expires_at_ms FROM attempts WHERE name = 'train'"
            )
            assert (started, expires) == (heard, pytest.approx(started + 30_000, abs=500))
            return str(hf.activity_info().prepared)

        @hf.activity
        async def other() -> None:
            await asyncio.sleep(0.01)

        @hf.workflow
        async def flow() -> str:
            _, result = await asyncio.gather(other(), train())
            return result

        async with engine_of(path, flow, train, other, max_activities=max_activities) as engine:
            handle = await engine.start(flow, id="it")
            await until(lambda: steps.seen)
            view = next(each for each in (await handle.describe()).attempts if each.activity == "train")
            assert (view.state, view.started_at) == (AttemptState.PREPARING, None)
            steps.go.set()
            assert await handle.result() == "cuda:0"
            assert steps.seen == [[("PREPARING", ENTERED, None)], [("RUNNING", CONCLUDED)]]
            check_tables(path_of(engine))

    together(scenario())


# ------------------------------------------------------------ failures and deadlines


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
def test_A8_a_preparation_that_fails_is_retried_and_runs_again_with_every_attempt(is_async: bool) -> None:
    """The digits of a failed preparation stay, and the next attempt begins with fresh ones."""
    prepared: list[int] = []

    def start() -> int:
        prepared.append(hf.activity_info().attempt)
        if len(prepared) == 1:
            raise ConnectionError("no machine is free")
        return prepared[-1]

    async def start_async() -> int:
        return start()

    @hf.activity(prepare=start_async if is_async else start, retry=SOON)
    async def train() -> int:
        if hf.activity_info().attempt == 2:
            raise ConnectionError("the machine went away")
        return int(hf.activity_info().prepared)

    async def scenario() -> None:
        flow = calling(train)
        async with engine_of(":memory:", flow, train) as engine:
            assert await engine.run(flow, id="it") == 3
            assert stored(path_of(engine)) == [
                ("FAILED", ENTERED),
                ("FAILED", CONCLUDED),
                ("COMPLETED", 888_000_001_000_001),
            ]
            failures = rows(path_of(engine), "SELECT failures FROM attempts ORDER BY attempt")
            assert failures == [(0,), (1,), (2,)]
            check_tables(path_of(engine))

    together(scenario())
    assert prepared == [1, 2, 3]


@pytest.mark.parametrize("error", [ConnectionError, asyncio.CancelledError], ids=["error", "cancels itself"])
def test_A8_the_last_failed_preparation_is_the_failure_of_the_activity(error: type[BaseException]) -> None:
    async def start_gpu() -> None:
        raise error("no machine is free")

    @hf.activity(prepare=start_gpu, retry=ONCE)
    async def train() -> None:
        raise AssertionError("the body must not begin")

    cause, states, _ = outcome_of(train)
    assert "no machine is free" in str(cause)
    assert states == [AttemptState.FAILED]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
@pytest.mark.parametrize("limit", ["schedule_to_start", "schedule_to_close"])
def test_A5_a_schedule_deadline_expires_an_attempt_that_is_prepared(tmp_path: Path, limit: str, is_async: bool) -> None:
    path = tmp_path / "shop.db"
    may_end = threading.Event()
    stopped: list[str] = []

    async def start_async() -> None:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            stopped.append("prepare")
            raise

    def start() -> None:
        may_end.wait()
        stopped.append("prepare")

    options: Any = {limit: 0.2}

    @hf.activity(prepare=start_async if is_async else start, retry=ONCE, **options)
    async def train() -> None:
        stopped.append("body")

    async def scenario() -> None:
        flow = calling(train)
        async with engine_of(path, flow, train) as engine:
            with pytest.raises(hf.WorkflowFailed) as failed:
                await engine.run(flow, id="it")
            assert isinstance(failed.value.cause, hf.ActivityTimedOut)
            assert f"train was not prepared in time: {limit} is 0.2 s" in str(failed.value.cause)
            assert stored(path) == [("TIMED_OUT", ENTERED)]
            may_end.set()
            await until(lambda: stopped)
            check_tables(path_of(engine))

    together(scenario())
    assert stopped == ["prepare"]


def test_A5_another_worker_expires_an_attempt_whose_worker_does_not(tmp_path: Path) -> None:
    """The worker that prepares it stays alive and does not look at the clock; the deadline is in the store."""
    path = tmp_path / "shop.db"

    async def start_gpu() -> None:
        await asyncio.sleep(3_600)

    @hf.activity(prepare=start_gpu, retry=ONCE, schedule_to_start=0.2)
    async def train() -> None:
        raise AssertionError("the body must not begin")

    async def scenario() -> None:
        flow = calling(train)
        async with engine_of(path, flow, train) as first:
            runtime: Any = inside.worker_of(first)
            runtime.attempts._time_out = print
            runtime.maintenance.round = asyncio.sleep
            handle = await first.start(flow, id="it")
            await until(lambda: rows(path, "SELECT 1 FROM attempts WHERE state = 'PREPARING'"))
            async with engine_of(path, train):
                with pytest.raises(hf.WorkflowFailed, match=r"within its schedule_to_start of 0\.2 s"):
                    await handle.result()
            await until(lambda: not runtime.attempts.running)
            check_tables(path)

    together(scenario())


def test_A5_start_to_close_counts_from_running_and_not_from_the_preparation() -> None:
    start_gpu = pauses(0.3)

    @hf.activity(prepare=start_gpu, start_to_close=0.25, heartbeat=0.25, schedule_to_start=5, retry=ONCE)
    async def train() -> str:
        await asyncio.sleep(0.1)
        return "done"

    @hf.activity(prepare=start_gpu, start_to_close=0.05, retry=ONCE)
    async def slow() -> str:
        await asyncio.sleep(3_600)
        return "done"

    async def scenario() -> None:
        flow, slowly = calling(train), calling(slow)
        async with engine_of(":memory:", flow, train) as engine:
            assert await engine.run(flow, id="it") == "done"
        async with engine_of(":memory:", slowly, slow) as engine:
            with pytest.raises(hf.WorkflowFailed, match=r"slow did not answer in time: start_to_close is 0\.05 s"):
                await engine.run(slowly, id="it")
            assert stored(path_of(engine)) == [("TIMED_OUT", CONCLUDED)]

    together(scenario())


def test_A6_a_heartbeat_of_a_preparation_is_not_recorded_and_reaches_the_next_attempt_with_the_body() -> None:
    async def start_gpu() -> None:
        hf.heartbeat("half")
        await pauses(0.01)()

    @hf.activity(prepare=start_gpu, heartbeat=30, retry=SOON)
    async def train() -> str:
        info = hf.activity_info()
        if info.attempt == 1:
            hf.heartbeat()
            await asyncio.sleep(0.02)
            raise ConnectionError
        return str(info.details)

    async def scenario() -> None:
        flow = calling(train)
        async with engine_of(":memory:", flow, train) as engine:
            assert await engine.run(flow, id="it") == "half"
            check_tables(path_of(engine))

    together(scenario())


# ------------------------------------------------------------ code that changes, and tests


def test_G8_an_activity_that_lost_or_gained_its_preparation_runs_what_was_scheduled_before(tmp_path: Path) -> None:
    """The options are stored with the attempt; the code of the worker that runs it decides what is prepared."""

    async def start_gpu() -> str:
        return "cuda:0"

    async def train() -> str:
        return str(hf.activity_info().prepared)

    with_it = hf.activity(prepare=start_gpu)(train)
    without = hf.activity(train)

    async def scenario(before: Any, after: Any, expected: str) -> None:
        path = tmp_path / f"{expected}.db"
        async with engine_of(path, calling(before), before, queues=["other"]) as engine:
            await engine.start("flow", id="it")
            await until(lambda: stored(path) == [("READY", 999_000_000_000_000)])
        async with engine_of(path, calling(after), after) as engine:
            assert await engine.get("it").result() == expected
        check_tables(path)

    together(scenario(with_it, without, "None"))
    together(scenario(without, with_it, "cuda:0"))


def test_a_replaced_body_is_not_prepared() -> None:
    async def start_gpu() -> str:
        raise AssertionError("tests have no machine")

    @hf.activity(prepare=start_gpu)
    async def train() -> str:
        return str(hf.activity_info().prepared)

    async def fake() -> str:
        return "fake"

    flow = calling(train)

    async def scenario() -> None:
        async with skipping(train, flow, replace={train: fake}) as env:
            assert await env.run(flow) == "fake"

    together(scenario())


# ------------------------------------------------------------ declarations


async def takes_both(url: str, *, size: int = 1) -> None:
    del url, size


def takes_anything(*args: Any, **kwargs: Any) -> None:
    del args, kwargs


def takes_more(url: str, colour: str = "red", *, size: int = 1) -> None:
    del url, colour, size


def takes_nothing() -> None: ...


def takes_too_much(url: str, colour: str, *, size: int = 1) -> None:
    del url, colour, size


def takes_all(url: str, *, size: int) -> None:
    del url, size


def calls_it_otherwise(address: str, *, size: int = 1) -> None:
    del address, size


def yields(url: str, *, size: int = 1) -> Iterator[int]:
    del url
    yield size


@pytest.mark.parametrize("prepare", [takes_both, takes_anything, takes_more])
def test_a_preparation_takes_the_arguments_of_the_activity(prepare: Any) -> None:
    @hf.activity(prepare=prepare)
    async def fetch(url: str, *, size: int = 1) -> None:
        del url, size

    assert fetch.options.prepares


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (takes_nothing, "takes_nothing() -> None does not take those of"),
        (takes_too_much, "missing a required argument: 'colour'"),
        (takes_all, "missing a required"),
        (calls_it_otherwise, "missing a required argument: 'address'"),
        (yields, "takes a function that returns a value, and yields yields"),
        (hf.activity(takes_both), "pass takes_both.fn"),
        ("start", "is not a function"),
    ],
)
def test_a_preparation_that_cannot_take_them_is_refused_where_it_is_declared(prepare: Any, message: str) -> None:
    async def fetch(url: str, *, size: int = 1) -> None:
        del url, size

    with pytest.raises(InvalidOption, match=re.escape(message)):
        hf.activity(prepare=prepare)(fetch)


def test_a_preparation_with_the_arguments_in_another_order_is_refused() -> None:
    async def start(b: int, a: int) -> None:
        del a, b

    async def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(InvalidOption, match="parameter 'b' would receive the argument 'a'"):
        hf.activity(prepare=start)(add)


def test_a_preparation_for_a_process_is_refused() -> None:
    def add(url: str, *, size: int = 1) -> None:
        del url, size

    with pytest.raises(InvalidOption, match="with process=True prepare in the body itself"):
        hf.activity(prepare=takes_both, process=True)(add)
