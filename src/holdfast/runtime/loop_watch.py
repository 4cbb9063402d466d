"""Checks from the lease thread whether the worker's event loop runs (W1).

The thread posts a callback to the loop and checks some time later whether it was called. Polls are counted instead of
seconds, so that a process that was stopped, or a machine that slept, is not mistaken for a loop that is blocked.

- After a second the line of code that blocks is logged, once.
- After `release_after_ms` the instances are released. Workflow code that proceeds from message to message, as in a long
  replay, counts as progress: on another worker the same replay would only begin again.
- After `end_after_ms`, or at once if the loop is closed, the lease ends.

A blocked loop is ignored while a debugger is attached. A closed loop is not: no debugger opens it again.
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from enum import Enum
from threading import get_ident
from types import FrameType
from typing import Any, Final

import msgspec

from holdfast.core.deadlines import MILLISECONDS
from holdfast.storage.records import InstanceNumber

logger = logging.getLogger("holdfast")

BLOCKED_MS: Final = 1_000
"""A loop that has not run for so long is logged."""
DEBUGGERS: Final = ("pdb", "bdb", "pydevd", "debugpy")
"""Packages whose frames are in the stack of code that is stopped at a breakpoint."""
PYDEVD: Final = "_pydevd_bundle.pydevd_constants"
"""The debugger behind debugpy and PyCharm. Notebooks load it without attaching it, so its state has to be read."""
TRACERS: Final = ("coverage",)
"""Packages that trace code and are not debuggers."""
IDLE_MODULES: Final = ("selectors",)
"""A loop that waits in these modules is not blocked: its thread gets no processor time."""


class LoopState(Enum):
    """The result of one poll."""

    RUNS = "runs"
    BLOCKED = "blocked"
    CLOSED = "closed"
    TIMED_OUT = "timed out"


class LoopRules(msgspec.Struct, frozen=True):
    """When an event loop counts as blocked, and how to find the code that blocks it."""

    release_after_ms: int
    end_after_ms: int | None
    slices: Callable[[], int] = lambda: 0
    """How many slices of workflow code have begun."""
    culprit: Callable[[], InstanceNumber] = lambda: InstanceNumber(0)
    """The instance whose code runs now, or zero."""
    culprit_frame: Callable[[FrameType | None], FrameType | None] = lambda frame: frame
    """The frame of user code in a stack."""


class LoopWatch:
    """One for each lease, made on the thread of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rules: LoopRules, name: str) -> None:
        self.rules = rules
        self._loop = loop
        self._name = name
        self._thread = get_ident()
        self._was_called = True
        self._tracer: object = None
        self._slices = 0
        self._silent_ms = 0.0
        self._idle_ms = 0.0
        self._is_logged = False

    @property
    def silent_seconds(self) -> float:
        """How long the loop has not run."""
        return self._silent_ms / MILLISECONDS

    def poll(self, passed_ms: float) -> LoopState:
        """Check the loop, `passed_ms` after the last check."""
        if self._loop.is_closed():
            return LoopState.CLOSED
        if self._was_called:
            self._runs_again()
            return LoopState.RUNS if self._post() else LoopState.CLOSED
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - the documented way to another thread's stack
        if is_debugged(frame, self._tracer):
            return LoopState.RUNS
        self._count(passed_ms)
        if self._silent_ms >= BLOCKED_MS and not self._is_logged:
            self._log(frame)
        if self.rules.end_after_ms is not None and self._idle_ms >= self.rules.end_after_ms:
            return LoopState.TIMED_OUT
        return LoopState.BLOCKED if self._idle_ms >= self.rules.release_after_ms else LoopState.RUNS

    def where(self) -> str:
        """The line of code that the thread of the loop is in."""
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - as above
        return described(self.rules.culprit_frame(frame) or frame)

    def _post(self) -> bool:
        self._was_called = False
        try:
            self._loop.call_soon_threadsafe(self._called)
        except RuntimeError:  # it was closed meanwhile
            return False
        return True

    def _called(self) -> None:
        """The posted callback, on the thread of the loop."""
        self._tracer = sys.gettrace()  # each thread has its own
        self._was_called = True

    def _runs_again(self) -> None:
        if self._is_logged:
            logger.info(
                "the event loop of worker %s runs again, after %.1f s",
                self._name,
                self.silent_seconds,
                extra=self._extra,
            )
        self._silent_ms = self._idle_ms = 0.0
        self._is_logged = False

    def _count(self, passed_ms: float) -> None:
        self._silent_ms += passed_ms
        slices = self.rules.slices()
        self._idle_ms = self._idle_ms + passed_ms if slices == self._slices else 0.0
        self._slices = slices

    def _log(self, frame: FrameType | None) -> None:
        if frame is not None and frame.f_globals.get("__name__") in IDLE_MODULES:
            return
        self._is_logged = True
        logger.warning(
            "the event loop of worker %s has not run for %.1f s, blocked in %s. Make the activity that blocks a plain "
            "`def`, which runs in a thread, or await instead",
            self._name,
            self.silent_seconds,
            described(self.rules.culprit_frame(frame) or frame),
            extra=self._extra,
        )

    @property
    def _extra(self) -> dict[str, str]:
        return {"holdfast_worker": self._name}


def described(frame: FrameType | None) -> str:
    """File, line and function of a frame, for messages."""
    if frame is None:
        return "a thread that has ended"
    return f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"


def is_debugged(frame: FrameType | None, tracer: object = None) -> bool:
    """Whether a debugger is attached: to the process, or to the thread that has this stack and tracer."""
    monitoring: Any = getattr(sys, "monitoring", None)  # from Python 3.12 on
    if monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None:
        return True
    if _is_debugger(tracer) or _is_pydevd_attached():
        return True
    while frame is not None:
        if _package(frame.f_globals.get("__name__")) in DEBUGGERS or _is_debugger(frame.f_trace):
            return True
        frame = frame.f_back
    return False


def _is_pydevd_attached() -> bool:
    current: Any = getattr(sys.modules.get(PYDEVD), "get_global_debugger", None)
    return current is not None and current() is not None


def _is_debugger(tracer: object) -> bool:
    module = getattr(tracer, "__module__", None) or type(tracer).__module__
    return tracer is not None and _package(module) not in TRACERS


def _package(module: object) -> str:
    return module.partition(".")[0] if isinstance(module, str) else ""
