"""Eviction tears a workflow down in a fixed order, without any effect outside and without noise (G11)."""

import asyncio
import contextvars
import gc
from collections.abc import AsyncGenerator, Awaitable, Iterator
from typing import Any

import pytest
from tests.unit.replay.driver import Run, after

from holdfast.errors import InvariantBroken
from holdfast.replay.loop.event_loop import WorkflowLoop
from holdfast.replay.loop.tasks import Evicted


@pytest.fixture(autouse=True)
def _no_noise_from_the_collector() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Warnings are errors and unraisable exceptions are failures, also those that only a collection shows."""
    yield
    gc.collect()


def test_evicted_is_thrown_into_every_task_youngest_first() -> None:
    ended: list[tuple[str, str]] = []

    async def stay(name: str) -> None:
        try:
            await asyncio.sleep(100)
        except BaseException as error:
            ended.append((name, type(error).__name__))
            raise

    async def workflow() -> None:
        others = [asyncio.create_task(stay(name)) for name in "ab"]
        await stay("main")
        await asyncio.gather(*others)

    run = Run(workflow)
    heard = list(run.host.heard)
    assert run.loop.evict() == []
    assert ended == [("b", "Evicted"), ("a", "Evicted"), ("main", "Evicted")]
    assert run.host.heard == heard
    assert run.host.reports == []
    assert run.loop.is_closed()
    assert run.loop.evict() == []
    with pytest.raises(InvariantBroken, match="evicted"):
        run.loop.run_until_idle()


def test_every_await_in_a_finally_is_evicted_again_and_plain_python_runs() -> None:
    did: list[str] = []

    async def workflow() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            did.append("plain")
            try:
                await asyncio.sleep(1)
            except Evicted:
                did.append("again")
            try:
                asyncio.create_task(after(1))  # noqa: RUF006 - it is refused
            except Evicted:
                did.append("no task")
            asyncio.get_running_loop().call_later(1, did.append, "never")
            asyncio.get_running_loop().call_soon(did.append, "never")
            try:
                loop = asyncio.get_running_loop()
                assert isinstance(loop, WorkflowLoop)
                loop.check_evicted()
            finally:
                did.append("end")

    run = Run(workflow)
    assert run.loop.evict() == []
    assert did == ["plain", "again", "no task", "end"]
    assert run.host.heard == [("started", 1, 100.0)]


def test_a_workflow_inside_every_tool_of_asyncio_is_torn_down_silently() -> None:
    async def group() -> None:
        async with asyncio.timeout(5), asyncio.TaskGroup() as members:
            members.create_task(after(3))
            members.create_task(asyncio.wait_for(after(3), 2))
            await asyncio.sleep(4)

    async def condition() -> None:
        signal = asyncio.Condition()
        async with signal:
            await signal.wait()

    async def iterate() -> None:
        for nearest in asyncio.as_completed([after(1), after(2)], timeout=9):
            await nearest

    async def workflow() -> None:
        semaphore = asyncio.Semaphore(1)
        await semaphore.acquire()
        members: list[Awaitable[Any]] = [
            *(group(), condition(), iterate(), semaphore.acquire(), asyncio.Queue[int]().get()),
            asyncio.shield(after(7)),
            asyncio.wait([asyncio.create_task(after(8))], timeout=3),
            asyncio.gather(after(1), after(2)),
        ]
        await asyncio.gather(*members)

    run = Run(workflow)
    heard = list(run.host.heard)
    assert run.loop.evict() == []
    assert run.host.heard == heard
    assert run.loop.pending_timers == {}


def test_tasks_that_never_began_and_coroutines_never_awaited_make_no_warning() -> None:
    async def workflow() -> None:
        later = [after(1), after(2)]
        one = after(3)
        asyncio.get_running_loop().create_task(after(4))
        await asyncio.gather(after(5), asyncio.sleep(9))
        await asyncio.gather(one, *later)

    assert Run(workflow).loop.evict() == []
    unstarted = WorkflowLoop(Run(lambda: after(0)).host)
    unstarted.create_task(after(1))
    assert unstarted.evict() == []


def test_an_async_generator_is_closed_and_its_awaits_are_evicted() -> None:
    did: list[str] = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            yield 1
            yield 2
        finally:
            did.append("closing")
            try:
                await asyncio.sleep(5)
            finally:
                did.append("closed")

    async def workflow() -> None:
        abandoned = numbers()
        await anext(abandoned)
        async for _ in numbers():
            await asyncio.sleep(1)

    run = Run(workflow)
    heard = list(run.host.heard)
    assert run.loop.evict() == []
    assert did == ["closing", "closed"] * 2
    assert run.host.heard == heard


def test_a_generator_that_yields_while_it_is_closed_is_dropped() -> None:
    async def stubborn() -> AsyncGenerator[int, None]:
        while True:
            try:
                yield 1
            except GeneratorExit:
                yield 2

    async def workflow() -> None:
        generator = stubborn()
        await anext(generator)
        await asyncio.sleep(1)

    assert len(Run(workflow).loop.evict()) == 1


def test_a_coroutine_that_will_not_end_is_named_and_never_resumed() -> None:
    caught: list[int] = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(1)
            except BaseException:
                caught.append(1)
                if len(caught) > 100:  # Python closes it when the process ends; then it may
                    raise

    run = Run(stubborn)
    assert run.loop.evict() == ["main"]
    count = len(caught)
    assert count == 100
    del run
    gc.collect()
    assert len(caught) == count


def test_an_error_in_a_finally_is_swallowed() -> None:
    async def workflow() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            raise ValueError("while being evicted")

    run = Run(workflow)
    assert run.loop.evict() == []
    assert run.host.reports == []


def test_an_unhandled_failure_is_not_reported_after_eviction() -> None:
    async def fail() -> None:
        raise ValueError("lost")

    async def workflow() -> None:
        failed = asyncio.create_task(fail())
        await asyncio.sleep(1)
        await failed

    run = Run(workflow)
    run.loop.evict()
    host = run.host
    del run
    gc.collect()
    assert host.reports == []


def test_the_finally_of_an_evicted_task_runs_in_its_own_context_and_as_its_own_task() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outside")
    seen: list[Any] = []

    async def workflow() -> None:
        variable.set("inside")
        try:
            await asyncio.sleep(1)
        finally:
            seen.append((variable.get(), asyncio.current_task()))

    async def outer() -> None:
        run = Run(workflow)
        me = asyncio.current_task()
        run.loop.evict()
        assert asyncio.current_task() is me
        assert seen == [("inside", run.main)]

    asyncio.run(outer())


def test_a_loop_cannot_evict_itself_from_inside() -> None:
    async def workflow() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WorkflowLoop)
        loop.evict()

    assert isinstance(Run(workflow).main.exception(), InvariantBroken)


def test_an_interrupt_during_eviction_comes_out_after_the_others_were_torn_down() -> None:
    ended: list[str] = []

    async def interrupt() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            raise KeyboardInterrupt

    async def workflow() -> None:
        asyncio.get_running_loop().create_task(interrupt())
        try:
            await asyncio.sleep(1)
        finally:
            ended.append("main")

    run = Run(workflow)
    with pytest.raises(KeyboardInterrupt):
        run.loop.evict()
    assert ended == ["main"]


def test_a_gather_in_a_finally_leaves_no_coroutine_behind_that_was_never_awaited() -> None:
    async def workflow() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.gather(after(1), after(2), *[after(3) for _ in range(5)])

    assert Run(workflow).loop.evict() == []
