"""A clock that skips: when everybody on the event loop waits for a time, it is that time.

It takes the place of the clock and of the selector of the loop that runs. Real time goes on under it: nothing is
skipped while something real is under way (a thread, a process, a socket of an activity). What a worker does now and
then by itself (look for work, look after others) is no reason to stop on the way: its timers are not counted.
"""

import asyncio
import selectors
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from holdfast.background import LOOKS
from holdfast.errors import UsageError
from holdfast.runtime.platform import SystemClockAndIds
from holdfast.runtime.turns.timers import TimerHeap

MILLISECONDS: Final = 1000
ATTRIBUTE: Final = "_holdfast_clock"


class Watched(Protocol):
    """An engine whose time is skipped."""

    def is_at_real_work(self, *, has_sockets: bool) -> bool:
        """Whether something is under way that takes real time."""
        ...

    def next_due_ms(self) -> int | None:
        """When the store has something for its worker that waits for a time."""
        ...


class SkippingClock:
    """The clock of one event loop. Those who use it enter and leave; when the last one has left, it goes on as it is.

    What was skipped stays skipped: the loop's time never goes back.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        parts = vars(loop)
        if not {"_selector", "_scheduled"} <= parts.keys():
            raise UsageError(f"time cannot be skipped on a {type(loop).__name__}; use a loop of asyncio itself")
        self._loop = loop
        self._parts: dict[str, Any] = parts
        self._real = SystemClockAndIds()
        self._offset = 0.0
        self._looks: set[asyncio.TimerHandle] = set()
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
        """The one of the loop that runs now."""
        loop = asyncio.get_running_loop()
        clock: SkippingClock | None = getattr(loop, ATTRIBUTE, None)
        if clock is None:
            clock = cls(loop)
            setattr(loop, ATTRIBUTE, clock)
        return clock

    # ------------------------------------------------------------ who uses it

    def enter(self, watched: Watched) -> None:
        """Skip time for this one, too."""
        if not self._watched:
            self._parts["_selector"] = _SkippingSelector(self._selector, self.skip_if_idle)
            self._parts["call_at"] = self._note_call_at
            self._parts["run_in_executor"] = self._count_executor
        self._watched.append(watched)

    def leave(self, watched: Watched) -> None:
        """No more. Leaving twice is leaving once."""
        if watched not in self._watched:
            return
        self._watched.remove(watched)
        if not self._watched:
            self._parts["_selector"] = self._selector
            del self._parts["call_at"], self._parts["run_in_executor"]
            self._looks.clear()

    @contextmanager
    def held(self) -> Generator[None]:
        """Skip nothing inside."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    # ------------------------------------------------------------ time

    def time(self) -> float:
        """The loop's time: the real one and what was skipped."""
        return self._time() + self._offset

    def now_ms(self) -> int:
        """The wall clock, and what was skipped."""
        return self._real.now_ms() + round(self._offset * MILLISECONDS)

    def elapsed_ms(self) -> int:
        """The steady clock, and what was skipped."""
        return self._real.elapsed_ms() + round(self._offset * MILLISECONDS)

    def advance(self, seconds: float) -> None:
        """Let time pass at once, whatever is under way."""
        self._offset += max(0.0, seconds)

    def skip_if_idle(self, timeout: float) -> bool:
        """Skip to what is waited for next, if nothing real is under way. Whether anything was skipped."""
        has_sockets = len(self._selector.get_map()) > self._own_sockets
        if self._calls or self._held or any(each.is_at_real_work(has_sockets=has_sockets) for each in self._watched):
            return False
        wait = self._next_wait()
        if wait is None:
            return False
        self.advance(wait if wait > 0 else timeout)  # what is due already is found by the next look
        return True

    def _next_wait(self) -> float | None:
        now, now_ms = self.time(), self.now_ms()
        waits: list[float] = []
        scheduled: list[asyncio.TimerHandle] = self._parts["_scheduled"]
        for handle in scheduled:
            if handle.cancelled():
                continue
            due = getattr(_callback(handle), "__self__", None)
            if isinstance(due, TimerHeap):
                waits += [(at_ms - now_ms) / MILLISECONDS for at_ms in [due.next_ms] if at_ms is not None]
            elif handle not in self._looks:
                waits.append(handle.when() - now)
        waits += [
            (at_ms - now_ms) / MILLISECONDS for each in self._watched if (at_ms := each.next_due_ms()) is not None
        ]
        return min(waits, default=None)

    # ------------------------------------------------------------ in the loop's place

    def _note_call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        handle = self._call_at(when, callback, *args, context=context)
        task = asyncio.current_task(self._loop)
        if task is not None and task.get_name() in LOOKS:
            self._looks = {look for look in self._looks if not look.cancelled() and look.when() > self.time()}
            self._looks.add(handle)
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
    """Where a selector would wait for a time, time is skipped. All else is the selector's."""

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
