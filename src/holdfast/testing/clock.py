"""A clock that skips time: when every task of the event loop waits for a time, the clock moves to the earliest one.

It replaces the clock and the selector of the running loop. Nothing is skipped while something takes real time (a
thread, a process, a socket of an activity). The periodic timers of a worker (polls, maintenance) are not counted: the
clock skips over them.
"""

import asyncio
import selectors
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from holdfast.background import POLLING
from holdfast.core.deadlines import MILLISECONDS
from holdfast.errors import UsageError
from holdfast.runtime.platform import SystemClockAndIds
from holdfast.runtime.turns.timers import TimerHeap

ATTRIBUTE: Final = "_holdfast_clock"


class Watched(Protocol):
    """The worker of an engine whose time is skipped."""

    def is_at_real_work(self, *, has_sockets: bool) -> bool:
        """Whether something runs that takes real time."""
        ...

    def next_due_ms(self) -> int | None:
        """The next time at which the store has work for the worker."""
        ...


class SkippingClock:
    """The clock of one event loop. Environments enter and leave it; when the last one has left, time runs normally.

    Skipped time stays skipped: the time of the loop never goes back.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        parts = vars(loop)
        if not {"_selector", "_scheduled"} <= parts.keys():
            raise UsageError(f"time cannot be skipped on a {type(loop).__name__}; use a loop of asyncio itself")
        self._loop = loop
        self._parts: dict[str, Any] = parts
        self._real = SystemClockAndIds()
        self._offset = 0.0
        self._polls: set[asyncio.TimerHandle] = set()
        self._watched: list[Watched] = []
        self._calls = 0
        self._held = 0
        self._selector: selectors.BaseSelector = parts["_selector"]
        self._own_sockets = len(self._selector.get_map())
        self._time = loop.time
        self._call_at = loop.call_at
        self._run_in_executor = loop.run_in_executor
        parts["time"] = self.time

    @classmethod
    def of_running_loop(cls) -> "SkippingClock":
        """The clock of the running loop."""
        loop = asyncio.get_running_loop()
        clock: SkippingClock | None = getattr(loop, ATTRIBUTE, None)
        if clock is None:
            clock = cls(loop)
            setattr(loop, ATTRIBUTE, clock)
        return clock

    # ------------------------------------------------------------ users

    def enter(self, watched: Watched) -> None:
        """Skip time for this worker as well."""
        if not self._watched:
            self._parts["_selector"] = _SkippingSelector(self._selector, self.skip_if_idle)
            self._parts["call_at"] = self._note_call_at
            self._parts["run_in_executor"] = self._count_executor
        self._watched.append(watched)

    def leave(self, watched: Watched) -> None:
        """Skip time for this worker no more. A second call does nothing."""
        if watched not in self._watched:
            return
        self._watched.remove(watched)
        if not self._watched:
            self._parts["_selector"] = self._selector
            del self._parts["call_at"], self._parts["run_in_executor"]
            self._polls.clear()

    @contextmanager
    def held(self) -> Generator[None]:
        """A context in which no time is skipped."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    # ------------------------------------------------------------ time

    def time(self) -> float:
        """The time of the loop, with the skipped time."""
        return self._time() + self._offset

    def now_ms(self) -> int:
        """The wall clock, with the skipped time."""
        return self._real.now_ms() + round(self._offset * MILLISECONDS)

    def elapsed_ms(self) -> int:
        """The monotonic clock, with the skipped time."""
        return self._real.elapsed_ms() + round(self._offset * MILLISECONDS)

    def advance(self, seconds: float) -> None:
        """Move the clock at once, whatever runs."""
        self._offset += max(0.0, seconds)

    def skip_if_idle(self, timeout: float) -> bool:
        """Skip to the next due time if nothing takes real time. Whether time was skipped."""
        has_sockets = len(self._selector.get_map()) > self._own_sockets
        if self._calls or self._held or any(each.is_at_real_work(has_sockets=has_sockets) for each in self._watched):
            return False
        wait = self._next_wait()
        if wait is None:
            return False
        self.advance(wait if wait > 0 else timeout)  # the next poll finds what is due already
        return True

    def _next_wait(self) -> float | None:
        now = self.time()
        now_ms = self.now_ms()
        waits: list[float] = []
        scheduled: list[asyncio.TimerHandle] = self._parts["_scheduled"]
        for handle in scheduled:
            if handle.cancelled():
                continue
            due = getattr(_callback(handle), "__self__", None)
            if isinstance(due, TimerHeap):
                waits += [(at_ms - now_ms) / MILLISECONDS for at_ms in [due.next_ms] if at_ms is not None]
            elif handle not in self._polls:
                waits.append(handle.when() - now)
        waits += [
            (at_ms - now_ms) / MILLISECONDS for each in self._watched if (at_ms := each.next_due_ms()) is not None
        ]
        return min(waits, default=None)

    # ------------------------------------------------------------ replaced methods of the loop

    def _note_call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        handle = self._call_at(when, callback, *args, context=context)
        task = asyncio.current_task(self._loop)
        if task is not None and task.get_name() in POLLING:
            self._polls = {poll for poll in self._polls if not poll.cancelled() and poll.when() > self.time()}
            self._polls.add(handle)
        return handle

    def _count_executor(self, executor: Any, function: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = self._run_in_executor(executor, function, *args)
        self._calls += 1
        answer.add_done_callback(self._answered)
        return answer

    def _answered(self, answer: "asyncio.Future[Any]") -> None:
        del answer
        self._calls -= 1


def _callback(handle: asyncio.TimerHandle) -> object:
    return handle._callback  # type: ignore[attr-defined]


class _SkippingSelector:
    """A selector that skips time instead of waiting."""

    def __init__(self, selector: selectors.BaseSelector, skip: Callable[[float], bool]) -> None:
        self._selector = selector
        self._skip = skip

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return self._selector.select(timeout)
        ready = self._selector.select(0)
        if ready or self._skip(timeout):
            return ready
        return self._selector.select(timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)
