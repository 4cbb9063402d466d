"""asyncio's own tools work in a workflow, and each time-out is exactly one durable timer."""

import asyncio
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest
from tests.unit.replay.driver import Run, after, fail_after, finish


async def with_timeout() -> None:
    async with asyncio.timeout(5):
        await asyncio.Event().wait()


async def with_timeout_at() -> None:
    async with asyncio.timeout_at(asyncio.get_running_loop().time() + 5):
        await asyncio.Event().wait()


async def with_wait_for() -> None:
    await asyncio.wait_for(asyncio.Event().wait(), 5)


async def with_wait() -> None:
    done, pending = await asyncio.wait([asyncio.create_task(asyncio.Event().wait())], timeout=5)
    assert not done
    pending.pop().cancel()
    raise TimeoutError


async def with_as_completed() -> None:
    for nearest in asyncio.as_completed([asyncio.Event().wait()], timeout=5):
        await nearest


FORMS = [with_timeout, with_timeout_at, with_wait_for, with_wait, with_as_completed]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_time_out_is_one_durable_timer(form: Callable[[], Any]) -> None:
    run = Run(form)
    assert run.host.heard == [("started", 1, 5.0)]
    run.fire(1)
    assert isinstance(run.main.exception(), TimeoutError)
    assert run.host.heard == [("started", 1, 5.0)]


async def in_timeout(awaitable: Awaitable[Any]) -> Any:
    async with asyncio.timeout(5):
        return await awaitable


async def in_wait(awaitable: Awaitable[Any]) -> Any:
    done, _ = await asyncio.wait([asyncio.ensure_future(awaitable)], timeout=5)
    return done.pop().result()


async def in_as_completed(awaitable: Awaitable[Any]) -> Any:
    (nearest,) = asyncio.as_completed([awaitable], timeout=5)
    return await nearest


@pytest.mark.parametrize("form", [in_timeout, functools.partial(asyncio.wait_for, timeout=5), in_wait, in_as_completed])
def test_a_time_out_that_is_not_needed_is_cancelled_once(form: Callable[[Awaitable[Any]], Any]) -> None:
    run = Run(lambda: form(after(1, "in time")))
    timers = run.loop.pending_timers
    assert sorted(timers.values()) == [1.0, 5.0]
    assert run.finish() == "in time"
    (limit,) = (number for number, due_at in timers.items() if due_at == 5.0)
    assert run.host.heard[2:] == [("cancelled", limit)]


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_time_out_of_zero_is_no_timer_and_times_out(timeout: float) -> None:
    began: list[int] = []

    async def begin() -> None:
        began.append(1)

    async def workflow() -> list[str]:
        outcomes: list[str] = []
        try:
            await asyncio.wait_for(begin(), timeout)
        except TimeoutError:
            outcomes.append("wait_for")
        try:
            async with asyncio.timeout(timeout):
                await asyncio.Event().wait()
        except TimeoutError:
            outcomes.append("timeout")
        return outcomes

    run = Run(workflow)
    assert run.main.result() == ["wait_for", "timeout"]
    assert began == []
    assert run.host.heard == []


def test_wait_for_zero_returns_the_result_of_a_future_that_is_done() -> None:
    async def workflow() -> str:
        ready = asyncio.get_running_loop().create_future()
        ready.set_result("ready")
        return str(await asyncio.wait_for(ready, 0))

    assert finish(workflow) == "ready"


def test_gather_returns_results_in_the_order_of_its_arguments() -> None:
    async def workflow() -> Any:
        return await asyncio.gather(after(3, "a"), after(1, "b"), after(2, "c"))

    assert finish(workflow) == ["a", "b", "c"]


def test_gather_of_nothing_and_of_duplicates() -> None:
    async def workflow() -> Any:
        twin = asyncio.create_task(after(1, "twin"))
        return [await asyncio.gather(), await asyncio.gather(twin, after(1, "other"), twin)]

    assert finish(workflow) == [[], ["twin", "other", "twin"]]


def test_gather_returns_exceptions_when_asked() -> None:
    async def workflow() -> Any:
        cancelled = asyncio.create_task(after(9))
        cancelled.cancel()
        return await asyncio.gather(after(1, "a"), fail_after(2, KeyError("b")), cancelled, return_exceptions=True)

    value, error, cancellation = finish(workflow)
    assert value == "a"
    assert isinstance(error, KeyError)
    assert isinstance(cancellation, asyncio.CancelledError)


def test_gather_raises_the_first_failure_and_leaves_the_others_running() -> None:
    async def workflow() -> Any:
        other = asyncio.create_task(after(3, "other"))
        with pytest.raises(KeyError):
            await asyncio.gather(other, fail_after(1, KeyError("first")), fail_after(2, ValueError("second")))
        return await other

    run = Run(workflow)
    assert run.finish() == "other"
    assert run.loop.cancel_left_over(run.main) == []
    assert run.host.reports == []


def test_cancelling_a_gather_cancels_its_members() -> None:
    async def workflow() -> list[bool]:
        members = [asyncio.create_task(after(9)), asyncio.create_task(after(8))]
        gathered = asyncio.gather(*members, return_exceptions=True)
        await asyncio.sleep(0)
        gathered.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gathered
        return [member.cancelled() for member in members]

    assert finish(workflow) == [True, True]


def test_a_gather_in_a_wait_for_the_first() -> None:
    async def workflow() -> Any:
        slow = asyncio.gather(after(5, 1), after(6, 2))
        quick = asyncio.gather(after(1, 3), asyncio.gather(after(2, 4), after(1, 5)))
        done, pending = await asyncio.wait({slow, quick}, return_when=asyncio.FIRST_COMPLETED)
        assert pending == {slow}
        slow.cancel()
        return [future.result() for future in done]

    run = Run(workflow)
    assert run.finish() == [[3, [4, 5]]]
    assert run.loop.cancel_left_over(run.main) == []


