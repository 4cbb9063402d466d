"""Waiting for anything to change in a store: told at once by this process and by others, and by a look now and then."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from holdfast.background import BackgroundTask, Duty
from holdfast.errors import StoreError

LOOK_SECONDS: Final = 1.0
"""How often is looked for a change that nobody told of."""
PAUSE_SECONDS: Final = 0.005
"""Between two looks, after the first ones: a busy store must not keep those busy who only wait."""
LOOKS_WITHOUT_PAUSE: Final = 3

Check = Callable[[], Awaitable[None]]
"""Raises `StoreReplaced` if the files of the store are gone: for a client that only waits, and commits nothing."""


def give_up(future: "asyncio.Future[Any]", error: Exception | None) -> None:
    """Let whoever waits for a future have an error, or cancel it where there is none."""
    if error is None:
        future.cancel()
    elif not future.done():
        future.set_exception(error)
        future.exception()  # seen: who does not come to wait for it any more is no news


class ChangeSignal:
    """Wakes everybody who waits. What there is to see is in the store."""

    def __init__(self, check_files: Check) -> None:
        self._check_files = check_files
        self._waiting: set[asyncio.Future[None]] = set()
        self._looking = BackgroundTask(Duty.CHANGES, self._look_now_and_then)

    def ring(self) -> None:
        """Something was committed, here or by another process."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def stop(self, error: Exception | None = None) -> None:
        """Nobody will ring any more: who still waits gets the error, or is cancelled."""
        self._looking.stop()
        for waiting in self._waiting:
            give_up(waiting, error)

    async def looks(self) -> AsyncGenerator[None]:
        """Comes back when it is time to look: at once, and then after every change that there may be."""
        looked = 0
        while True:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiting)  # before the look: what changes during it is not missed
            try:
                yield
                self._looking.start()
                await waiting
            finally:
                self._waiting.discard(waiting)
            looked += 1
            if looked >= LOOKS_WITHOUT_PAUSE:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _look_now_and_then(self) -> None:
        """For changes that no wake-up told of; as long as anybody waits."""
        await asyncio.sleep(LOOK_SECONDS)
        while self._waiting:
            with suppress(StoreError):  # the reads of those who wait raise it, too
                await self._check_files()
            self.ring()
            await asyncio.sleep(LOOK_SECONDS)
