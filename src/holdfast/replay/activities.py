"""Activity calls in workflow code: each call schedules an activity and waits for its result."""

import asyncio
from contextlib import suppress
from typing import Any, Protocol

from holdfast.core.activity_options import ActivityOptions, OnCancel
from holdfast.core.history import (
    ActivityAbandoned,
    ActivityCancelRequested,
    ActivityCompleted,
    ActivityFailed,
    ActivityScheduled,
)
from holdfast.core.run import ScheduledActivity
from holdfast.errors import PayloadError
from holdfast.payloads.signature import Signature
from holdfast.replay.context import RunContext


class CallableActivity(Protocol):
    """An activity, as a run calls it."""

    @property
    def name(self) -> str: ...
    @property
    def signature(self) -> Signature: ...
    @property
    def options(self) -> ActivityOptions: ...
    @property
    def encoded_options(self) -> bytes: ...


class Activities:
    """The activity calls of one run."""

    __slots__ = ("_context", "_next_number", "_waits", "recorded_waits", "waiting")

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._next_number = 0
        self.waiting: dict[int, tuple[asyncio.Future[Any], Signature]] = {}
        """The futures of calls that have no result yet, by number."""
        self._waits: set[int] = set()
        """Calls that wait for the end of their attempt when they are cancelled (A14)."""
        self.recorded_waits: frozenset[int] = frozenset()
        """In a replay: those of them in the history. A deploy that changes the option keeps them."""

    async def run(self, activity: CallableActivity, signature: Signature, encoded: bytes) -> Any:
        """Schedule an activity and wait for its result. Cancelling the wait cancels the activity."""
        loop = self._context.loop
        loop.check_evicted()
        number = self.schedule(activity, encoded)
        future = loop.create_future()
        self.waiting[number] = (future, signature)
        try:
            return await future
        except asyncio.CancelledError:
            if number in self._waits:
                await self._closed(number, signature)
            elif self.waiting.pop(number, None) is not None:
                self.abandon(number)
            raise

    async def _closed(self, number: int, signature: Signature) -> None:
        """Ask an activity to end, and wait for that. Further cancellations of the wait change nothing."""
        loop = self._context.loop
        if number in self.waiting:
            output = self._context.output
            output.events.append(ActivityCancelRequested(activity=number))
            output.ensure_effects().activities_asked.append(number)
        while number in self.waiting:
            loop.check_evicted()
            future = loop.create_future()
            self.waiting[number] = (future, signature)
            with suppress(Exception, asyncio.CancelledError):  # its answer is not needed
                await future

    def schedule(self, activity: CallableActivity, encoded: bytes) -> int:
        """Schedule an activity with the commit of this turn. Its number."""
        context = self._context
        if len(encoded) > context.limit.quiet_bytes:
            context.checked(encoded, f"{activity.name}(): the payload of the arguments")
        number = self._next_number
        self._next_number = number + 1
        output = context.output
        name = activity.name
        waits = activity.options.on_cancel is OnCancel.WAIT
        if context.replaying:
            waits = number in self.recorded_waits
        if waits:
            self._waits.add(number)
            output.events.append(ActivityScheduled(activity=number, name=name, waits=True))
        else:
            output.events.append(ActivityScheduled(activity=number, name=name))
        output.scheduled.append(ScheduledActivity(number, name, encoded, activity.options, activity.encoded_options))
        return number

    def abandon(self, number: int) -> None:
        """Cancel an activity whose result is not awaited any more."""
        output = self._context.output
        output.events.append(ActivityAbandoned(activity=number))
        output.ensure_effects().abandoned.append(number)

    def completed(self, event: ActivityCompleted) -> bool:
        """Resolve the call with a result. False if no call has this number: it is of a stream, or was cancelled."""
        waiting = self.waiting.pop(event.activity, None)
        if waiting is None:
            return False
        future, signature = waiting
        result = event.result
        data = self._context.data_of(result) if result.reference else result.data
        try:
            future.set_result(signature.decode_result(data))
        except asyncio.InvalidStateError:
            pass  # a cancelled wait takes no result
        except PayloadError as error:
            if not future.done():
                future.set_exception(error)
        return True

    def failed(self, event: ActivityFailed) -> bool:
        """Resolve the call with a failure. False as of `completed`."""
        waiting = self.waiting.pop(event.activity, None)
        if waiting is None:
            return False
        future, _ = waiting
        if not future.done():
            future.set_exception(self._context.exception_of(event.failure))
        return True
