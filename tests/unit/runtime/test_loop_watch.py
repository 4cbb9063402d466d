"""W1: how the lease thread judges an event loop, without threads and without time."""

import logging
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast.runtime.loop_watch import PYDEVD, LoopRules, LoopState, LoopWatch, is_debugged

if TYPE_CHECKING:
    import asyncio

POLL_MS = 500


class Loop:
    """A loop that runs its callbacks when a test says so."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []
        self.is_now_closed = False

    def is_closed(self) -> bool:
        return False  # it is closed between this question and the call

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        if self.is_now_closed:
            raise RuntimeError("Event loop is closed")
        self.callbacks.append(callback)

    def run(self) -> None:
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()


def watch_of(loop: Loop, **rules: Any) -> LoopWatch:
    known: dict[str, Any] = {"release_after_ms": 4_000, "end_after_ms": 60_000, **rules}
    return LoopWatch(cast("asyncio.AbstractEventLoop", loop), LoopRules(**known), "anna")


def looks(watch: LoopWatch, count: int) -> list[LoopState]:
    return [watch.poll(POLL_MS) for _ in range(count)]


def test_W1_a_loop_that_calls_back_runs_and_has_one_callback_at_a_time() -> None:
    loop = Loop()
    watch = watch_of(loop)
    for _ in range(1_000):
        assert watch.poll(POLL_MS) is LoopState.RUNS
        assert len(loop.callbacks) == 1
        loop.run()


def test_W1_a_loop_that_does_not_call_back_is_blocked_and_later_timed_out() -> None:
    loop = Loop()
    watch = watch_of(loop)
    assert looks(watch, 8) == [LoopState.RUNS] * 8
    assert looks(watch, 112) == [LoopState.BLOCKED] * 112
    assert watch.poll(POLL_MS) is LoopState.TIMED_OUT
    loop.run()
    assert looks(watch, 8) == [LoopState.RUNS] * 8, "it is counted from the beginning"


def test_W1_without_a_limit_a_blocked_loop_never_ends_the_lease() -> None:
    assert set(looks(watch_of(Loop(), end_after_ms=None), 10_000)[8:]) == {LoopState.BLOCKED}


def test_W1_a_closed_loop_is_found_however_late_it_closes() -> None:
    loop = Loop()
    loop.is_now_closed = True
    assert watch_of(loop).poll(POLL_MS) is LoopState.CLOSED


def test_W1_workflow_code_that_comes_from_message_to_message_is_not_blocked(caplog: pytest.LogCaptureFixture) -> None:
    slices = 0

    def count() -> int:
        nonlocal slices
        slices += 1
        return slices

    with caplog.at_level(logging.WARNING, "holdfast"):
        assert set(looks(watch_of(Loop(), slices=count), 1_000)) == {LoopState.RUNS}
    assert len(caplog.records) == 1, "the loop did not run, which is worth a warning"


def test_W1_a_blocked_line_is_logged_once_and_again_after_the_loop_ran(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    watch = watch_of(loop)
    with caplog.at_level(logging.INFO, "holdfast"):
        looks(watch, 2)
        assert not caplog.records
        looks(watch, 5)
        loop.run()
        looks(watch, 4)
    first, again, second = [record.getMessage() for record in caplog.records]
    assert "worker anna has not run for 1.0 s, blocked in" in first
    assert "loop_watch.py:" in first
    assert "runs again, after 3.0 s" in again
    assert "has not run for 1.0 s" in second
    assert [vars(record)["holdfast_worker"] for record in caplog.records] == ["anna"] * 3


def test_W1_a_loop_that_waits_in_its_selector_is_not_called_blocked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"):
        watch_of(Loop())._log(cast("Any", SimpleNamespace(f_globals={"__name__": "selectors"})))
    assert not caplog.records


def test_W1_nothing_is_judged_while_a_debugger_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = ModuleType(PYDEVD)
    attached: list[object] = [None]
    vars(constants)["get_global_debugger"] = lambda: attached[0]
    monkeypatch.setitem(sys.modules, PYDEVD, constants)
    watch = watch_of(Loop())
    attached[0] = object()
    assert set(looks(watch, 1_000)) == {LoopState.RUNS}
    attached[0] = None
    assert LoopState.TIMED_OUT in looks(watch, 1_000), "a notebook loads the debugger, and attaches it later"


def test_W1_a_tracer_of_the_loops_thread_is_a_debugger_unless_it_measures_coverage() -> None:
    def trace(*_: object) -> None: ...

    assert is_debugged(None, trace)
    assert not is_debugged(None, None)
    trace.__module__ = "coverage.pytracer"
    assert not is_debugged(None, trace)


def test_W1_a_stack_that_is_stopped_in_a_debugger_is_debugged() -> None:
    outer = SimpleNamespace(f_globals={"__name__": "bdb"}, f_trace=None, f_back=None)
    inner = SimpleNamespace(f_globals={"__name__": "shop"}, f_trace=None, f_back=outer)
    assert is_debugged(cast("Any", inner))
    outer.f_globals["__name__"] = "asyncio"
    assert not is_debugged(cast("Any", inner))


def test_W1_a_debugger_that_monitors_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = {0: "debugger"}
    monitoring = SimpleNamespace(DEBUGGER_ID=0, get_tool=tools.get)
    monkeypatch.setattr(sys, "monitoring", monitoring, raising=False)
    assert is_debugged(None)
    tools.clear()
    assert not is_debugged(None)
