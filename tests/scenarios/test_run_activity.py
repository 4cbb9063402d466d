"""``holdfast.testing.run_activity``: a body without an engine (A13)."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest
from tests.scenarios.support import engine_of, together

import holdfast as hf
from holdfast.errors import ArgumentError, InvalidOption, PayloadError, UsageError
from holdfast.testing import ActivityRun, run_activity


@dataclass
class Page:
    url: str
    size: int = 1


@hf.activity
async def fetch(page: Page, first: int = 0) -> list[Page]:
    begun = hf.activity_info().details
    for number in range(first if begun is None else begun["next"], page.size):
        hf.heartbeat({"next": number + 1})
        await asyncio.sleep(0)
    return [page]


@hf.activity
def count(upto: int) -> int:
    for number in range(upto):
        hf.heartbeat(number)
    return upto


@hf.activity
async def story(words: int) -> AsyncIterator[str]:
    for number in range(words):
        yield f"word {number}"


@hf.activity
def numbers(upto: int) -> Iterator[int]:
    yield from range(upto)


@hf.activity
async def cleans_up() -> str:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        hf.heartbeat("cleaning")
        return "cleaned"
    return "slept"


@hf.activity
async def tells() -> list[Any]:
    info = hf.activity_info()
    return [info.activity, info.attempt, info.queue, info.details, info.is_cancelled, hf.idempotency_key()]


async def ready(word: str) -> str:
    return f"{word} {hf.activity_info().activity}"


@hf.activity(prepare=ready)
def prepared(word: str) -> str:
    return (
        f"{hf.activity_info().prepared} {hf.context(Page).url} in a thread: {threading.current_thread().name != word}"
    )


@hf.activity(process=True)
def in_process() -> str:
    hf.heartbeat()
    return str(hf.context())


@hf.activity
async def breaks() -> object:
    hf.heartbeat(1)
    raise LookupError("nothing")


@hf.activity
async def returns_a_lock() -> object:
    return threading.Lock()


@hf.activity(external=True, start_to_close=1)
async def elsewhere() -> int:
    raise NotImplementedError


STOPPED: Any = None
"""The result of a body that was cancelled."""


def test_A13_it_gives_the_result_and_the_heartbeats() -> None:
    async def scenario() -> None:
        run = await run_activity(fetch, Page("a", 2))
        assert run == ActivityRun([Page("a", 2)], ({"next": 1}, {"next": 2}), is_cancelled=False)
        assert (await run_activity(count, 3)) == ActivityRun(3, (0, 1, 2), is_cancelled=False)
        with pytest.raises(FrozenInstanceError):
            run.is_cancelled = True  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]

    together(scenario())


def test_A13_the_details_of_the_attempt_before_are_there() -> None:
    async def scenario() -> None:
        assert (await run_activity(fetch, Page("a", 3), heartbeat_details={"next": 2})).heartbeats == ({"next": 3},)
        told = await run_activity(tells)
        assert told.result == ["tells", 1, "default", None, False, "run_activity/1/1/0"]
        assert (await run_activity(tells, heartbeat_details=[1, 2])).result[1:4] == [2, "default", [1, 2]]

    together(scenario())


def test_A13_a_generator_gives_its_values() -> None:
    async def scenario() -> None:
        assert (await run_activity(story, 2)).result == ["word 0", "word 1"]
        assert (await run_activity(numbers, 3)).result == [0, 1, 2]
        for stopped in (await run_activity(story, 9, cancel_after=2), await run_activity(numbers, 9, cancel_after=2)):
            assert stopped == ActivityRun(STOPPED, (), is_cancelled=True)

    together(scenario())


def test_A13_cancel_after_counts_heartbeats() -> None:
    async def scenario() -> None:
        assert await run_activity(count, 9, cancel_after=2) == ActivityRun(STOPPED, (0, 1), is_cancelled=True)
        assert await run_activity(count, 2, cancel_after=2) == ActivityRun(2, (0, 1), is_cancelled=False)
        assert await run_activity(count, 9, cancel_after=0) == ActivityRun(STOPPED, (), is_cancelled=True)
        stopped = await run_activity(fetch, Page("a", 9), cancel_after=1)
        assert stopped == ActivityRun(STOPPED, ({"next": 1},), is_cancelled=True)
        assert await run_activity(cleans_up, cancel_after=0) == ActivityRun(
            "cleaned", ("cleaning",), is_cancelled=False
        )
        assert (await run_activity(tells, cancel_after=0)).result[4] is True

    together(scenario())


def test_A13_prepare_context_and_process_work_as_in_a_worker() -> None:
    async def scenario() -> None:
        run = await run_activity(prepared, "MainThread", context=Page("x"))
        assert run.result == "MainThread prepared x in a thread: True"
        with pytest.raises(UsageError, match="this worker has no context"):
            await run_activity(prepared, "a")
        with pytest.raises(UsageError, match="in_process has process=True"):
            await run_activity(in_process, context=Page("x"))

    together(scenario())


def test_A13_errors_are_those_of_the_body_and_of_the_worker() -> None:
    async def scenario() -> None:
        with pytest.raises(LookupError, match="nothing"):
            await run_activity(breaks)
        with pytest.raises(PayloadError, match="the result of returns_a_lock"):
            await run_activity(returns_a_lock)
        call: Any = run_activity
        with pytest.raises(ArgumentError):
            await call(fetch)
        with pytest.raises(UsageError, match="is external and has no body here"):
            await run_activity(elsewhere)
        with pytest.raises(UsageError, match=r"is not marked with @hf\.activity"):
            await call(ready, "a")
        with pytest.raises(InvalidOption, match="cancel_after"):
            await run_activity(count, 1, cancel_after=-1)

    together(scenario())


def test_A13_cancelling_the_caller_cancels_the_body() -> None:
    async def scenario() -> None:
        begun = asyncio.Event()

        @hf.activity
        async def waits() -> None:
            begun.set()
            await asyncio.sleep(3600)

        running = asyncio.create_task(run_activity(waits))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    together(scenario())


def test_A13_the_result_is_that_of_an_engine() -> None:
    @hf.workflow
    async def all_of_them() -> list[Any]:
        told = [word async for word in story(2)] + [str(number) async for number in numbers(2)]
        return [[page.url for page in await fetch(Page("a", 2))], await count(3), told]

    async def scenario() -> None:
        async with engine_of(":memory:", all_of_them, fetch, count, story, numbers) as engine:
            pages, counted, told = await engine.run(all_of_them)
        assert pages == [page.url for page in (await run_activity(fetch, Page("a", 2))).result]
        assert counted == (await run_activity(count, 3)).result
        words = (await run_activity(story, 2)).result
        assert told == [*words, *map(str, (await run_activity(numbers, 2)).result)]

    together(scenario())
