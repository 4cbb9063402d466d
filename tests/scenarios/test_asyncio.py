"""Plain asyncio in workflow code, through the real engine: warm, and rebuilt by replay at every message (cache 0)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.scenarios.support import finish

import holdfast as hf

LATER = 0.02


@hf.activity(retry=hf.Retry(attempts=1))
async def echo(value: str, seconds: float = 0) -> str:
    await asyncio.sleep(seconds)
    return value


@hf.activity(retry=hf.Retry(attempts=1))
async def broken(message: str) -> str:
    raise ValueError(message)


@pytest.fixture(params=[100, 0], ids=["warm", "cache-0"])
def cache_size(request: pytest.FixtureRequest) -> int:
    size: int = request.param
    return size


def run(workflow: hf.Workflow[..., Any], cache_size: int) -> Any:
    return finish(workflow, echo, broken, cache_size=cache_size)


def test_sleep_moves_the_workflows_time(cache_size: int) -> None:
    @hf.workflow
    async def flow() -> float:
        before = hf.now()
        await asyncio.sleep(LATER)
        await asyncio.sleep(0)
        return (hf.now() - before).total_seconds()

    assert run(flow, cache_size) >= LATER


def test_five_forms_of_timeout_are_one_timer_each_and_none_is_left(cache_size: int) -> None:
    @hf.workflow
    async def flow() -> list[str]:
        async def never() -> None:
            await asyncio.Event().wait()

        outcomes: list[str] = []
        try:
            async with asyncio.timeout(LATER):
                await never()
        except TimeoutError:
            outcomes.append("timeout")
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + LATER):
                await never()
        except TimeoutError:
            outcomes.append("timeout_at")
        try:
            await asyncio.wait_for(never(), LATER)
        except TimeoutError:
            outcomes.append("wait_for")
        done, pending = await asyncio.wait([asyncio.create_task(never())], timeout=LATER)
        outcomes.append(f"wait {len(done)} {len(pending)}")
        try:
            for first in asyncio.as_completed([never()], timeout=LATER):
                await first
        except TimeoutError:
            outcomes.append("as_completed")
        return outcomes

    assert run(flow, cache_size) == ["timeout", "timeout_at", "wait_for", "wait 0 1", "as_completed"]


def test_a_timeout_that_is_not_needed_leaves_no_timer(cache_size: int) -> None:
    @hf.workflow
    async def flow() -> str:
        async with asyncio.timeout(3600):
            return await echo("in time")

    assert run(flow, cache_size) == "in time"


def test_gather_keeps_the_order_and_returns_exceptions(cache_size: int) -> None:
    @hf.workflow
    async def flow() -> list[str]:
        found = await asyncio.gather(echo("slow", LATER), broken("no"), echo("fast"), return_exceptions=True)
        return [repr(value) for value in found]

    assert run(flow, cache_size) == ["'slow'", "ValueError('no')", "'fast'"]


def test_gather_raises_the_first_error_and_the_others_go_on(cache_size: int) -> None:
    @hf.workflow
    async def flow() -> list[str]:
        other = asyncio.ensure_future(echo("still here", LATER))
        try:
            await asyncio.gather(other, broken("no"))
        except ValueError as error:
            return [str(error), await other]
        return []

    assert run(flow, cache_size) == ["no", "still here"]


def test_nested_gather_in_wait_first_completed(cache_size: int) -> None:
    @hf.workflow
    async def flow() -> list[Any]:
        async def both(*texts: str) -> list[str]:
            return list(await asyncio.gather(*(echo(text) for text in texts)))

        fast = asyncio.create_task(both("a", "b"), name="fast")
        slow = asyncio.create_task(asyncio.sleep(3600), name="slow")
        done, pending = await asyncio.wait([fast, slow], return_when=asyncio.FIRST_COMPLETED)
        return [[task.get_name() for task in group] for group in (done, pending)] + [await fast]

    assert run(flow, cache_size) == [["fast"], ["slow"], ["a", "b"]]


def test_as_completed_gives_results_in_the_order_they_came(cache_size: int) -> None:
    @hf.workflow
    async def flow() -> list[str]:
        waits = (0.06, 0.0, 0.03)
        return [await first for first in asyncio.as_completed([echo(f"after {wait}", wait) for wait in waits])]

    assert run(flow, cache_size) == ["after 0.0", "after 0.03", "after 0.06"]


def test_a_failing_member_of_a_task_group_cancels_the_others(cache_size: int) -> None:
    @hf.workflow
    async def flow() -> list[str]:
        seen: list[str] = []

        async def sleeper() -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                seen.append("sleeper was cancelled")
                raise

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(sleeper())
                group.create_task(echo("never mind", 3600))
                group.create_task(broken("no"))
        except* ValueError as errors:
            seen += [str(error) for error in errors.exceptions]
        return seen

    assert run(flow, cache_size) == ["sleeper was cancelled", "no"]


def test_a_shielded_activity_outlives_the_timeout_around_it(cache_size: int) -> None:
    @hf.workflow
    async def flow() -> list[str]:
        inner = asyncio.ensure_future(echo("kept", 0.1))
        seen: list[str] = []
        try:
            async with asyncio.timeout(LATER):
                await asyncio.shield(inner)
        except TimeoutError:
            seen.append("timed out")
        return [*seen, await inner]

    assert run(flow, cache_size) == ["timed out", "kept"]


def test_event_queue_lock_and_semaphore_work_between_tasks(cache_size: int) -> None:
    @hf.workflow
    async def flow() -> list[Any]:
        queue: asyncio.Queue[str | None] = asyncio.Queue(maxsize=1)
        lock, gate, ready = asyncio.Lock(), asyncio.Semaphore(2), asyncio.Event()
        inside = most = 0
        order: list[str] = []

        async def produce() -> None:
            await ready.wait()
            for text in ("a", "b", "c"):
                await queue.put(await echo(text))
            await queue.put(None)

        async def use(number: int) -> None:
            nonlocal inside, most
            async with gate:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(LATER / 2)
                inside -= 1
            async with lock:
                order.append(await echo(f"use {number}"))

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            for number in range(4):
                group.create_task(use(number))
            ready.set()
            taken: list[str] = []
            while (text := await queue.get()) is not None:
                taken.append(text)
        return [taken, most, sorted(order)]

    assert run(flow, cache_size) == [["a", "b", "c"], 2, ["use 0", "use 1", "use 2", "use 3"]]


def test_G14_left_over_tasks_are_cancelled_and_clean_up_before_the_end(cache_size: int) -> None:
    @hf.workflow
    async def flow() -> list[str]:
        seen: list[str] = []

        async def cleans_up() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                seen.append("cleaned up")

        left_over = asyncio.create_task(cleans_up())
        await echo("something")
        assert not left_over.done()
        return seen

    assert run(flow, cache_size) == ["cleaned up"]


def test_G14_the_clean_up_of_a_left_over_task_may_take_several_durable_steps(cache_size: int) -> None:
    compensated: list[str] = []

    @hf.activity
    async def compensate(step: str) -> None:
        await asyncio.sleep(0)
        compensated.append(step)

    @hf.workflow
    async def flow() -> str:
        async def cleans_up() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                await compensate("first")
                await compensate("second")
                await asyncio.sleep(LATER)
                await compensate("third")

        left_over = asyncio.create_task(cleans_up())
        await echo("something")
        return str(left_over.done())

    assert finish(flow, echo, compensate, cache_size=cache_size) == "False"
    assert compensated == ["first", "second", "third"]


def test_G14_a_clean_up_may_compensate_side_by_side(cache_size: int) -> None:
    compensated: list[str] = []

    @hf.activity
    async def compensate(step: str) -> None:
        await asyncio.sleep(0)
        compensated.append(step)

    @hf.workflow
    async def flow() -> str:
        async def cleans_up() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                await asyncio.gather(compensate("hotel"), compensate("flight"))
                async with asyncio.TaskGroup() as group:
                    group.create_task(compensate("car"))
                    group.create_task(compensate("train"))

        left_over = asyncio.create_task(cleans_up())
        await echo("something")
        return str(left_over.done())

    assert finish(flow, echo, compensate, cache_size=cache_size) == "False"
    assert sorted(compensated) == ["car", "flight", "hotel", "train"]


def test_a_saga_compensates_in_except_and_finally_blocks(cache_size: int) -> None:
    undone: list[str] = []

    @hf.activity
    async def undo(step: str) -> None:
        undone.append(step)

    @hf.workflow
    async def flow() -> str:
        booked: list[str] = []
        try:
            for step in ("hotel", "flight"):
                booked.append(await echo(step))
            await broken("no car")
        except ValueError as error:
            return str(error)
        finally:
            for step in reversed(booked):
                await undo(step)
        return "booked"

    assert finish(flow, echo, broken, undo, cache_size=cache_size) == "no car"
    assert undone == ["flight", "hotel"]


def test_a_loop_over_an_async_generator_of_the_workflow_is_durable(cache_size: int) -> None:
    @hf.workflow
    async def flow() -> list[str]:
        async def texts() -> AsyncIterator[str]:
            for text in ("a", "b", "c"):
                yield await echo(text)

        found: list[str] = []
        async for text in texts():
            found.append(text)
            if text == "b":
                break
        return found

    assert run(flow, cache_size) == ["a", "b"]


def test_a_workflow_that_cancels_its_own_main_task_fails(cache_size: int) -> None:
    @hf.workflow
    async def flow() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel("enough")
        await asyncio.sleep(1)

    with pytest.raises(hf.WorkflowFailed):
        run(flow, cache_size)


@pytest.mark.parametrize("count", [200])
def test_a_wide_fan_out_gives_every_result_once(cache_size: int, count: int) -> None:
    ran: list[int] = []

    @hf.activity
    async def square(number: int) -> int:
        ran.append(number)
        return number * number

    @hf.workflow
    async def flow() -> int:
        return sum(await asyncio.gather(*(square(number) for number in range(count))))

    assert finish(flow, square, cache_size=cache_size, max_activities=7) == sum(n * n for n in range(count))
    assert sorted(ran) == list(range(count))
