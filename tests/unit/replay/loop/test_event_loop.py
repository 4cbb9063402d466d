"""The loop itself: time, timers, running inside another loop, bounds, left-over tasks (G10, G12, G14)."""

import asyncio
import contextvars
import gc
import math
import sys
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from tests.unit.replay.driver import RecordingHost, Run, after, finish

from holdfast.errors import InvalidDelay, InvariantBroken, NotInWorkflow
from holdfast.replay.loop.event_loop import WorkflowLoop
from holdfast.replay.loop.loop_swap import LoopSwapBatch


def test_G10_time_moves_only_forward_and_only_by_the_driver() -> None:
    loop = WorkflowLoop(RecordingHost(), start_at=100.0)
    assert loop.time() == 100.0
    loop.advance_to(105.5)
    loop.advance_to(3.0)
    assert loop.time() == 105.5
    with pytest.raises(InvalidDelay):
        loop.advance_to(math.nan)


def test_a_sleep_is_one_durable_timer_that_the_driver_fires() -> None:
    run = Run(lambda: after(10, "slept"))
    assert run.host.heard == [("started", 1, 10.0)]
    assert not run.main.done()
    assert run.fire(1)
    assert run.loop.time() == 10.0
    assert run.main.result() == "slept"
    assert run.host.heard == [("started", 1, 10.0)]


def test_firing_an_unknown_fired_or_cancelled_timer_changes_nothing() -> None:
    run = Run(lambda: after(10))
    assert not run.fire(7)
    assert run.fire(1)
    assert not run.fire(1)
    handle = run.loop.call_later(5, print)
    handle.cancel()
    handle.cancel()
    assert not run.fire(2)
    assert run.host.heard == [("started", 1, 10.0), ("started", 2, 15.0), ("cancelled", 2)]
    assert run.loop.time() == 10.0


def test_a_timer_fired_late_leaves_the_time_where_it_was() -> None:
    run = Run(lambda: after(10))
    run.loop.advance_to(50)
    run.fire(1)
    assert run.loop.time() == 50


@pytest.mark.parametrize("delay", [0, -1, -1e300, -math.inf])
def test_no_delay_makes_no_durable_timer(delay: float) -> None:
    async def workflow() -> float:
        await asyncio.sleep(delay)
        waiter = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(delay, waiter.set_result, None)
        await waiter
        return asyncio.get_running_loop().time()

    run = Run(workflow)
    assert run.main.result() == 0
    assert run.host.heard == []


@pytest.mark.parametrize("delay", [math.inf, 1e300, 1e13])
def test_a_sleep_beyond_the_calendar_waits_for_ever_without_a_timer(delay: float) -> None:
    run = Run(lambda: after(delay))
    assert not run.main.done()
    assert run.host.heard == []
    run.main.cancel()
    run.loop.run_until_idle()
    assert run.main.cancelled()
    assert run.host.heard == []


def test_a_delay_that_is_not_a_number_is_a_typed_error() -> None:
    run = Run(lambda: asyncio.wait_for(after(1), math.nan))
    assert isinstance(run.main.exception(), InvalidDelay)
    assert isinstance(run.main.exception(), ValueError)
    with pytest.raises(InvalidDelay):
        run.loop.call_at(math.nan, print)


def test_everything_that_touches_the_outside_refuses_by_name() -> None:
    loop = WorkflowLoop(RecordingHost())
    own = {
        *("call_at", "call_later", "call_soon", "call_soon_threadsafe", "call_exception_handler", "time"),
        *("create_future", "create_task", "get_debug", "get_exception_handler", "get_task_factory"),
        *("is_closed", "is_running"),
    }
    names = {name for name in dir(asyncio.AbstractEventLoop) if not name.startswith("_")} - own
    assert len(names) > 35
    for name in sorted(names):
        with pytest.raises(NotInWorkflow, match=rf"\b{name}\(\).*activity"):
            getattr(loop, name)()


