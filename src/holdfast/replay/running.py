"""Takes the place of the thread's running event loop for the time of one call, and gives it back.

A worker runs turns on its own thread, inside its own asyncio loop, because a hop to another thread would cost
more than the turn. What asyncio keeps per thread is switched here: the running loop, the hooks of async
generators (the outer loop must never finalise a workflow's generators) and, from Python 3.14 on, the current
task. Up to 3.13 the current task is kept per loop, so the outer one is out of sight and untouched.
"""

import asyncio
import sys
from asyncio import _get_running_loop, _set_running_loop, tasks
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, ParamSpec, Protocol, TypeVar, TypeVarTuple

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

Arguments = TypeVarTuple("Arguments")

CURRENT_TASK_IS_PER_THREAD: Final = sys.version_info >= (3, 14)


class Watch(Protocol):
    """Calls workflow code, and raises `TurnTooLong` if it had to be stopped from outside."""

    def __call__(self, work: Callable[[*Arguments], Result], *args: *Arguments) -> Result: ...


def unwatched(work: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
    """The watch that nobody keeps."""
    return work(*args)


def run_in_place(
    loop: asyncio.AbstractEventLoop,
    hold_generator: Callable[[AsyncGenerator[Any, Any]], None],
    work: Callable[Parameters, Result],
    *args: Parameters.args,
    **kwargs: Parameters.kwargs,
) -> Result:
    """Call `work` with `loop` as the running loop. Every way out restores the outer one."""
    outer = take_place(loop, hold_generator)
    try:
        return work(*args, **kwargs)
    finally:
        give_place_back(outer)


Outer = tuple[asyncio.AbstractEventLoop | None, "asyncio.Task[Any] | None", Any]
"""What was there before: the running loop, its task, and the hooks of async generators."""


def take_place(loop: asyncio.AbstractEventLoop, hold_generator: Callable[[AsyncGenerator[Any, Any]], None]) -> Outer:
    """Make `loop` the running loop. The answer is for `give_place_back`."""
    outer_loop = _get_running_loop()
    outer_task = _swap_current_task(outer_loop, None) if CURRENT_TASK_IS_PER_THREAD else None
    outer_hooks = sys.get_asyncgen_hooks()
    _set_running_loop(loop)
    sys.set_asyncgen_hooks(hold_generator, _leave_unfinished)
    return outer_loop, outer_task, outer_hooks


def give_place_back(outer: Outer) -> None:
    """Restore what was there."""
    outer_loop, outer_task, outer_hooks = outer
    sys.set_asyncgen_hooks(*outer_hooks)
    _set_running_loop(outer_loop)
    if CURRENT_TASK_IS_PER_THREAD:
        _swap_current_task(outer_loop, outer_task)


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
