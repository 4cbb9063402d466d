"""Methods of asyncio's classes that differ between Python minors, or even patch releases, in one version for
all.

See the table in `compat`. They are replaced on the classes themselves, so that a class imported by name, and
a subclass, have them too. Outside a workflow loop the originals run.
"""

import asyncio
import functools
import inspect
from asyncio import locks, taskgroups
from collections import deque
from collections.abc import Callable
from typing import Any


def install_primitives(running_workflow_loop: Callable[[], object | None]) -> None:
    """Put the dispatching methods onto asyncio's classes."""
    for owner, name, ours in (
        (locks.Semaphore, "acquire", acquire_semaphore),
        (locks.Semaphore, "release", release_semaphore),
        (locks.Condition, "wait", wait_for_condition),
        (taskgroups.TaskGroup, "__aexit__", leave_task_group),
    ):
        setattr(owner, name, dispatch(getattr(owner, name), ours, running_workflow_loop))


def dispatch(
    original: Callable[..., Any], ours: Callable[..., Any], running_workflow_loop: Callable[[], object | None]
) -> Callable[..., Any]:
    """Return a function that looks like `original` and is `ours` under a workflow loop.

    That of a coroutine function decides when it is awaited: its coroutine may be made outside its loop.
    """

    async def decide_when_awaited(*args: Any, **kwargs: Any) -> Any:
        return await (original if running_workflow_loop() is None else ours)(*args, **kwargs)

    def decide_when_called(*args: Any, **kwargs: Any) -> Any:
        return (original if running_workflow_loop() is None else ours)(*args, **kwargs)

    is_coroutine_function = inspect.iscoroutinefunction(original)
    return functools.wraps(original)(decide_when_awaited if is_coroutine_function else decide_when_called)


# ---------------------------------------------------------------------- semaphores: first come, first served


async def acquire_semaphore(self: Any) -> bool:
    """Take a place at once if one is free and nobody waits; else wait in line.

    A place is handed over by counting it down before its new holder wakes, so nobody can jump the line. A
    holder that is cancelled between the two gives it to the next.
    """
    waiting: deque[asyncio.Future[bool]] | None = self._waiters
    if self._value > 0 and all(waiter.cancelled() for waiter in waiting or ()):
        self._value -= 1
        return True
    if waiting is None:
        waiting = deque[asyncio.Future[bool]]()
        self._waiters = waiting
    place: asyncio.Future[bool] = self._get_loop().create_future()
    waiting.append(place)
    try:
        await place
    except asyncio.CancelledError:
        if place.done() and not place.cancelled():
            self._value += 1
        raise
    finally:
        waiting.remove(place)
        while self._value > 0 and _hand_over_a_place(self):
            pass
    return True


def release_semaphore(self: Any) -> None:
    """Give a place back, and hand it to the first in line."""
    self._value += 1
    _hand_over_a_place(self)


def _hand_over_a_place(semaphore: Any) -> bool:
    for waiter in semaphore._waiters or ():  # noqa: SLF001 - these are methods of the class
        if not waiter.done():
            semaphore._value -= 1  # noqa: SLF001
            waiter.set_result(True)
            return True
    return False


# ---------------------------------------------------------------------- conditions


async def wait_for_condition(self: Any) -> bool:
    """Release the lock, wait to be notified, and hold the lock again on every way out.

    A task that was notified and fails to return passes its notification on.
    """
    if not self.locked():
        raise RuntimeError("cannot wait on un-acquired lock")
    notified: asyncio.Future[bool] = self._get_loop().create_future()
    self.release()
    try:
        try:
            self._waiters.append(notified)
            try:
                await notified
            finally:
                self._waiters.remove(notified)
        finally:
            await _acquire_in_spite_of_cancellation(self)
    except BaseException:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(False)
                break
        raise
    return True


async def _acquire_in_spite_of_cancellation(condition: Any) -> None:
    cancellation: asyncio.CancelledError | None = None
    while True:
        try:
            await condition.acquire()
            break
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation


# ---------------------------------------------------------------------- task groups


async def leave_task_group(
    self: Any, error_type: type[BaseException] | None, error: BaseException | None, _traceback: object
) -> None:
    """Wait for the members, then raise what they and the body raised, as one group.

    A cancellation from outside comes through if no member failed. If one did, the group of failures is raised
    instead, and the parent keeps its count of cancellations without being cancelled a second time.
    """
    self._exiting = True
    if error is not None and self._base_error is None and self._is_base_error(error):
        self._base_error = error
    was_cancelled = error_type is not None and issubclass(error_type, asyncio.CancelledError)
    cancellation = error if was_cancelled else None
    if error_type is not None and not self._aborting:
        self._abort()
    while self._tasks:
        if self._on_completed_fut is None:
            self._on_completed_fut = self._loop.create_future()
        try:
            await self._on_completed_fut
        except asyncio.CancelledError as another:
            if not self._aborting:
                cancellation = another
                self._abort()
        self._on_completed_fut = None
    if self._base_error is not None:
        raise self._base_error
    if self._parent_cancel_requested and self._parent_task.uncancel() == 0:
        # The cancellation was the group's own, to interrupt its body.
        cancellation = None
    if cancellation is not None and not self._errors:
        raise cancellation
    if error is not None and not was_cancelled:
        self._errors.append(error)
    if self._errors:
        failures, self._errors = self._errors, None
        raise BaseExceptionGroup("unhandled errors in a TaskGroup", failures) from None
