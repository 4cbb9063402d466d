"""Several bodies on one task, one after the other, until one of them has to wait.

A task for each body costs more than many bodies do, because they return without ever waiting. So one task runs one body
after the other, each in a context of its own. The first body that waits keeps the task until its end, because
time-outs, task groups and cancellation are tied to the task they began in; a new task runs the rest. A kind of body
that has waited once gets a task of its own from the beginning.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, Protocol


class SharedTaskItem(Protocol):
    """Something with a body. `task` is the task that only this body uses: None until the body has to wait."""

    task: "asyncio.Task[None] | None"
    kind: str
    """Bodies of one kind are assumed to behave alike: they wait, or they do not."""


class SharedTasks:
    """Starts `run(item)` for every item that is added, and calls `rest` when no further body can run at once.

    All bodies begin with the context variables of the moment when this object was made, and see none of each other's.
    """

    def __init__(self, run: Callable[[Any], Coroutine[Any, Any, None]], rest: Callable[[], None]) -> None:
        self._run = run
        self._rest = rest
        self._context = copy_context()
        self._queue: deque[SharedTaskItem] = deque()
        self._shared: asyncio.Task[None] | None = None
        self._kinds_that_wait: set[str] = set()

    @property
    def current_task(self) -> "asyncio.Task[None] | None":
        """The task that runs the queued bodies; None if there are none."""
        return self._shared

    def add(self, item: SharedTaskItem) -> None:
        """Start an item in the next round of the event loop."""
        if item.kind in self._kinds_that_wait:
            item.task = self._new_task(self._run_alone(item))
            return
        self._queue.append(item)
        if self._shared is None or self._shared.done():
            self._shared = self._new_task(self._run_queue())

    def _new_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(work, context=self._context)

    async def _run_alone(self, item: SharedTaskItem) -> None:
        body, context = self._run(item), copy_context()
        try:
            await _Remainder(body, context, context.run(body.send, None))
        except StopIteration:
            pass  # this time it did not wait
        finally:
            self._rest()

    async def _run_queue(self) -> None:
        task = asyncio.current_task()
        try:
            while self._queue and self._shared is task and not (task and task.cancelling()):
                item = self._queue.popleft()
                body, context = self._run(item), copy_context()
                try:
                    waits_for = context.run(body.send, None)
                except StopIteration:
                    continue  # the body has ended
                self._keep(item, task)
                await _Remainder(body, context, waits_for)
        finally:
            if self._shared is task:
                self._start_next()
            self._rest()

    def _keep(self, item: SharedTaskItem, task: "asyncio.Task[None] | None") -> None:
        """An item has to wait: it keeps its task, and `rest` handles the bodies that ended before it."""
        item.task = task
        self._kinds_that_wait.add(item.kind)
        self._start_next()
        self._rest()

    def _start_next(self) -> None:
        self._shared = self._new_task(self._run_queue()) if self._queue else None


class _Remainder:
    """Awaits the rest of a body that has begun, in its own context. `waits_for`: the future that it awaits first."""

    __slots__ = ("_body", "_context", "_waits_for")

    def __init__(self, body: Coroutine[Any, Any, None], context: Context, waits_for: Any) -> None:
        self._body = body
        self._context = context
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        run, send, throw, waits_for = self._context.run, self._body.send, self._body.throw, self._waits_for
        try:
            while True:
                answer, error = None, None
                try:
                    answer = yield waits_for
                except BaseException as thrown:  # noqa: BLE001 - any exception is passed to the body
                    error = thrown
                # Outside of the handler: exceptions of the body get no `__context__` that is not their own.
                waits_for = run(send, answer) if error is None else run(throw, error)
        except StopIteration:
            return
