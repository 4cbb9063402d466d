"""Waiting for instances to end: told at once by this process, and by a look when another process wakes us."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final

from holdfast.storage.contract import Close, InstanceId, InstanceRecord

logger = logging.getLogger("holdfast")

LOOK_SECONDS: Final = 1.0
"""How often is looked for an end that no wake-up told of."""
PAUSE_SECONDS: Final = 0.005
"""Between two looks that wake-ups ask for."""

Find = Callable[[InstanceId], Awaitable[InstanceRecord | None]]


class Waiters:
    """The futures of everyone who waits for an end, by instance."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._waiting: dict[InstanceId, list[asyncio.Future[Close | None]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    def ended(self, instance_id: InstanceId, close: Close | None = None) -> None:
        """An instance came to its end, or was parked. In this process one knows how, and nobody needs to look."""
        for future in self._waiting.pop(instance_id, ()):
            if not future.done():
                future.set_result(close)

    def look(self) -> None:
        """Another process has written something."""
        self._wake.set()

    async def wait(self, instance_id: InstanceId) -> None:
        """Return when the instance may have ended. The caller looks, and waits again if not."""
        with self.expecting(instance_id) as future:
            await future

    @contextmanager
    def expecting(self, instance_id: InstanceId) -> Generator[asyncio.Future[Close | None]]:
        """A future of the end: how it ended, if that happens in this process, or None, which says: look."""
        future: asyncio.Future[Close | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(instance_id, []).append(future)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look_for_ends(), name="holdfast-waiters")
        try:
            yield future
        finally:
            others = self._waiting.get(instance_id)
            if others is not None and future in others:
                others.remove(future)
                if not others:
                    del self._waiting[instance_id]

    def stop(self) -> None:
        """Nobody will tell any more."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        for futures in self._waiting.values():
            for future in futures:
                future.cancel()
        self._waiting.clear()

    async def _look_for_ends(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()  # before the look: what wakes us from here on is looked for in the next round
            try:
                await self._look()
            except Exception:
                logger.exception("looking for the ends of instances failed, and is tried again")
            await asyncio.sleep(PAUSE_SECONDS)

    async def _look(self) -> None:
        for instance_id in list(self._waiting):
            record = await self._find(instance_id)
            if record is None or record.closed_at_ms is not None or record.blocked is not None:
                self.ended(instance_id)
