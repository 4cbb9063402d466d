"""Which loop runs on a thread, known without asking the system: also after interrupts and forks, and one in another."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.replay.driver import RecordingHost

from holdfast.replay.loop import loop_swap as running
from holdfast.replay.loop.asyncio_patches import running_workflow_loop
from holdfast.replay.loop.event_loop import WorkflowLoop
from holdfast.replay.loop.loop_swap import LoopSwapBatch, run_swapped, swap_in, swap_out, swapped_loop


def new_loop() -> WorkflowLoop:
    return WorkflowLoop(RecordingHost())


def run_outside(work: Callable[[], None]) -> None:
    """Inside of another loop, as a worker runs turns."""

    async def outer() -> None:
        work()

    asyncio.run(outer())


async def gather_works() -> bool:
    async def number(value: int) -> int:
        return value

    return list(await asyncio.gather(number(1), number(2))) == [1, 2]


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("in_series", [False, True])
def test_the_loop_that_has_the_place_is_here_and_the_outer_one_is_not(in_series: bool) -> None:
    inner, innermost = new_loop(), new_loop()

    def look() -> None:
        assert swapped_loop() is inner
        assert running_workflow_loop() is inner
        assert run_swapped(innermost, swapped_loop) is innermost
        assert swapped_loop() is inner is asyncio.get_running_loop()

    def work() -> None:
        outer = asyncio.get_running_loop()
        assert swapped_loop() is None
        if in_series:
            with LoopSwapBatch():
                run_swapped(inner, look)
                assert asyncio.get_running_loop() is outer
                run_swapped(inner, look)
        else:
            run_swapped(inner, look)
        assert swapped_loop() is None
        assert asyncio.get_running_loop() is outer

    run_outside(work)
    assert not running._here
    assert not running._outside


def test_without_an_outer_loop_the_place_is_empty_again() -> None:
    with LoopSwapBatch():
        assert run_swapped(new_loop(), swapped_loop) is not None
        assert swapped_loop() is None
        assert asyncio._get_running_loop() is None


def test_a_swap_that_was_not_undone_is_ignored_and_replaced_by_the_next() -> None:
    left_over = new_loop()

    def work() -> None:
        swap_in(left_over)  # and the interrupt came before it was given back

    run_outside(work)
    assert running._here, "or this test is about nothing"
    assert swapped_loop() is None
    assert asyncio.run(gather_works())
    run_outside(lambda: run_swapped(new_loop(), lambda: None))
    assert not running._here


def test_an_interrupt_while_the_place_is_given_back_leaves_no_loop_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        outer = swap_in(new_loop())
        monkeypatch.setattr(running, "_set_running_loop", interrupted)
        with pytest.raises(KeyboardInterrupt):
            swap_out(outer)
        monkeypatch.undo()

    run_outside(work)
    assert not running._here
    assert asyncio.run(gather_works())


def test_a_series_that_was_not_ended_is_not_trusted_by_the_next_loop() -> None:
    run_outside(lambda: LoopSwapBatch().__enter__())  # and the interrupt came before its end
    assert running._outside, "or this test is about nothing"

    def work() -> None:
        outer = asyncio.get_running_loop()
        run_swapped(new_loop(), lambda: None)
        assert asyncio.get_running_loop() is outer
        with LoopSwapBatch():
            run_swapped(new_loop(), lambda: None)
            assert asyncio.get_running_loop() is outer

    run_outside(work)
    assert not running._outside
    assert asyncio.run(gather_works())


def test_W5_in_the_child_of_a_fork_no_loop_has_the_place() -> None:
    children: list[int] = []

    def fork() -> None:
        assert swapped_loop() is not None
        child = os.fork()
        if child == 0:
            os._exit(0 if swapped_loop() is None and not running._outside else 1)
        children.append(child)
        assert swapped_loop() is not None

    def work() -> None:
        with LoopSwapBatch():
            run_swapped(new_loop(), fork)

    run_outside(work)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0]
