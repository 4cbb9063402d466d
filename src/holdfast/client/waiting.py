"""Waiting for instances to end: told at once by this process, and by a look when another process wakes us."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from holdfast.background import BackgroundTask, Duty
from holdfast.client.changes import Check, give_up
from holdfast.errors import StoreReplaced
from holdfast.runtime.telling import RepeatedTrouble
from holdfast.storage.contract import InstanceEnd, InstanceId, InstanceNumber, InstanceRecord

LOOK_SECONDS: Final = 1.0
"""How often is looked for an end that no wake-up told of."""
PAUSE_SECONDS: Final = 0.005
"""Between two looks that wake-ups ask for."""

Read = Callable[[InstanceNumber], Awaitable[InstanceRecord | None]]


class ResultWaiter:
    """Somebody who waits. While its start is on its way the number of the instance is not known yet."""

    __slots__ = ("_future", "number", "told_of")

    def __init__(self, number: InstanceNumber | None) -> None:
        self.number = number
        self.told_of: InstanceNumber | None = None
        """Which instance ended. Somebody whose number is not known yet may be told of an earlier one of the id."""
        self._future: asyncio.Future[InstanceEnd | None] = asyncio.get_running_loop().create_future()

    async def ended(self) -> InstanceEnd | None:
        """How it ended, if that happened in this process; None says: look."""
        return await self._future

    def tell(self, number: InstanceNumber, close: InstanceEnd | None) -> None:
        if not self._future.done():
            self.told_of = number
            self._future.set_result(close)

    def give_up(self, error: Exception | None) -> None:
        """No answer will come: whoever waits gets the error, or is cancelled."""
        give_up(self._future, error)


class ResultWaiters:
    """Everyone who waits for an end. An id may have had several instances (G3), so each names its number, too."""

    def __init__(self, read: Read, check_files: Check, trouble: RepeatedTrouble | None = None) -> None:
        self._read = read
        self._check_files = check_files
        self._trouble = trouble or RepeatedTrouble()
        self._waiting: dict[InstanceId, list[ResultWaiter]] = {}
        self._looking = BackgroundTask(Duty.ENDS, self._look_for_ends)
        self._wake = asyncio.Event()

    def ended(self, instance_id: InstanceId, number: InstanceNumber, close: InstanceEnd | None = None) -> None:
        """An instance came to its end, or was parked. In this process one knows how, and nobody needs to look."""
        for waiting in self._waiting.get(instance_id, ()):
            if waiting.number == number or (waiting.number is None and close is not None):
                waiting.tell(number, close)

    def look(self) -> None:
        """Another process has written something."""
        self._wake.set()

    async def wait(self, instance_id: InstanceId, number: InstanceNumber) -> InstanceEnd | None:
        """Return when the instance may have ended: how, if one knows. Else the caller looks, and waits again if not."""
        waiting = self.expect(instance_id, number)
        try:
            return await waiting.ended()
        finally:
            self.forget(instance_id, waiting)

    def expect(self, instance_id: InstanceId, number: InstanceNumber | None = None) -> ResultWaiter:
        """Wait from here on, also for an instance that is yet to be started, until it is forgotten."""
        waiting = ResultWaiter(number)
        self._waiting.setdefault(instance_id, []).append(waiting)
        self._looking.start()
        return waiting

    def forget(self, instance_id: InstanceId, waiting: ResultWaiter) -> None:
        """Nobody waits there any more."""
        others = self._waiting.get(instance_id, [])
        if waiting in others:
            others.remove(waiting)
            if not others:
                del self._waiting[instance_id]

    def stop(self, error: Exception | None = None) -> None:
        """Nobody will tell any more: who still waits gets the error, or is cancelled."""
        self._looking.stop()
        for everyone in self._waiting.values():
            for waiting in everyone:
                waiting.give_up(error)
        self._waiting.clear()

    async def _look_for_ends(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()  # before the look: what wakes us from here on is looked for in the next round
            try:
                await self._look()
            except StoreReplaced as error:
                self.stop(error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits goes on waiting
                self._trouble.tell("looking for the ends of instances failed, and is tried again", error)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _look(self) -> None:
        await self._check_files()
        wanted = {
            (instance_id, waiting.number) for instance_id, everyone in self._waiting.items() for waiting in everyone
        }
        for instance_id, number in wanted:
            if number is not None:
                record = await self._read(number)
                if record is None or record.closed_at_ms is not None or record.blocked is not None:
                    self.ended(instance_id, number)
