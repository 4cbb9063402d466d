"""Interrupts workflow code that never awaits: a thread polls whether the same slice of code still runs (G12).

Workflow code runs on the worker's event-loop thread, in slices from one wait to the next. Code that spins in one would
hold the worker for ever. The watchdog polls about once per second, only while slices are being run, and when it has
found the same slice for the length of the limit it raises `TurnInterrupted` in that thread. Polls are counted instead
of seconds, so that a process that was stopped, or a machine that slept, is not mistaken for code that spins.

**Nothing is ever raised outside of a slice.** Beginning and ending one is an attribute write. The end also reads
`alarm`; the watchdog sets `alarm` before it checks whether the slice still runs. So either the watchdog sees the end
and does not raise, or the end sees the alarm, waits until the watchdog is done, and catches the pending exception.
Python raises such an exception only at calls, at jumps backwards and on entering a function: at the very next of them,
and never between the end of the work and the write that marks it.

Code that hangs in C cannot be interrupted. The event loop does not run then, and the lease thread releases the
instances of the worker (W1, `loop_watch`).
"""

import sys
import threading
from collections.abc import Callable
from threading import get_ident
from time import sleep
from types import FrameType
from typing import Final, TypeVar, TypeVarTuple

from holdfast.background import BackgroundThread, Duty
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.run import SliceRunner as AnyWatch
from holdfast.errors import TurnTooLong
from holdfast.runtime.loop_watch import described, is_debugged

TURN_LIMIT_MS: Final = 10_000
"""How long one slice may take. Longer work belongs into an activity."""
TEARDOWN_LIMIT_MS: Final = 200
"""How long the code of an evicted instance may take to end. It has no effect any more, and the event loop waits."""
POLLS_PER_LIMIT: Final = 10
POLLS_TO_INTERRUPT: Final = POLLS_PER_LIMIT + 2
"""Within so many polls, code that can be interrupted has been, and its instance is blocked."""
IDLE_POLLS: Final = 5
"""After so many polls without a slice between them the watchdog sleeps until the next slice."""
SETTLE_SECONDS: Final = 0.0005
"""Between two checks whether the watchdog is done; it needs microseconds."""

CHANCES: Final = 3
"""Calls in which a pending exception is raised. One is enough."""

NO_THREAD: Final = 0
NOTHING: Final = 0
"""No slice runs. Slices are numbered from 1."""
QUIET: Final = 0
FIRING: Final = 1
FIRED: Final = 2

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class TurnInterrupted(KeyboardInterrupt):
    """Raised in workflow code by the watchdog. asyncio keeps every other exception inside the task that raised it."""


