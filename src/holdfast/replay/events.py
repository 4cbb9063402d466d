"""Waiting for events by name (G6): each wait gets one event, in the order in which the waits began.

A wait has the type of its value. An event that does not fit is set aside, which the history records, and the wait goes
on in its place: what a sender wrote wrong never ends the workflow.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdfast.core import history as ev
from holdfast.core.history import Payload
from holdfast.errors import PayloadError
from holdfast.payloads.limits import shorten
from holdfast.replay.loop.event_loop import WorkflowLoop

Emit = Callable[[ev.Command], None]
Read = Callable[[Payload], Any]
"""Reads the value of an event as the type that is waited for, or raises `PayloadError`."""
LONGEST_REASON_CHARACTERS: Final = 1_000


class _Wait(NamedTuple):
    number: int
    read: Read
    future: asyncio.Future[Payload]


class EventWaits:
    """The waits of one run. `emit` puts a command into the turn.

    `recorded` tells, in replay, whether the history has the event that is applied as set aside; else it gives None.
    """

    __slots__ = ("_emit", "_loop", "_next", "_recorded", "_waiting")

    def __init__(self, loop: WorkflowLoop, emit: Emit, recorded: Callable[[], bool | None]) -> None:
        self._loop = loop
        self._emit = emit
        self._recorded = recorded
        self._next = 0
        self._waiting: dict[str, deque[_Wait]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """What is waited for now, in the order of the alphabet."""
        return tuple(sorted(self._waiting))

    def has(self, name: str) -> bool:
        """Whether anybody waits for this name."""
        return name in self._waiting

    async def wait(self, name: str, read: Read) -> Any:
        """The value of the next event of this name that fits. Cancelling the wait leaves the event to others."""
        number = self._next
        self._next = number + 1
        wait = _Wait(number, read, self._loop.create_own_future())
        self._waiting.setdefault(name, deque()).append(wait)
        self._emit(ev.EventAwaited(wait=number, name=name))
        while True:
            try:
                payload = await wait.future
            except asyncio.CancelledError:
                if self._remove(name, number):
                    self._emit(ev.EventWaitEnded(wait=number))
                raise
            recorded = self._recorded()
            reason = ""
            if not recorded:
                try:
                    return read(payload)
                except PayloadError as error:
                    if recorded is False:
                        raise  # recorded by a release that set nothing aside: there the code received the error
                    reason = _text_of(error)
            self._emit(ev.EventSetAside(wait=number, name=name, reason=reason))
            wait = _Wait(number, read, self._loop.create_own_future())
            self._waiting.setdefault(name, deque()).appendleft(wait)

    def misfit(self, event: ev.EventReceived) -> PayloadError | None:
        """Why an event does not fit the wait that it would reach now."""
        try:
            self._waiting[event.name][0].read(event.value)
        except PayloadError as error:
            return error
        return None

    def received(self, event: ev.EventReceived) -> None:
        """Hand an event to the wait that began first."""
        waiting = self._waiting.get(event.name)
        if waiting is not None:
            future = waiting.popleft().future
            if not waiting:
                del self._waiting[event.name]
            if not future.done():
                future.set_result(event.value)

    def _remove(self, name: str, number: int) -> bool:
        """False if an event has ended this wait already."""
        waiting = self._waiting.get(name, deque())
        for wait in waiting:
            if wait.number == number:
                waiting.remove(wait)
                if not waiting:
                    del self._waiting[name]
                return True
        return False


def _text_of(error: PayloadError) -> str:
    """The message, as every store can hold it."""
    return shorten(str(error), LONGEST_REASON_CHARACTERS).encode(errors="replace").decode()
