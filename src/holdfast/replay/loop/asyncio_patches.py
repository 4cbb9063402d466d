"""asyncio functions and primitives that take the same steps under a workflow loop on every Python minor.

A history recorded on one Python has to replay on the others: the same timers, the same order of steps.
asyncio changed both between 3.11 and 3.13. The differences, and the behaviour here:

- ``wait_for``: 3.11 wraps a coroutine into a task, 3.12 awaits it in the calling task. Here as in 3.12.
- ``as_completed``: 3.13 begins at the call, the others at the first iteration, and all of them order
  coroutines by address. Here it begins at the call, in the order of the arguments, and has ``async for``.
- ``gather``: 3.12 handles members that are done at once, 3.11 one step later; the future it returns hashes
  by address. Here they are handled at once, and the future has a creation number.
- ``Semaphore.acquire``: 3.13 and some patch releases changed which waiter wakes after a cancellation. Here as in 3.13.
- ``Condition.wait``: 3.13 passes a lost notification on. Here, too.
- ``TaskGroup``: 3.13 cancels its parent a second time if that was cancelled from outside while members
  failed. Not here, as in 3.11 and 3.12, because of the next item.
- ``Task.uncancel``: 3.13 takes back a cancellation that was not delivered yet when the count reaches zero.
  Not neutralised. To see it a task has to cancel itself and uncancel before its next ``await``.
- ``Queue.shutdown`` is new in 3.13. Code that uses it does not run on the others at all.

``wait``, ``shield``, ``timeout``, ``sleep``, ``Lock``, ``Event`` and ``Queue`` take the same steps on all
three.

The functions are replaced in asyncio by dispatchers, which call the original unless the running loop is a workflow
loop. A module that ran ``from asyncio import gather`` before `install` keeps the original. Its results are still right
and still deterministic on that Python, but a history made with it may not replay on another minor, and the original
``as_completed`` orders coroutines by address. `install` runs when this module is imported, so it is enough to import
holdfast before such a module; ``asyncio.gather(...)`` by its full name is always right. Methods are replaced on the
classes themselves, so that a class imported by name, and a subclass, have them, too.
"""

import asyncio
import functools
import inspect
import math
from asyncio import locks, taskgroups, tasks
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from holdfast.errors import InvalidDelay
from holdfast.replay.loop.loop_swap import swapped_loop
from holdfast.replay.loop.restricted_loops import IsolatedLoop
from holdfast.replay.loop.tasks import WorkflowFuture, WorkflowTask


def running_workflow_loop() -> IsolatedLoop | None:
    """The running loop if it is a workflow's."""
    loop = swapped_loop()
    return loop if isinstance(loop, IsolatedLoop) else None


