"""Tasks, futures and handles of the workflow loop.

``asyncio.wait``, ``as_completed`` and ``TaskGroup`` keep tasks and futures in sets, and a set iterates in the
order of hashes. The usual hash is the address, which differs from run to run; here it is the creation number
within the loop, so that every set of them iterates in the same order in every replay. Equality stays
identity.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any


class WorkflowFuture(asyncio.Future[Any]):
    """A future that is hashed by its creation number."""

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        """Return the creation number, or for a moment the address (see `WorkflowTask`)."""
        try:
            return self.number
        except AttributeError:
            return id(self)


class WorkflowTask(asyncio.Task[Any]):
    """A task that is hashed by its creation number.

    The number is set right after construction, and that order matters. The constructor enters the task into
    asyncio's process-wide set of weak references, which keeps the hash it saw: the address. Had it seen the
    number, the first tasks of ten thousand workflows would all collide in that set.
    """

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        """Return the creation number, or the address while asyncio's constructor runs."""
        try:
            return self.number
        except AttributeError:
            return id(self)


class ReadyHandle(asyncio.Handle):
    """A callback in the ready queue: asyncio's handle without its debug machinery. One is made per step."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


NO_TIMER = 0
"""The number of a timer handle that is no durable timer: due at once, or never."""


def _nothing(*_arguments: object) -> None:
    """Stand in for the callback of a cancelled handle."""


class TimerHandle(asyncio.TimerHandle):
    """What ``call_later`` and ``call_at`` return. Cancelling it tells the loop, once."""

    __slots__ = ("_tell", "number")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        *,
        context: Context | None,
        number: int = NO_TIMER,
        tell: "Callable[[TimerHandle], None]" = _nothing,
    ) -> None:
        self._when = when
        self._scheduled = False
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self.number = number
        self._tell = tell

    def cancel(self) -> None:
        """Drop the callback, and tell the loop if a durable timer was to bring it."""
        if not self._cancelled:
            self._cancelled = True
            self._callback = _nothing
            self._args = ()
            if self.number != NO_TIMER:
                self._tell(self)
