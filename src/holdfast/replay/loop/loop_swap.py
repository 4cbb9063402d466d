"""Takes the place of the thread's running event loop for the time of one call, and gives it back.

A worker runs turns on its own thread, inside its own asyncio loop, because a hop to another thread would cost
more than the turn. What asyncio keeps per thread is switched here: the running loop, the hooks of async
generators (the outer loop must never finalise a workflow's generators) and, from Python 3.14 on, the current
task. Up to 3.13 the current task is kept per loop, so the outer one is out of sight and untouched.
"""

import asyncio
import os
import sys
from asyncio import _get_running_loop, _set_running_loop, tasks
from collections.abc import AsyncGenerator, Callable
from threading import get_ident
from typing import Any, Final, ParamSpec, TypeVar, TypeVarTuple

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

Arguments = TypeVarTuple("Arguments")

Hooks = tuple[Any, Any]
"""What Python calls when an async generator begins, and when an unfinished one is let go."""

CURRENT_TASK_IS_PER_THREAD: Final = sys.version_info >= (3, 14)


_here: dict[int, asyncio.AbstractEventLoop] = {}
"""The loop that took the place of another, on each thread where one did."""

_outside: dict[int, asyncio.AbstractEventLoop] = {}
"""The loop whose place is taken by one after the other, and whose hooks are ours meanwhile; see `OneAfterTheOther`."""


def _forked() -> None:
    """In the child of a fork none of these loops runs, and a thread may have the number of one that is gone."""
    _here.clear()
    _outside.clear()


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_forked)


def swapped_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that has taken the place of another on this thread.

    asyncio makes a system call to answer that. It is asked where the answer could be left over from a turn that was
    interrupted at the worst moment, as by a second Ctrl-C: never while turns are taken one after the other.
    """
    thread = get_ident()
    loop = _here.get(thread)
    if loop is None or thread in _outside:
        return loop
    return loop if _get_running_loop() is loop else None


def run_swapped(
    loop: asyncio.AbstractEventLoop,
    work: Callable[Parameters, Result],
    *args: Parameters.args,
    **kwargs: Parameters.kwargs,
) -> Result:
    """Call `work` with `loop` as the running loop. Every way out restores the outer one."""
    outer = swap_in(loop)
    try:
        return work(*args, **kwargs)
    finally:
        swap_out(outer)


AnyLoop = asyncio.AbstractEventLoop | None
SwappedOut = tuple[int, AnyLoop, AnyLoop, "asyncio.Task[Any] | None", "Hooks | None"]
"""What was there before: the thread, a loop that had taken the place already (one in another), the running loop, its
task, and the hooks of async generators if they were not ours."""


def swap_in(loop: asyncio.AbstractEventLoop) -> SwappedOut:
    """Make `loop`, which has a method `hold_generator`, the running loop. The answer is for `give_place_back`."""
    thread = get_ident()
    here, hooks = _here.get(thread), None
    outer_loop = None if here is not None else _outside.get(thread)
    if outer_loop is None or not outer_loop.is_running():
        outer_loop, hooks = _get_running_loop(), _set_hooks()
        if here is not outer_loop:
            here = None  # there was none, or it is left over
    outer_task = _swap_current_task(outer_loop, None) if CURRENT_TASK_IS_PER_THREAD else None
    _set_running_loop(loop)
    _here[thread] = loop
    return thread, here, outer_loop, outer_task, hooks


def swap_out(outer: SwappedOut) -> None:
    """Restore what was there."""
    thread, here, outer_loop, outer_task, outer_hooks = outer
    if here is None:
        _here.pop(thread, None)
    else:
        _here[thread] = here
    if outer_hooks is not None:
        sys.set_asyncgen_hooks(*outer_hooks)
    _set_running_loop(outer_loop)
    if CURRENT_TASK_IS_PER_THREAD:
        _swap_current_task(outer_loop, outer_task)


class LoopSwapBatch:
    """A context in which loops take the place of the same one after the other, and find the hooks of generators set.

    Setting them costs more than the rest of the change: Python raises two audit events for it. Only for code that runs
    without a pause and begins no async generator of its own between the loops.
    """

    __slots__ = ("_hooks", "_thread")

    def __enter__(self) -> None:
        self._thread = get_ident()
        self._hooks = _set_hooks()
        outer_loop = _get_running_loop()
        if outer_loop is not None and self._thread not in _here:
            _outside[self._thread] = outer_loop

    def __exit__(self, *_: object) -> None:
        _outside.pop(self._thread, None)
        if self._hooks is not None:
            sys.set_asyncgen_hooks(*self._hooks)


def _set_hooks() -> "Hooks | None":
    """Make the hooks of async generators ours; the answer is what they were, None if they were ours already."""
    hooks = sys.get_asyncgen_hooks()
    if hooks.firstiter is _hold:
        return None
    sys.set_asyncgen_hooks(_hold, _leave_unfinished)
    return hooks.firstiter, hooks.finalizer


def _hold(generator: AsyncGenerator[Any, Any]) -> None:
    holder: Any = _get_running_loop()
    holder.hold_generator(generator)


def _swap_current_task(
    loop: asyncio.AbstractEventLoop | None, task: "asyncio.Task[Any] | None"
) -> "asyncio.Task[Any] | None":
    if loop is None:
        return None
    swap: Callable[..., Any] = vars(tasks)["_swap_current_task"]
    before: asyncio.Task[Any] | None = swap(loop, task)
    return before


def _leave_unfinished(_generator: AsyncGenerator[Any, Any]) -> None:
    """Let an unfinished generator go without running any of it: its loop has been evicted."""
