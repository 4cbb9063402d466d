"""The context of a worker: made by ``context=`` before it takes work, and closed when its bodies have ended (A12).

One task enters the context manager and leaves it, as its cancel scopes and context variables require.
"""

import asyncio
import inspect
import logging
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, cast

from holdfast.authoring.provided import NO_CONTEXT, ContextFactory
from holdfast.errors import ContextFailed, InvalidOption
from holdfast.payloads.failures import describe_error

logger: Final = logging.getLogger("holdfast")


class ProvidedContext:
    """Entered once and left once."""

    def __init__(self, factory: ContextFactory | None) -> None:
        self._factory = factory
        self._entered: asyncio.Future[None] | None = None
        self._leaving = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.value: Any = NO_CONTEXT

    async def enter(self) -> None:
        """Make the context. Raises `ContextFailed` if that fails."""
        factory = self._factory
        if factory is None:
            return
        loop = asyncio.get_running_loop()
        self._entered = loop.create_future()
        self._task = task = loop.create_task(self._keep(factory, self._entered), name="holdfast-context")
        try:
            await asyncio.wait({task, self._entered}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            self._task = None
            error = asyncio.CancelledError("it was cancelled") if task.cancelled() else task.exception()
            name = getattr(factory, "__qualname__", repr(factory))
            reason = "it ended without a value" if error is None else describe_error(error)
            raise ContextFailed(f"the context of the worker could not be made by {name}: {reason}") from error

    async def leave(self) -> None:
        """Close the context. An error of it is logged: the bodies have ended, and their ends are recorded."""
        task = self._task
        self._task = None
        if task is None:
            return
        self._leaving.set()
        await asyncio.wait({task})
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("the context of the worker failed while it was closed", exc_info=error)

    async def _keep(self, factory: ContextFactory, entered: "asyncio.Future[None]") -> None:
        async with _checked(factory()) as value:
            self.value = value
            entered.set_result(None)
            await self._leaving.wait()


def _checked(manager: object) -> AbstractAsyncContextManager[Any]:
    kind = type(manager)
    if not (hasattr(kind, "__aenter__") and hasattr(kind, "__aexit__")):
        if inspect.iscoroutine(manager):
            manager.close()
        raise InvalidOption(
            f"it returned a {kind.__qualname__}, not an async context manager; write @contextlib.asynccontextmanager "
            f"above an `async def` that yields the context once"
        )
    return cast("AbstractAsyncContextManager[Any]", manager)
