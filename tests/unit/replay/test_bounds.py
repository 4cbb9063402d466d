"""A slice is bounded, and what the main task leaves over is cancelled (G12, G14)."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from tests.unit.replay.driver import RecordingHost, Run

from holdfast.errors import TurnTooLong
from holdfast.replay.loop.event_loop import MAX_LEFT_OVER_ROUNDS, WorkflowLoop


def test_G12_a_slice_that_never_idles_is_stopped_at_its_bound() -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - what this test is about
            await asyncio.sleep(0)

    loop = WorkflowLoop(RecordingHost())
    loop.create_task(spin())
    with pytest.raises(TurnTooLong, match="max_steps=1000"):
        loop.run_until_idle(max_steps=1000)
    looks: list[int] = []

    def deadline() -> bool:
        looks.append(1)
        return len(looks) == 3

    with pytest.raises(TurnTooLong, match="768 steps"):
        loop.run_until_idle(deadline=deadline)
    assert loop.evict() == []


def test_G14_left_over_tasks_are_cancelled_and_run_to_their_end() -> None:
    ended: list[str] = []

    async def stay(name: str) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def workflow() -> str:
        for name in "ab":
            asyncio.get_running_loop().create_task(stay(name))
        await asyncio.sleep(0)
        return "done"

    run = Run(workflow)
    assert run.loop.cancel_left_over(run.main) == []
    assert ended == ["a", "b"]
    assert run.host.heard == [
        ("started", 1, 100.0),
        ("started", 2, 100.0),
        ("cancelled", 1),
        ("cancelled", 2),
    ]
    assert run.main.result() == "done"


def test_G14_a_clean_up_that_waits_for_a_timer_is_returned_and_can_go_on() -> None:
    ended: list[str] = []

    async def stay() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(5)
            ended.append("cleaned")

    async def workflow() -> None:
        asyncio.get_running_loop().create_task(stay())
        await asyncio.sleep(0)

    run = Run(workflow)
    (still,) = run.loop.cancel_left_over(run.main)
    assert ended == []
    run.fire(2)
    assert still.done()
    assert ended == ["cleaned"]


def test_G14_generators_that_leave_others_behind_are_closed_in_a_bounded_number_of_rounds() -> None:
    begun: list[AsyncGenerator[int, None]] = []

    async def endless() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            await begin()

    async def begin() -> None:
        generator = endless()
        begun.append(generator)
        await anext(generator)

    run = Run(begin)
    with pytest.raises(TurnTooLong, match="whose clean-up starts another"):
        run.loop.cancel_left_over(run.main)
    assert len(begun) == MAX_LEFT_OVER_ROUNDS + 1
    run.loop.evict()


def test_G14_tasks_that_a_clean_up_starts_are_awaited_and_not_cancelled() -> None:
    ended: list[str] = []

    async def compensate(name: str, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
            ended.append(name)
        except asyncio.CancelledError:
            ended.append(f"{name} was cancelled")
            raise

    async def stay() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.gather(compensate("a", 1), compensate("b", 2))
            asyncio.get_running_loop().create_task(compensate("c", 3))

    async def workflow() -> None:
        asyncio.get_running_loop().create_task(stay())
        await asyncio.sleep(0)

    run = Run(workflow)
    for timer in (2, 3, 4):
        assert run.loop.cancel_left_over(run.main) != []
        run.fire(timer)
    assert run.loop.cancel_left_over(run.main) == []
    assert ended == ["a", "b", "c"]
    assert ("cancelled", 1) in run.host.heard
    assert [what for what, *_ in run.host.heard].count("cancelled") == 1


def test_G14_a_clean_up_that_the_workflow_began_itself_is_not_cut_short() -> None:
    ended: list[str] = []

    async def stay() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.gather(asyncio.sleep(1), asyncio.sleep(2))
            ended.append("cleaned")

    async def workflow() -> None:
        task = asyncio.get_running_loop().create_task(stay())
        await asyncio.sleep(0)
        task.cancel()

    run = Run(workflow)
    for timer in (2, 3):
        assert run.loop.cancel_left_over(run.main) != []
        run.fire(timer)
    assert run.loop.cancel_left_over(run.main) == []
    assert ended == ["cleaned"]


def test_G14_a_task_that_survives_its_own_time_out_is_cancelled_after_it() -> None:
    """It was being cancelled by its time-out when the main task ended, and goes on afterwards as time-outs let it."""
    ended: list[str] = []

    async def stay() -> None:
        try:
            async with asyncio.timeout(1):
                try:
                    await asyncio.sleep(100)
                finally:
                    await asyncio.sleep(5)
                    ended.append("cleaned")
        except TimeoutError:
            await asyncio.sleep(1_000)

    async def workflow() -> None:
        asyncio.get_running_loop().create_task(stay())
        await asyncio.sleep(2)

    run = Run(workflow)
    timers = {due: number for number, due in run.loop.pending_timers.items()}
    run.fire(timers[1.0])
    run.fire(timers[2.0])
    assert run.main.done()
    assert len(run.loop.cancel_left_over(run.main)) == 1
    (clean_up,) = run.loop.pending_timers
    run.fire(clean_up)
    assert run.loop.cancel_left_over(run.main) == []
    assert ended == ["cleaned"]


def test_G14_a_generator_is_not_closed_while_a_clean_up_uses_it() -> None:
    seen: list[str] = []

    async def steps() -> AsyncIterator[str]:
        try:
            for step in "ab":
                yield step
        finally:
            await asyncio.sleep(1)
            seen.append("closed")

    async def stay() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            async for step in steps():
                await asyncio.sleep(1)
                seen.append(step)

    async def workflow() -> None:
        asyncio.get_running_loop().create_task(stay())
        await asyncio.sleep(0)

    run = Run(workflow)
    while run.loop.cancel_left_over(run.main):
        (timer,) = run.loop.pending_timers
        run.fire(timer)
    assert seen == ["a", "b", "closed"]


def test_G14_the_close_of_an_abandoned_generator_may_wait() -> None:
    seen: list[str] = []

    async def steps() -> AsyncIterator[str]:
        try:
            yield "a"
        finally:
            await asyncio.gather(asyncio.sleep(1), asyncio.sleep(2))
            seen.append("closed")

    async def workflow() -> None:
        async for step in steps():
            seen.append(step)
            break

    run = Run(workflow)
    for timer in (1, 2):
        assert run.loop.cancel_left_over(run.main) != []
        run.fire(timer)
    assert run.loop.cancel_left_over(run.main) == []
    assert seen == ["a", "closed"]


def test_G14_a_clean_up_that_starts_tasks_without_end_is_stopped_at_the_bound() -> None:
    async def again() -> None:
        asyncio.get_running_loop().create_task(again())

    async def stay() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            asyncio.get_running_loop().create_task(again())

    async def workflow() -> None:
        asyncio.get_running_loop().create_task(stay())
        await asyncio.sleep(0)

    run = Run(workflow)
    with pytest.raises(TurnTooLong, match="max_steps=1000"):
        run.loop.cancel_left_over(run.main, max_steps=1000)
    assert run.loop.evict() == []