def test_run_in_executor_and_to_thread_name_an_activity_as_the_alternative() -> None:
    run = Run(lambda: asyncio.to_thread(print))
    assert isinstance(run.main.exception(), NotInWorkflow)


def test_another_thread_is_refused_and_the_own_thread_is_not() -> None:
    loop = WorkflowLoop(RecordingHost())
    caught: list[BaseException] = []

    def intrude() -> None:
        try:
            loop.call_soon_threadsafe(print)
        except NotInWorkflow as error:
            caught.append(error)

    thread = threading.Thread(target=intrude)
    thread.start()
    thread.join()
    assert "another thread" in str(caught[0])
    ran: list[int] = []
    loop.call_soon_threadsafe(ran.append, 1)
    loop.run_until_idle()
    assert ran == [1]


def test_a_slice_runs_inside_another_loop_and_restores_everything() -> None:
    async def workflow() -> tuple[Any, ...]:
        async def numbers() -> AsyncGenerator[int, None]:
            yield 1

        generator = numbers()
        await anext(generator)
        await asyncio.sleep(0)
        task = asyncio.current_task()
        return (asyncio.get_running_loop(), task, asyncio.all_tasks())

    async def outer() -> None:
        outer_loop, outer_task = asyncio.get_running_loop(), asyncio.current_task()
        hooks = sys.get_asyncgen_hooks()
        run = Run(workflow)
        assert run.main.result() == (run.loop, run.main, {run.main})
        assert asyncio.get_running_loop() is outer_loop
        assert asyncio.current_task() is outer_task
        assert sys.get_asyncgen_hooks() == hooks
        sleeping = Run(lambda: after(1))
        assert asyncio.all_tasks() == {outer_task}
        assert sleeping.loop.pending_tasks() == [sleeping.main]
        await asyncio.sleep(0)
        sleeping.loop.evict()
        assert asyncio.current_task() is outer_task
        assert sys.get_asyncgen_hooks() == hooks

    asyncio.run(outer())


def test_slices_one_after_the_other_hold_their_own_generators_and_restore_the_hooks_at_the_end() -> None:
    async def numbers() -> AsyncGenerator[int, None]:
        yield 1
        yield 2

    async def workflow() -> AsyncGenerator[int, None]:
        generator = numbers()
        await anext(generator)
        await asyncio.sleep(0)
        return generator

    async def outer() -> None:
        hooks = sys.get_asyncgen_hooks()
        with LoopSwapBatch():
            held = sys.get_asyncgen_hooks()
            runs = [Run(workflow), Run(workflow)]
            assert sys.get_asyncgen_hooks() == held != hooks
        assert sys.get_asyncgen_hooks() == hooks
        generators = [run.main.result() for run in runs]
        own = numbers()
        await anext(own)
        assert outer_generators() == {own}
        assert [run.loop._generators.take_all() for run in runs] == [[generator] for generator in generators]

    def outer_generators() -> set[Any]:
        return set(vars(asyncio.get_running_loop())["_asyncgens"])

    asyncio.run(outer())


def test_an_interrupt_leaves_the_thread_as_it_was() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    async def outer() -> None:
        outer_loop, hooks = asyncio.get_running_loop(), sys.get_asyncgen_hooks()
        loop = WorkflowLoop(RecordingHost())
        loop.call_soon(interrupt)
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_idle()
        assert asyncio.get_running_loop() is outer_loop
        assert sys.get_asyncgen_hooks() == hooks
        assert not loop.is_running()

    asyncio.run(outer())


def test_a_workflow_that_exits_the_program_only_ends_itself() -> None:
    async def workflow() -> None:
        sys.exit(3)

    run = Run(workflow)
    assert isinstance(run.main.exception(), SystemExit)


def test_a_slice_cannot_run_inside_itself() -> None:
    async def workflow() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WorkflowLoop)
        assert loop.is_running()
        loop.run_until_idle()

    assert isinstance(Run(workflow).main.exception(), InvariantBroken)


