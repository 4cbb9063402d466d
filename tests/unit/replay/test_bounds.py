"""A slice is bounded, and what the main task leaves over is cancelled (G12, G14)."""

import asyncio

import pytest
from tests.unit.replay.driver import RecordingHost, Run

from holdfast.errors import TurnTooLong
from holdfast.replay.loop import MAX_LEFT_OVER_ROUNDS, WorkflowLoop


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


def test_G14_a_task_that_refuses_to_end_is_named_after_a_bounded_number_of_rounds() -> None:
    rounds: list[int] = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                rounds.append(1)

    async def workflow() -> None:
        asyncio.get_running_loop().create_task(stubborn(), name="stubborn")
        await asyncio.sleep(0)

    run = Run(workflow)
    with pytest.raises(TurnTooLong, match="stubborn"):
        run.loop.cancel_left_over(run.main, insist=True)
    assert len(rounds) == MAX_LEFT_OVER_ROUNDS
    assert run.loop.evict() == []
