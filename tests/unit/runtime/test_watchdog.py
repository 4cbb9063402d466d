"""The watchdog ends workflow code that never awaits, and strikes nowhere else (G12)."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import TurnTooLong
from holdfast.runtime.platform import Platform
from holdfast.runtime.watchdog import IDLE_POLLS, QUIET, SliceWatch, Watchdog

SLICES = 20_000
WORLD = Platform(turn_limit_ms=100)


@hf.workflow
async def fine() -> int:
    await asyncio.sleep(0)
    return 1


def blocked(workflow: hf.Workflow[..., Any]) -> str:
    """Why an instance was parked, after others of the same worker went on."""

    async def run() -> str:
        async with hf.Engine(":memory:", workflows=[workflow, fine], _platform=WORLD) as engine:
            handle = await engine.start(workflow, id="it")
            with pytest.raises(hf.WorkflowBlocked) as parked:
                await handle.result(timeout=20)
            assert await engine.run(fine) == 1
            return str(parked.value)

    return asyncio.run(run())


def test_G12_code_that_spins_is_blocked_with_workflow_file_and_line() -> None:
    @hf.workflow(name="spinning")
    async def spin() -> None:
        while True:
            pass

    reason = blocked(spin)
    assert "workflow 'spinning' ran for more than 0.1 s without awaiting anything" in reason
    assert f"{__file__}:" in reason
    assert "in spin" in reason


def test_G12_code_that_spins_in_a_task_of_its_own_fails_the_turn_and_not_only_the_task() -> None:
    @hf.workflow
    async def parent() -> str:
        async def spin() -> None:
            while True:
                pass

        await asyncio.gather(spin(), return_exceptions=True)
        return "went on"

    assert "without awaiting" in blocked(parent)


def test_G12_code_that_catches_everything_is_interrupted_again_and_blocked() -> None:
    @hf.workflow
    async def stubborn() -> int:
        caught = 0
        while caught < 3:
            try:
                while True:
                    pass
            except BaseException:  # noqa: BLE001 - what this test is about
                caught += 1
        return caught

    assert "without awaiting" in blocked(stubborn)


def test_G12_code_that_awaits_while_it_unwinds_is_blocked_all_the_same() -> None:
    @hf.workflow
    async def tidy() -> None:
        try:
            while True:
                pass
        finally:
            await asyncio.sleep(3600)

    assert "without awaiting" in blocked(tidy)


def test_G12_code_that_spins_while_it_is_torn_down_is_ended_too() -> None:
    @hf.workflow
    async def spins_in_the_end() -> None:
        async def stay() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                while True:
                    pass

        asyncio.get_running_loop().create_task(stay())
        await asyncio.sleep(0)
        while True:
            pass

    assert "without awaiting" in blocked(spins_in_the_end)


def test_a_task_that_is_slow_together_is_not_mistaken_for_one_that_spins() -> None:
    """Twenty slices of a fifth of the bound each."""

    def work() -> None:
        threading.Event().wait(0.02)

    dog = Watchdog(100, culprit_frame=lambda frame: frame)
    watch = dog.watch("slow")
    try:
        for _ in range(20):
            watch(work)
    finally:
        dog.stop()


@pytest.fixture
def _restless() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.000_001)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_restless")
def test_nothing_is_raised_outside_of_a_slice() -> None:
    """Short slices, and a thread that strikes them without pause: only `TurnTooLong` comes out, at the very end."""
    dog = Watchdog(1, culprit_frame=lambda frame: frame)
    watch = SliceWatch(dog, "racing").run
    is_over = False
    strikes = interrupted = finished = 0

    def strike_without_pause() -> None:
        nonlocal strikes
        while not is_over:
            running = dog.running
            if running:
                strikes += 1
                dog._interrupt(running)

    def work(rounds: int) -> int:
        return sum(number for number in range(rounds))

    striker = threading.Thread(target=strike_without_pause, daemon=True)
    striker.start()
    try:
        for number in range(SLICES):
            try:
                assert watch(work, number % 40) >= 0
                finished += 1
            except TurnTooLong:
                interrupted += 1
            assert work(10) == 45
            assert dog.alarm == QUIET
    finally:
        is_over = True
        striker.join()
    assert finished
    assert interrupted


def test_code_that_cannot_be_interrupted_is_refused_when_it_returns() -> None:
    dog = Watchdog(20, culprit_frame=lambda frame: frame)

    def hang() -> None:
        hanging = threading.Event()
        assert not hanging.wait(0.2)

    try:
        with pytest.raises(TurnTooLong, match="in wait"):
            dog.watch("hanging")(hang)
    finally:
        dog.stop()


def test_the_watchdog_sleeps_while_nothing_runs_and_wakes_for_the_next_slice() -> None:
    dog = Watchdog(20, culprit_frame=lambda frame: frame)
    watch = dog.watch("rare")

    def spin() -> None:
        while True:
            pass

    try:
        wait_until(lambda: dog.is_asleep)
        watch(int)
        assert not dog.is_asleep
        wait_until(lambda: dog.is_asleep)
        with pytest.raises(TurnTooLong):
            watch(spin)
    finally:
        dog.stop()


def wait_until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(1_000 * IDLE_POLLS):
        if condition():
            return
        pause.wait(0.002)
    pytest.fail("it never came to be")


def test_G12_code_under_a_debugger_is_not_interrupted() -> None:
    scope: dict[str, Any] = {"__name__": "pdb", "wait": threading.Event().wait}
    exec("def interact():\n    wait(0.5)\n    return 'done'\n", scope)  # noqa: S102 - a module named as a debugger
    dog = Watchdog(20, culprit_frame=lambda frame: frame)
    try:
        assert dog.watch("debugged")(scope["interact"]) == "done"
    finally:
        dog.stop()