def test_sets_from_wait_iterate_in_the_order_of_creation() -> None:
    async def workflow() -> list[int]:
        tasks = [asyncio.create_task(after(1, number)) for number in range(40)]
        done, _ = await asyncio.wait(reversed(tasks))
        return [task.result() for task in done]

    assert finish(workflow) == finish(workflow)


def test_a_task_group_cancels_the_others_when_one_fails() -> None:
    ended: list[str] = []

    async def stay(name: str) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(name)

    async def workflow() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(stay("a"))
            group.create_task(fail_after(1, KeyError("failed")))
            group.create_task(stay("b"))
            await stay("body")

    run = Run(workflow)
    with pytest.raises(ExceptionGroup) as caught:
        run.finish()
    assert [type(error) for error in caught.value.exceptions] == [KeyError]
    assert ended == ["a", "b", "body"]
    assert run.main.cancelling() == 0


def test_a_task_group_cancelled_from_outside_ends_cancelled() -> None:
    async def workflow() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(after(5))
            group.create_task(after(6))

    run = Run(workflow)
    run.main.cancel()
    run.loop.run_until_idle()
    assert run.main.cancelled()
    assert run.loop.pending_timers == {}


def test_a_task_group_whose_member_fails_while_it_is_cancelled_continues_in_its_handler() -> None:
    async def fail_on_cancel() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            raise KeyError("clean-up")

    async def workflow() -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail_on_cancel())
        except* KeyError:
            await asyncio.sleep(1)
        return "handled"

    run = Run(workflow)
    run.main.cancel()
    run.loop.run_until_idle()
    assert run.finish() == "handled"
    assert run.main.cancelling() == 1


def test_shield_keeps_its_inside_running() -> None:
    async def workflow() -> Any:
        inner = asyncio.create_task(after(5, "kept"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(inner), 1)
        return await inner

    assert finish(workflow) == "kept"


def test_a_queue_between_tasks() -> None:
    async def workflow() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)
        got: list[int] = []

        async def produce() -> None:
            for number in range(6):
                await queue.put(number)

        async def consume() -> None:
            while True:
                got.append(await queue.get())
                await asyncio.sleep(1)
                queue.task_done()

        async with asyncio.TaskGroup() as group:
            consumers = [group.create_task(consume()) for _ in range(2)]
            await group.create_task(produce())
            await queue.join()
            for consumer in consumers:
                consumer.cancel()
        return got

    assert finish(workflow) == [0, 1, 2, 3, 4, 5]


def test_locks_semaphores_events_and_conditions_between_tasks() -> None:
    async def workflow() -> list[str]:
        lock, semaphore, event, condition = (
            asyncio.Lock(),
            asyncio.Semaphore(2),
            asyncio.Event(),
            asyncio.Condition(),
        )
        order: list[str] = []

        async def take(name: str) -> None:
            await event.wait()
            async with semaphore, lock:
                order.append(name)
                await asyncio.sleep(1)
            async with condition:
                condition.notify()

        tasks = [asyncio.create_task(take(name)) for name in "abcd"]
        await asyncio.sleep(1)
        event.set()
        async with condition:
            await condition.wait()
            order.append("notified")
        await asyncio.gather(*tasks)
        return order

    assert finish(workflow) == ["a", "b", "notified", "c", "d"]


def test_a_semaphore_hands_the_place_of_a_cancelled_waiter_to_the_next() -> None:
    async def workflow() -> list[str]:
        semaphore = asyncio.Semaphore(1)
        order: list[str] = []

        async def take(name: str) -> None:
            async with semaphore:
                order.append(name)

        await semaphore.acquire()
        tasks = [asyncio.create_task(take(name)) for name in "abc"]
        await asyncio.sleep(0)
        semaphore.release()
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not semaphore.locked()
        return order

    assert finish(workflow) == ["b", "c"]


def test_as_completed_yields_in_the_order_of_completion() -> None:
    async def workflow() -> tuple[list[str], list[str]]:
        plain = [await nearest for nearest in asyncio.as_completed([after(3, "c"), after(1, "a"), after(2, "b")])]
        tasks = [asyncio.create_task(after(2, "y")), asyncio.create_task(after(1, "x"))]
        completed: Any = asyncio.as_completed(tasks)
        futures: list[asyncio.Future[str]] = [future async for future in completed]
        assert futures == tasks[::-1]
        return plain, [future.result() for future in futures]

    assert finish(workflow) == (["a", "b", "c"], ["x", "y"])


def test_as_completed_times_out_for_everything_that_is_left() -> None:
    async def workflow() -> list[str]:
        outcomes: list[str] = []
        for nearest in asyncio.as_completed([after(1, "a"), after(8), after(9)], timeout=5):
            try:
                outcomes.append(await nearest)
            except TimeoutError:
                outcomes.append("late")
        return outcomes

    run = Run(workflow)
    assert run.finish() == ["a", "late", "late"]
    assert run.loop.cancel_left_over(run.main) == []


def test_async_generators_and_context_managers_work() -> None:
    async def ticks(count: int) -> AsyncGenerator[int, None]:
        for number in range(count):
            await asyncio.sleep(1)
            yield number

    async def workflow() -> tuple[list[int], float]:
        return [number async for number in ticks(3)], asyncio.get_running_loop().time()

    assert finish(workflow) == ([0, 1, 2], 3.0)
