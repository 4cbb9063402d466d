"""Events in workflow code: waits by name, and events raised to other instances (G6).

Each wait receives one event, in the order in which the waits began. A wait has the type of its value. An event that
does not fit is set aside, which the history records, and the wait keeps its place: a malformed value never ends the
workflow.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdfast.core import history as ev
from holdfast.core.admission import EventVerdict
from holdfast.core.history import Payload
from holdfast.core.run import SentCancel, SentEvent
from holdfast.errors import InstanceClosed, InstanceNotFound, MailboxFull, NotInWorkflow, PayloadError
from holdfast.payloads.limits import shorten
from holdfast.replay.context import RunContext

Read = Callable[[bytes], Any]
"""Reads the value of an event as the awaited type, or raises `PayloadError`."""
LONGEST_REASON_CHARACTERS: Final = 1_000


class _Wait(NamedTuple):
    number: int
    read: Read
    future: asyncio.Future[Payload]


class EventWaits:
    """The event waits of one run, and the events that it raises."""

    __slots__ = ("_context", "_judging", "_next_raised", "_next_wait", "_waiting", "is_set_aside")

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._next_wait = 0
        self._next_raised = 0
        self._waiting: dict[str, deque[_Wait]] = {}
        self._judging: dict[int, asyncio.Future[str]] = {}
        """Waits for the verdicts on sent messages, by their numbers."""
        self.is_set_aside = False
        """In a replay: whether the history has the event that is being applied as set aside."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the awaited events, sorted."""
        return tuple(sorted(self._waiting))

    def has(self, name: str) -> bool:
        return name in self._waiting

    async def wait(self, name: str, read: Read) -> Any:
        """The value of the next event of this name that fits. Cancelling the wait leaves the event to other waits."""
        context = self._context
        loop = context.loop
        loop.check_evicted()
        number = self._next_wait
        self._next_wait = number + 1
        wait = _Wait(number, read, loop.create_future())
        self._waiting.setdefault(name, deque()).append(wait)
        self._emit(ev.EventAwaited(wait=number, name=name))
        while True:
            try:
                payload = await wait.future
            except asyncio.CancelledError:
                if self._remove(name, number):
                    self._emit(ev.EventWaitEnded(wait=number))
                raise
            recorded = self.is_set_aside if context.replaying else None
            reason = ""
            if not recorded:
                try:
                    return read(context.data_of(payload))
                except PayloadError as error:
                    if recorded is False:
                        raise  # recorded by a release that set nothing aside: there the code received the error
                    reason = _text_of(error)
            self._emit(ev.EventSetAside(wait=number, name=name, reason=reason))
            context.log(
                logging.WARNING,
                "the event %r was set aside, and the workflow waits for another one: %s",
                name,
                reason,
            )
            wait = _Wait(number, read, loop.create_future())
            self._waiting.setdefault(name, deque()).appendleft(wait)

    def misfit(self, event: ev.EventReceived) -> PayloadError | None:
        """The reason why an event does not fit the wait that it would reach now.

        None also if its type can be read in workflow code only.
        """
        try:
            self._waiting[event.name][0].read(self._context.data_of(event.value))
        except PayloadError as error:
            return None if isinstance(error.__cause__, NotInWorkflow) else error
        return None

    def received(self, event: ev.EventReceived) -> None:
        """Give an event to the wait that began first."""
        self._context.output.ensure_effects().waits_changed = True
        waiting = self._waiting.get(event.name)
        if waiting is not None:
            future = waiting.popleft().future
            if not waiting:
                del self._waiting[event.name]
            if not future.done():
                future.set_result(event.value)

    def raise_event(self, target: str, name: str, data: bytes, value: object) -> "SentMessage":
        """Raise an event to another instance, with the commit of this turn."""
        context = self._context
        context.loop.check_evicted()
        context.checked(data, f"the value of event {name!r}", value)
        number = self._next_raised
        self._next_raised = number + 1
        context.output.events.append(ev.EventRaised(number=number, target=target, name=name))
        sent = SentEvent(number, target, name, data)
        context.output.ensure_effects().sent.append(sent)
        return SentMessage(self, sent, context.inputs)

    def cancel(self, target: str, reason: str) -> "SentMessage":
        """Ask another instance to end, with the commit of this turn."""
        context = self._context
        context.loop.check_evicted()
        number = self._next_raised
        self._next_raised = number + 1
        context.output.events.append(ev.CancelSent(number=number, target=target, reason=reason))
        sent = SentCancel(number, target, reason)
        context.output.ensure_effects().cancels.append(sent)
        return SentMessage(self, sent, context.inputs)

    async def verdict(self, sent: SentEvent | SentCancel, *, is_late: bool) -> str:
        """Wait for the verdict on a message. One that was committed before is sent again under its id (G6)."""
        context = self._context
        context.loop.check_evicted()
        effects = context.output.ensure_effects()
        sending: list[Any] = effects.sent if isinstance(sent, SentEvent) else effects.cancels
        if not is_late:
            sending.remove(sent)
        sending.append(sent._replace(is_awaited=True))
        context.output.events.append(ev.SendAwaited(number=sent.number))
        future: asyncio.Future[str] = context.loop.create_future()
        self._judging[sent.number] = future
        try:
            return await future
        finally:
            self._judging.pop(sent.number, None)

    def judged(self, event: ev.SendJudged) -> None:
        """Give a verdict to the code that waits for it."""
        future = self._judging.get(event.number)
        if future is not None and not future.done():
            future.set_result(event.verdict)

    def _emit(self, command: ev.Command) -> None:
        output = self._context.output
        output.ensure_effects().waits_changed = True
        output.events.append(command)

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


class SentMessage:
    """An event or a cancel that the code sent. Awaited once or more, it raises if the target did not take it (G19)."""

    __slots__ = ("_events", "_inputs", "_sent", "_verdict")

    def __init__(self, events: EventWaits, sent: SentEvent | SentCancel, inputs: int) -> None:
        self._events = events
        self._sent = sent
        self._inputs = inputs
        self._verdict = ""

    async def delivered(self, *, inputs: int) -> None:
        """Wait for the verdict. `inputs`: how many inputs the run has applied by now."""
        sent = self._sent
        is_late = inputs != self._inputs
        if not self._verdict:
            self._verdict = await self._events.verdict(sent, is_late=is_late)
        what = "the cancel" if isinstance(sent, SentCancel) else f"the event {sent.name!r}"
        match self._verdict:
            case EventVerdict.UNKNOWN.name:
                raise InstanceNotFound(f"no instance has the id {sent.target!r}, and {what} was not taken")
            case EventVerdict.CLOSED.name if not (is_late and isinstance(sent, SentCancel)):
                raise InstanceClosed(f"{sent.target!r} has ended, and {what} was not taken")
            case EventVerdict.MAILBOX_FULL.name:
                raise MailboxFull(f"the mailbox of {sent.target!r} is full, and {what} was not taken")
            case _:
                pass


def _text_of(error: PayloadError) -> str:
    """The message, as every store can hold it."""
    return shorten(str(error), LONGEST_REASON_CHARACTERS).encode(errors="replace").decode()