def dispatch(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """A function that looks like `original` and calls `ours` under a workflow loop.

    That of a coroutine function decides when it is awaited: its coroutine may be made outside its loop.
    """

    async def decide_when_awaited(*args: Any, **kwargs: Any) -> Any:
        return await (original if running_workflow_loop() is None else ours)(*args, **kwargs)

    def decide_when_called(*args: Any, **kwargs: Any) -> Any:
        return (original if running_workflow_loop() is None else ours)(*args, **kwargs)

    is_coroutine_function = inspect.iscoroutinefunction(original)
    return functools.wraps(original)(decide_when_awaited if is_coroutine_function else decide_when_called)


# ---------------------------------------------------------------------- semaphores: first in, first out


async def acquire_semaphore(self: Any) -> bool:
    """Acquire at once if the counter is positive and no task waits; else wait in the order of calls.

    `release` decrements the counter for the next waiter before that one wakes, so that no other task can acquire in
    between. A waiter that is cancelled between the two passes its place on to the next.
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
        while self._value > 0 and _wake_first_waiter(self):
            pass
    return True


def release_semaphore(self: Any) -> None:
    """Increment the counter, and wake the first waiter."""
    self._value += 1
    _wake_first_waiter(self)


def _wake_first_waiter(semaphore: Any) -> bool:
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
    """Wait for the members, then raise the errors of the members and of the body as one group.

    A cancellation from outside is raised if no member failed. If one did, the group of failures is raised
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
        failures = self._errors
        self._errors = None
        raise BaseExceptionGroup("unhandled errors in a TaskGroup", failures) from None


# ---------------------------------------------------------------------- wait_for


async def wait_for(fut: Awaitable[Any], timeout: float | None) -> Any:  # noqa: ASYNC109 - asyncio's signature
    """Await `fut` in the calling task for at most `timeout` seconds.

    One durable timer, started before the first step of `fut`; none for ``None`` or for zero and less, where a future
    that is not done is cancelled and awaited.
    """
    if timeout is not None and math.isnan(timeout):
        if inspect.iscoroutine(fut):
            fut.close()
        raise InvalidDelay("the time-out of wait_for was NaN, expected a number of seconds")
    if timeout is None or timeout > 0:
        async with asyncio.timeout(timeout):
            return await fut
    future = asyncio.ensure_future(fut)
    if not future.done():
        waiter = asyncio.get_running_loop().create_future()
        release = functools.partial(_release, waiter)
        future.add_done_callback(release)
        try:
            future.cancel()
            await waiter
        finally:
            future.remove_done_callback(release)
    try:
        return future.result()
    except asyncio.CancelledError as error:
        raise TimeoutError from error


def _release(waiter: "asyncio.Future[None]", _future: "asyncio.Future[Any]") -> None:
    if not waiter.done():
        waiter.set_result(None)


# ---------------------------------------------------------------------- as_completed


def as_completed(fs: Iterable[Awaitable[Any]], *, timeout: float | None = None) -> "CompletionIterator":
    """An iterator over `fs` in the order of completion, for ``for`` and for ``async for``."""
    if inspect.isawaitable(fs):
        raise TypeError(f"expects an iterable of awaitables, not {type(fs).__name__}")
    return CompletionIterator(fs, timeout)


class CompletionIterator:
    """Yields awaitables of the next result (``for``), or the finished futures themselves (``async for``).

    Duplicates count once. Tasks are made, and callbacks added, in the order of the arguments. One durable
    timer if there is a timeout, cancelled with the last completion.
    """

    def __init__(self, awaitables: Iterable[Awaitable[Any]], timeout: float | None) -> None:
        self._finished: asyncio.Queue[asyncio.Future[Any] | None] = asyncio.Queue()
        self._timer: asyncio.TimerHandle | None = None
        unique = {id(awaitable): awaitable for awaitable in awaitables}
        futures = [asyncio.ensure_future(awaitable) for awaitable in unique.values()]
        self._unfinished = {id(future): future for future in futures}
        self._left = len(self._unfinished)
        for future in self._unfinished.values():
            future.add_done_callback(self._on_completion)
        if self._unfinished and timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(timeout, self._on_timeout)

    def _on_completion(self, future: "asyncio.Future[Any]") -> None:
        if self._unfinished.pop(id(future), None) is None:
            return
        self._finished.put_nowait(future)
        if not self._unfinished and self._timer is not None:
            self._timer.cancel()

    def _on_timeout(self) -> None:
        for future in self._unfinished.values():
            future.remove_done_callback(self._on_completion)
            self._finished.put_nowait(None)
        self._unfinished.clear()

    async def _next_future(self) -> "asyncio.Future[Any]":
        future = await self._finished.get()
        if future is None:
            raise TimeoutError
        return future

    async def _next_result(self) -> Any:
        return (await self._next_future()).result()

    def _take_one(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def __iter__(self) -> "CompletionIterator":
        return self

    def __next__(self) -> Awaitable[Any]:
        if not self._take_one():
            raise StopIteration
        return self._next_result()

    def __aiter__(self) -> "CompletionIterator":
        return self

    async def __anext__(self) -> "asyncio.Future[Any]":
        if not self._take_one():
            raise StopAsyncIteration
        return await self._next_future()


# ---------------------------------------------------------------------- gather


def gather(*coros_or_futures: Awaitable[Any], return_exceptions: bool = False) -> "asyncio.Future[list[Any]]":
    """A future of the results of all members, in the order of the arguments.

    Members that are done already count at once. With none left to wait for, the returned future is done.
    """
    loop = running_workflow_loop()
    if loop is None:
        raise RuntimeError("holdfast.replay.loop.asyncio_patches.gather runs under a workflow loop only")
    outer = GatheringFuture(loop=loop)
    made: dict[int, asyncio.Future[Any]] = {}
    for awaitable in coros_or_futures:
        key = id(awaitable)
        if key not in made:
            if isinstance(awaitable, WorkflowFuture | WorkflowTask) and awaitable.get_loop() is loop:
                made[key] = awaitable
            else:
                made[key] = asyncio.ensure_future(awaitable, loop=loop)
    members = [made[id(awaitable)] for awaitable in coros_or_futures]
    outer.begin(loop.next_number(), members, list(made.values()), return_exceptions)
    return outer


class GatheringFuture(WorkflowFuture):
    """The future of a gather. Cancelling it cancels the members; it ends when they have."""

    __slots__ = ("_distinct", "_members", "_return_exceptions", "_unfinished", "_was_cancelled")

    def begin(
        self,
        number: int,
        members: "list[asyncio.Future[Any]]",
        distinct: "list[asyncio.Future[Any]]",
        return_exceptions: bool,
    ) -> None:
        """Watch every distinct member; `members` has one entry for each argument."""
        self.number = number
        self._members = members
        self._distinct = distinct
        self._return_exceptions = return_exceptions
        self._was_cancelled = False
        self._unfinished = len(distinct)
        if not distinct:
            self.set_result([])
            return
        finished_before: list[asyncio.Future[Any]] = []
        on_done = self._on_done
        for member in distinct:
            if member.done():
                finished_before.append(member)
            else:
                member.add_done_callback(on_done)
        for member in finished_before:
            on_done(member)

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the members that are not done. Whether there was one."""
        if self.done():
            return False
        # Every member is cancelled: no generator here, which `any` would stop early.
        cancelled = [member.cancel(msg=msg) for member in self._distinct]
        self._was_cancelled = self._was_cancelled or any(cancelled)
        return any(cancelled)

    def _on_done(self, member: "asyncio.Future[Any]") -> None:
        self._unfinished -= 1
        if self.done():
            if not member.cancelled():
                member.exception()  # Marks it as seen: the gather has reported another failure already.
            return
        if not self._return_exceptions and (member.cancelled() or member.exception() is not None):
            self.set_exception(_error_of(member) or asyncio.CancelledError())
            return
        if self._unfinished == 0:
            self._finish(member)

    def _finish(self, last: "asyncio.Future[Any]") -> None:
        if self._was_cancelled:
            # It raises CancelledError even with return_exceptions, and marks every failure as seen.
            for member in self._distinct:
                _outcome_of(member)
            self.set_exception((_error_of(last) if last.cancelled() else None) or asyncio.CancelledError())
        elif self._return_exceptions:
            self.set_result([_outcome_of(member) for member in self._members])
        else:
            self.set_result([member.result() for member in self._members])


def _error_of(member: Any) -> BaseException | None:
    """The error that awaiting `member` would raise. asyncio's own method keeps the traceback of a cancellation."""
    error: BaseException | None
    error = member._make_cancelled_error() if member.cancelled() else member.exception()  # noqa: SLF001
    return error


def _outcome_of(member: "asyncio.Future[Any]") -> Any:
    if member.cancelled():
        return asyncio.CancelledError(getattr(member, "_cancel_message", None) or "")
    error = member.exception()
    return member.result() if error is None else error


# ---------------------------------------------------------------------- installing


_installed = False


def install() -> None:
    """Put the dispatchers into asyncio. A second call changes nothing."""
    global _installed  # noqa: PLW0603 - one process has one asyncio
    if _installed:
        return
    _installed = True
    for name, ours in (("wait_for", wait_for), ("as_completed", as_completed), ("gather", gather)):
        dispatcher = dispatch(getattr(tasks, name), ours)
        setattr(tasks, name, dispatcher)
        setattr(asyncio, name, dispatcher)
    for owner, name, method in (
        (locks.Semaphore, "acquire", acquire_semaphore),
        (locks.Semaphore, "release", release_semaphore),
        (locks.Condition, "wait", wait_for_condition),
        (taskgroups.TaskGroup, "__aexit__", leave_task_group),
    ):
        setattr(owner, name, dispatch(getattr(owner, name), method))


install()