def test_tasks_and_futures_hash_by_creation_and_compare_by_identity() -> None:
    first, second = WorkflowLoop(RecordingHost()), WorkflowLoop(RecordingHost())
    futures = [first.create_future() for _ in range(3)]
    assert [hash(future) for future in futures] == [1, 2, 3]
    twin = second.create_future()
    assert hash(twin) == hash(futures[0])
    assert twin != futures[0]
    task = first.create_task(after(0))
    assert hash(task) == 4
    assert task.get_name() == "Task-4"
    first.evict()


def test_the_same_task_of_many_workflows_does_not_collide_in_the_set_of_all_tasks() -> None:
    run = Run(lambda: after(1))
    registry = vars(asyncio.tasks).get("_scheduled_tasks", vars(asyncio.tasks).get("_all_tasks"))
    assert registry is not None
    mine = [hash(reference) for reference in registry.data if reference() is run.main]
    assert mine
    assert run.main.number not in mine
    run.loop.evict()


def test_unreferenced_tasks_are_held_until_they_are_done() -> None:
    done: list[int] = []

    async def append_later(number: int) -> None:
        await asyncio.sleep(1)
        done.append(number)

    async def workflow() -> None:
        for number in range(500):
            asyncio.get_running_loop().create_task(append_later(number))
        gc.collect()
        await asyncio.sleep(2)

    run = Run(workflow)
    gc.collect()
    run.finish()
    assert done == list(range(500))


def test_finished_tasks_are_removed() -> None:
    async def workflow() -> None:
        for _ in range(2000):
            await asyncio.create_task(after(0))

    run = Run(workflow)
    assert run.main.done()
    assert len(run.loop._tasks) < 200


def test_an_unhandled_failure_reaches_the_host_and_not_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise ValueError("lost")

    async def workflow() -> None:
        asyncio.create_task(fail())  # noqa: RUF006 - that nobody holds it is the point
        asyncio.get_running_loop().call_soon(int, "no number")
        await asyncio.sleep(0)

    run = Run(workflow)
    run.loop.cancel_left_over(run.main)
    gc.collect()
    run.loop.run_until_idle()
    assert sorted(str(report["exception"]) for report in run.host.reports) == [
        "invalid literal for int() with base 10: 'no number'",
        "lost",
    ]
    assert caplog.records == []


def test_newer_options_of_create_task_are_accepted_and_change_nothing() -> None:
    async def workflow() -> list[str]:
        order: list[str] = []

        async def note() -> None:
            order.append("task")

        loop: Any = asyncio.get_running_loop()
        task = loop.create_task(note(), eager_start=True, name="x")
        order.append("body")
        await task
        return order

    assert finish(workflow) == ["body", "task"]


def test_context_variables_follow_asyncio_rules() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outside")

    async def child() -> str:
        seen = variable.get()
        variable.set("child")
        await asyncio.sleep(1)
        return seen

    async def workflow() -> tuple[str, str]:
        variable.set("main")
        return (await asyncio.create_task(child()), variable.get())

    assert finish(workflow) == ("main", "main")
    assert variable.get() == "outside"


# ---------------------------------------------------------------------- left-over tasks


def test_abandoned_generators_are_closed_when_the_workflow_ends_and_not_by_the_collector() -> None:
    closed: list[str] = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(0)
            closed.append("closed")

    async def workflow() -> None:
        async for _ in numbers():
            break
        gc.collect()
        await asyncio.sleep(0)
        assert closed == []

    run = Run(workflow)
    run.main.result()
    assert run.loop.cancel_left_over(run.main) == []
    assert closed == ["closed"]


def test_finished_generators_are_removed() -> None:
    async def one() -> AsyncGenerator[int, None]:
        yield 1

    async def workflow() -> None:
        for _ in range(1000):
            async for _ in one():
                pass

    run = Run(workflow)
    assert run.main.done()
    assert len(run.loop._generators) < 100
