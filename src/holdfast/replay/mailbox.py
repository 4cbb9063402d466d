"""Waiting for events by name (G6): each wait gets one event, in the order in which the waits began."""

import asyncio
from collections import deque
from collections.abc import Callable

from holdfast.core import events as ev
from holdfast.core.events import Payload
from holdfast.replay.loop import WorkflowLoop

Emit = Callable[[ev.Command], None]


class Waits:
    """The waits of one run. `emit` puts a command into the turn."""

    __slots__ = ("_emit", "_loop", "_next", "_waiting")

    def __init__(self, loop: WorkflowLoop, emit: Emit) -> None:
        self._loop = loop
        self._emit = emit
        self._next = 0
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[Payload]]]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """What is waited for now, in the order of the alphabet."""
        return tuple(sorted(self._waiting))

    def has(self, name: str) -> bool:
        """Whether anybody waits for this name."""
        return name in self._waiting

    async def wait(self, name: str) -> Payload:
        """The payload of the next event of this name. Cancelling the wait leaves the event to others."""
        number = self._next
        self._next = number + 1
        future = self._loop.create_own_future()
        self._waiting.setdefault(name, deque()).append((number, future))
        self._emit(ev.EventAwaited(wait=number, name=name))
        try:
            payload: Payload = await future
        except asyncio.CancelledError:
            if self._remove(name, number):
                self._emit(ev.EventWaitEnded(wait=number))
            raise
        return payload

    def received(self, event: ev.EventReceived) -> None:
        """Hand an event to the wait that began first."""
        waiting = self._waiting.get(event.name)
        if waiting is not None:
            _, future = waiting.popleft()
            if not waiting:
                del self._waiting[event.name]
            if not future.done():
                future.set_result(event.value)

    def _remove(self, name: str, number: int) -> bool:
        """False if an event has ended this wait already."""
        waiting = self._waiting.get(name, deque())
        for entry in waiting:
            if entry[0] == number:
                waiting.remove(entry)
                if not waiting:
                    del self._waiting[name]
                return True
        return False
