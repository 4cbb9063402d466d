"""Ends workflow code that never awaits: a thread that looks whether the same slice of code still runs (G12).

Workflow code runs on the worker's event-loop thread, in slices from one wait to the next. Code that spins in one would
hold the worker for ever. The watchdog looks about once per second, only while slices are being run, and when it has met
the same slice for the length of the bound it raises `TurnInterrupted` in that thread. Looks are counted instead of
seconds, so that a process that was stopped, or a machine that slept, is not mistaken for code that spins.

**Nothing is ever raised outside of a slice.** Beginning and ending one is an attribute write. The end also looks at
`alarm`; the watchdog sets `alarm` before it looks whether the slice still runs. So either the watchdog sees the end and
does not strike, or the end sees the alarm, waits until the watchdog is done, and lets in what was not delivered yet.
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
from holdfast.core.run import SliceRunner as AnyWatch
from holdfast.errors import TurnTooLong
from holdfast.runtime.loop_watch import described, is_debugged

TURN_LIMIT_MS: Final = 10_000
"""What one message may take. Workflow code that works longer belongs into an activity."""
TEARDOWN_LIMIT_MS: Final = 200
"""What the code of an instance that is let go may take to end. It has no effect any more, and the event loop waits."""
LOOKS_PER_LIMIT: Final = 10
LOOKS_TO_INTERRUPT: Final = LOOKS_PER_LIMIT + 2
"""Within so many looks code that can be interrupted has been, and its instance is blocked."""
IDLE_LOOKS: Final = 5
"""So many looks without a slice between them, and the watchdog sleeps until the next one."""
SETTLE_SECONDS: Final = 0.0005
"""Between two looks whether the watchdog is done; it needs microseconds."""
MILLISECONDS: Final = 1000

CHANCES: Final = 3
"""Calls in which an exception that is on its way is raised. One is enough."""

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
    """Runs slices of one workflow under the watchdog's eyes."""

    __slots__ = ("_dog", "_workflow")

    def __init__(self, dog: "Watchdog", workflow: str) -> None:
        self._dog = dog
        self._workflow = workflow

    def run(self, work: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        """Do `work`; raises `TurnTooLong`, and nothing of the watchdog's own, if it had to be interrupted."""
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
            # It came when the slice had ended: an older one, or the one of a strike that was under way. That makes two.
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
    """One for each worker, made on the thread that runs its turns. `guilty` finds the workflow's frame in a stack."""

    __slots__ = (
        *("_bell", "_guilty", "_is_stopped", "_limit_ms", "_thread", "_watched_thread", "_watches"),
        *("alarm", "is_asleep", "is_tearing_down", "running", "slices", "where"),
    )

    def __init__(
        self,
        limit_ms: int,
        *,
        guilty: Callable[[FrameType | None], FrameType | None],
    ) -> None:
        self._limit_ms = limit_ms
        self._guilty = guilty
        self._watched_thread = get_ident()
        self._thread: BackgroundThread | None = None
        self._bell = threading.Event()
        self._is_stopped = False
        self.is_tearing_down = False
        self._watches: dict[str, SliceWatch] = {}
        self.slices = 0
        self.running = NOTHING
        self.is_asleep = False
        self.alarm = QUIET
        self.where = ""

    def watch(self, workflow: str) -> AnyWatch:
        """What runs the slices of a workflow."""
        return self._watch_of(workflow).run  # a method: an object is called more slowly

    def watch_teardown(self, workflow: str) -> AnyWatch:
        """What tears the code of a workflow down, within a shorter limit."""
        return self._watch_of(workflow).tear_down

    def _watch_of(self, workflow: str) -> SliceWatch:
        """The first call starts the thread."""
        if self._thread is None:
            self._thread = BackgroundThread(Duty.WATCHDOG, self._look_after, is_stopped=lambda: self._is_stopped)
            self._thread.start()
        watch = self._watches.get(workflow)
        if watch is None:
            watch = self._watches[workflow] = SliceWatch(self, workflow)
        return watch

    def stop(self) -> None:
        """Look no more. The thread ends by itself."""
        self._is_stopped = True
        self._bell.set()

    # ------------------------------------------------------------ on the thread that runs the code

    def wake(self) -> None:
        """A slice begins while the watchdog sleeps."""
        self.is_asleep = False
        self._bell.set()

    def settle(self, workflow: str) -> None:
        """The slice has ended and the alarm is on: wait for the watchdog, and swallow what was not delivered.

        It is let in here instead of being taken back: after that, Python 3.11 and 3.12 look for it for ever.
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
        """What is said of code that had to be interrupted."""
        return TurnTooLong(
            f"workflow {workflow!r} ran for more than {self._limit_ms / MILLISECONDS:g} s without awaiting anything "
            f"({self.where}); long work belongs into an activity"
        )

    # ------------------------------------------------------------ on the watchdog's own thread

    def _look_after(self) -> None:
        turn_seconds = self._limit_ms / LOOKS_PER_LIMIT / MILLISECONDS
        teardown_seconds = min(self._limit_ms, TEARDOWN_LIMIT_MS) / LOOKS_PER_LIMIT / MILLISECONDS
        seen, looks, idle = NOTHING, 0, 0
        if self.alarm == FIRING:  # this thread failed in a strike and was started again: the code must not wait for it
            self.alarm = FIRED
        while not self._is_stopped:
            pause_seconds = teardown_seconds if self.is_tearing_down else turn_seconds
            if self._bell.wait(pause_seconds):
                self._bell.clear()  # rung late: that was no look
                continue
            running, slices = self.running, self.slices
            idle = idle + 1 if running == NOTHING and slices == seen else 0
            looks = looks + 1 if running != NOTHING and slices == seen else 0
            seen = slices
            if looks >= LOOKS_PER_LIMIT and not self._strike(running):
                looks = 0
            if idle >= IDLE_LOOKS:
                self._sleep(seen)
                idle = 0

    def _sleep(self, seen: int) -> None:
        """Until a slice begins. One that began just now is seen here, or it sees that it has to ring."""
        self._bell.clear()
        self.is_asleep = True
        if self.slices == seen and not self._is_stopped:
            self._bell.wait()
        self.is_asleep = False

    def _strike(self, running: int) -> bool:
        """Interrupt a slice, if it still runs. False if somebody is debugging it."""
        frame = sys._current_frames().get(self._watched_thread)  # noqa: SLF001 - the documented way to another's stack
        if is_debugged(frame):
            return False
        guilty = self._guilty(frame) or frame
        if guilty is not None:
            self.where = described(guilty)
        _raise_in_thread(NO_THREAD)  # whatever may be wrong with it comes out here, before the alarm is on
        before = self.alarm
        self.alarm = FIRING
        if self.running == running:
            _raise_in_thread(self._watched_thread)
            self.alarm = FIRED
        else:
            self.alarm = before
        return True


def _nothing() -> None:
    """A call, in which Python looks for exceptions from outside."""


def _raise_in_thread(thread: int) -> None:
    """Have a thread raise `TurnInterrupted` at its next chance. For a thread that is not there nothing happens."""
    import ctypes  # noqa: PLC0415 - it is slow to import, and nearly nobody ever needs it

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TurnInterrupted))