class SliceWatch:
    """Runs slices of one workflow under the watchdog."""

    __slots__ = ("_dog", "_workflow")

    def __init__(self, dog: "Watchdog", workflow: str) -> None:
        self._dog = dog
        self._workflow = workflow

    def run(self, work: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        """Call `work`. Raises `TurnTooLong`, and never `TurnInterrupted`, if it had to be interrupted."""
        dog = self._dog
        try:
            try:
                dog.slices = dog.running = dog.slices + 1
                if dog.is_asleep:
                    dog.wake()
                return work(*args)
            finally:
                dog.running = NOTHING
                if dog.alarm:
                    dog.settle(self._workflow)
        except TurnInterrupted:
            # It came after the end of the slice. An older one may be pending as well: at most two.
            try:
                dog.settle(self._workflow)
            except TurnInterrupted:
                dog.settle(self._workflow)
            raise dog.too_long(self._workflow) from None

    def tear_down(self, work: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        """The same within `TEARDOWN_LIMIT_MS`."""
        dog = self._dog
        dog.is_tearing_down = True
        dog.wake()
        try:
            return self.run(work, *args)
        finally:
            dog.is_tearing_down = False


class Watchdog:
    """One for each worker, made on the thread that runs its turns. `culprit_frame` finds the user's frame."""

    __slots__ = (
        *("_wake", "_culprit_frame", "_is_stopped", "_limit_ms", "_thread", "_watched_thread", "_watches"),
        *("alarm", "is_asleep", "is_tearing_down", "running", "slices", "where"),
    )

    def __init__(
        self,
        limit_ms: int,
        *,
        culprit_frame: Callable[[FrameType | None], FrameType | None],
    ) -> None:
        self._limit_ms = limit_ms
        self._culprit_frame = culprit_frame
        self._watched_thread = get_ident()
        self._thread: BackgroundThread | None = None
        self._wake = threading.Event()
        self._is_stopped = False
        self.is_tearing_down = False
        self._watches: dict[str, SliceWatch] = {}
        self.slices = 0
        self.running = NOTHING
        self.is_asleep = False
        self.alarm = QUIET
        self.where = ""

    def watch(self, workflow: str) -> AnyWatch:
        """The function that runs the slices of a workflow."""
        return self._watch_of(workflow).run  # a bound method is called faster than an object

    def watch_teardown(self, workflow: str) -> AnyWatch:
        """The function that tears the code of a workflow down, within a shorter limit."""
        return self._watch_of(workflow).tear_down

    def _watch_of(self, workflow: str) -> SliceWatch:
        """The first call starts the thread."""
        if self._thread is None:
            self._thread = BackgroundThread(Duty.WATCHDOG, self._poll, is_stopped=lambda: self._is_stopped)
            self._thread.start()
        watch = self._watches.get(workflow)
        if watch is None:
            watch = self._watches[workflow] = SliceWatch(self, workflow)
        return watch

    def stop(self) -> None:
        """Poll no more. The thread ends by itself."""
        self._is_stopped = True
        self._wake.set()

    # ------------------------------------------------------------ on the thread that runs the code

    def wake(self) -> None:
        """A slice begins while the watchdog sleeps."""
        self.is_asleep = False
        self._wake.set()

    def settle(self, workflow: str) -> None:
        """The slice has ended and the alarm is on: wait for the watchdog, and catch the pending exception.

        It is caught here instead of being revoked: after a revocation Python 3.11 and 3.12 check for it for ever.
        """
        while self.alarm == FIRING:
            sleep(SETTLE_SECONDS)
        if self.alarm == FIRED:
            try:
                for _ in range(CHANCES):
                    _nothing()
            except TurnInterrupted:
                pass
            self.alarm = QUIET
            raise self.too_long(workflow) from None

    def too_long(self, workflow: str) -> TurnTooLong:
        """The error for code that had to be interrupted."""
        return TurnTooLong(
            f"workflow {workflow!r} ran for more than {self._limit_ms / MILLISECONDS:g} s without awaiting anything "
            f"({self.where}); long work belongs into an activity"
        )

    # ------------------------------------------------------------ on the watchdog's own thread

    def _poll(self) -> None:
        turn_seconds = self._limit_ms / POLLS_PER_LIMIT / MILLISECONDS
        teardown_seconds = min(self._limit_ms, TEARDOWN_LIMIT_MS) / POLLS_PER_LIMIT / MILLISECONDS
        seen, polls, idle = NOTHING, 0, 0
        if self.alarm == FIRING:  # this thread failed in `_interrupt` and was restarted: the code must not wait for it
            self.alarm = FIRED
        while not self._is_stopped:
            pause_seconds = teardown_seconds if self.is_tearing_down else turn_seconds
            if self._wake.wait(pause_seconds):
                self._wake.clear()  # woken: that was no poll
                continue
            running, slices = self.running, self.slices
            idle = idle + 1 if running == NOTHING and slices == seen else 0
            polls = polls + 1 if running != NOTHING and slices == seen else 0
            seen = slices
            if polls >= POLLS_PER_LIMIT and not self._interrupt(running):
                polls = 0
            if idle >= IDLE_POLLS:
                self._sleep(seen)
                idle = 0

    def _sleep(self, seen: int) -> None:
        """Sleep until a slice begins. One that begins now is seen here, or sees `is_asleep` and wakes the thread."""
        self._wake.clear()
        self.is_asleep = True
        if self.slices == seen and not self._is_stopped:
            self._wake.wait()
        self.is_asleep = False

    def _interrupt(self, running: int) -> bool:
        """Interrupt a slice if it still runs. False if a debugger is attached."""
        frame = sys._current_frames().get(self._watched_thread)  # noqa: SLF001 - the documented way to another thread's stack
        if is_debugged(frame):
            return False
        culprit = self._culprit_frame(frame) or frame
        if culprit is not None:
            self.where = described(culprit)
        _raise_in_thread(NO_THREAD)  # a failing call fails here, before the alarm is on
        before = self.alarm
        self.alarm = FIRING
        if self.running == running:
            _raise_in_thread(self._watched_thread)
            self.alarm = FIRED
        else:
            self.alarm = before
        return True


def _nothing() -> None:
    """A call, in which Python checks for asynchronous exceptions."""


def _raise_in_thread(thread: int) -> None:
    """Raise `TurnInterrupted` in a thread. For a thread that does not exist nothing happens."""
    import ctypes  # noqa: PLC0415 - it is slow to import and rarely needed

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TurnInterrupted))
