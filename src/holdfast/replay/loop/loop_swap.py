"""Makes another event loop the running loop of this thread for the time of one call.

A worker runs turns on its own thread, inside its own asyncio loop, because a switch to another thread would cost
more than the turn. asyncio's state of a thread is swapped here: the running loop, the hooks of async
generators (the outer loop must never finalise a workflow's generators) and, from Python 3.14 on, the current
task. Up to 3.13 the current task is stored per loop, so that the outer one is not visible and needs no swap.
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
"""The functions that Python calls when an async generator begins, and when an unfinished one is dropped."""

CURRENT_TASK_IS_PER_THREAD: Final = sys.version_info >= (3, 14)


_here: dict[int, asyncio.AbstractEventLoop] = {}
"""The loop that is swapped in, by thread."""

_outside: dict[int, asyncio.AbstractEventLoop] = {}
"""The outer loop of a `LoopSwapBatch`, by thread. The hooks of async generators are set for the whole batch."""


def _forked() -> None:
    """In the child of a fork none of these loops runs, and a thread may have the number of one that has ended."""
    _here.clear()
    _outside.clear()


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_forked)


def swapped_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that is swapped in on this thread.

    asyncio needs a system call to return the running loop. It is used where the entry could be left over from a turn
    that was interrupted during the swap, as by a second Ctrl-C, and not inside of a `LoopSwapBatch`.
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
"""The state before the swap: the thread, a loop that was swapped in already (nested swaps), the running loop, its task,
and the hooks of async generators if they were replaced."""


def swap_in(loop: asyncio.AbstractEventLoop) -> SwappedOut:
    """Make `loop`, which has a method `hold_generator`, the running loop. The result is for `swap_out`."""
    thread = get_ident()
    here = _here.get(thread)
    hooks = None
    outer_loop = None if here is not None else _outside.get(thread)
    if outer_loop is None or not outer_loop.is_running():
        outer_loop = _get_running_loop()
        hooks = _set_hooks()
        if here is not outer_loop:
            here = None  # left over from an interrupted swap
    outer_task = _swap_current_task(outer_loop, None) if CURRENT_TASK_IS_PER_THREAD else None
    _set_running_loop(loop)
    _here[thread] = loop
    return thread, here, outer_loop, outer_task, hooks


def swap_out(outer: SwappedOut) -> None:
    """Restore the state before the swap."""
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
    """A context in which several loops are swapped in, one after the other, with the hooks of generators set once.

    Setting them costs more than the rest of the swap: Python raises two audit events for it. Only for code that does
    not await and begins no async generator of its own between the loops.
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
    """Set the hooks of async generators. The former ones; None if they were set already."""
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
    """Drop an unfinished generator without running it: its loop has been evicted."""
