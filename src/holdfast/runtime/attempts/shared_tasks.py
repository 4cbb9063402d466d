"""Tasks that carry bodies: one after the other on the same task, until one of them has to wait.

A task for each body would cost more than many bodies do, because they return without ever waiting. So a task carries
one body after the other, each in a context of its own. The first that waits keeps the task for itself, to its end, for
timeouts, task groups and cancellation are tied to the task they began in; another task goes on with the rest. Bodies of
a kind that was seen to wait have a task for themselves from the beginning.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, Protocol


class SharedTaskItem(Protocol):
    """Something with a body. `task` is the one that the body has for itself: none until it has to wait."""

    task: "asyncio.Task[None] | None"
    kind: str
    """Bodies of one kind are likely to behave alike."""


class SharedTasks:
    """Starts `run(item)` for every item that is added, and calls `rest` when no more can be done at once.

    All bodies begin with the context variables that were set when the carriers were made, and see none of each other's.
    """

    def __init__(self, run: Callable[[Any], Coroutine[Any, Any, None]], rest: Callable[[], None]) -> None:
        self._run = run
        self._rest = rest
        self._context = copy_context()
        self._queue: deque[SharedTaskItem] = deque()
        self._carrier: asyncio.Task[None] | None = None
        self._kinds_that_block: set[str] = set()

    @property
    def current_task(self) -> "asyncio.Task[None] | None":
        """The task that has the next bodies to begin with; none if there are none."""
        return self._carrier

    def add(self, item: SharedTaskItem) -> None:
        """Begin with an item in the next round of the event loop."""
        if item.kind in self._kinds_that_block:
            item.task = self._new_task(self._carry_one(item))
            return
        self._queue.append(item)
        if self._carrier is None or self._carrier.done():
            self._carrier = self._new_task(self._carry())

    def _new_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(work, context=self._context)

    async def _carry_one(self, item: SharedTaskItem) -> None:
        body, context = self._run(item), copy_context()
        try:
            await _Remainder(body, context, context.run(body.send, None))
        except StopIteration:
            pass  # it did not wait this time
        finally:
            self._rest()

    async def _carry(self) -> None:
        task = asyncio.current_task()
        try:
            while self._queue and self._carrier is task and not (task and task.cancelling()):
                item = self._queue.popleft()
                body, context = self._run(item), copy_context()
                try:
                    waits_for = context.run(body.send, None)
                except StopIteration:
                    continue  # it has come to its end, and told so itself
                self._keep(item, task)
                await _Remainder(body, context, waits_for)
        finally:
            if self._carrier is task:
                self._pass_on()
            self._rest()

    def _keep(self, item: SharedTaskItem, task: "asyncio.Task[None] | None") -> None:
        """An item has to wait: it keeps the task it is on, and others act upon what ended before it."""
        item.task = task
        self._kinds_that_block.add(item.kind)
        self._pass_on()
        self._rest()

    def _pass_on(self) -> None:
        self._carrier = self._new_task(self._carry()) if self._queue else None


class _Remainder:
    """Awaits the rest of a body that has begun, in its own context. `waits_for`: what it gave when it had to wait."""

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
                except BaseException as thrown:  # noqa: BLE001 - whatever is thrown in is for the body
                    error = thrown
                # Here nothing is being handled: what the body raises gets no context that is not its own.
                waits_for = run(send, answer) if error is None else run(throw, error)
        except StopIteration:
            return
