"""Streams in workflow code: the values that an activity yields, in order and each once (L15).

A loop over a stream that is left early abandons the activity. Only the stack of the code refers to the iterator of the
loop, so that it is finalised at the moment in which the loop is left, the same in every replay.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

from holdfast.core.history import ActivityCompleted, ActivityFailed, ActivityYielded, Payload
from holdfast.errors import StreamRestarted, UsageError
from holdfast.replay.activities import Activities, CallableActivity
from holdfast.replay.context import RunContext
from holdfast.replay.loop.loop_swap import swapped_loop

NOT_SCHEDULED: Final = -1


class Streams:
    """The streams of one run."""

    __slots__ = ("_activities", "_open", "context")

    def __init__(self, context: RunContext, activities: Activities) -> None:
        self.context = context
        self._activities = activities
        self._open: dict[int, ActivityStream] = {}

    def open(self, activity: CallableActivity, encoded: bytes) -> "ActivityStream":
        """A call of an activity that yields, for the code to iterate over."""
        return ActivityStream(self, activity, encoded)

    def received(self, activity: int) -> int:
        """How many values of an activity have arrived; -1 if no stream of it is open."""
        stream = self._open.get(activity)
        return -1 if stream is None else stream.received

    def yielded(self, event: ActivityYielded) -> None:
        if (stream := self._open.get(event.activity)) is not None:
            stream.yielded(event)

    def completed(self, event: ActivityCompleted) -> None:
        if (stream := self._open.pop(event.activity, None)) is not None:
            stream.completed(event)

    def failed(self, event: ActivityFailed) -> None:
        if (stream := self._open.pop(event.activity, None)) is not None:
            stream.failed(self.context.exception_of(event.failure))

    @property
    def is_running(self) -> bool:
        """Whether the code takes a step now, and is not being torn down."""
        loop = self.context.loop
        return swapped_loop() is loop and not loop.is_closed()

    def schedule(self, stream: "ActivityStream", activity: CallableActivity, encoded: bytes) -> int:
        """Schedule the activity of a stream. Its number."""
        self.context.loop.check_evicted()
        number = self._activities.schedule(activity, encoded)
        self._open[number] = stream
        return number

    def abandon(self, number: int) -> None:
        """Cancel the activity of a stream that is not iterated over any more."""
        if self._open.pop(number, None) is not None:
            self._activities.abandon(number)


class StreamRestart:
    """Separates the values of one attempt from those of the next."""

    __slots__ = ()


class ActivityStream(AsyncIterator[Any]):
    """The values of one call of an activity that yields. The first `__anext__` schedules it."""

    __slots__ = (
        "_activity",
        "_attempt",
        "_decode",
        "_delivered",
        "_encoded",
        "_failure",
        "_is_over",
        "_number",
        "_read",
        "_streams",
        "_waiter",
        "arrived",
        "received",
    )

    def __init__(self, streams: Streams, activity: CallableActivity, encoded: bytes) -> None:
        self._streams = streams
        self._activity = activity
        self._encoded = encoded
        self._number = NOT_SCHEDULED
        self._read = activity.signature.read_result
        self._decode = activity.signature.decode_result
        self.arrived: deque[Payload | StreamRestart | None] = deque()
        """Values that the code has not taken; None is the end of the stream."""
        self._failure: BaseException | None = None
        self._attempt = 1
        """The attempt that sent the newest value."""
        self._delivered = 0
        self.received = 0
        """How many values have arrived, taken or not."""
        self._is_over = False
        self._waiter: asyncio.Future[None] | None = None

    # ------------------------------------------------------------ called by the code

    def __aiter__(self) -> "StreamIteration":
        return StreamIteration(self)

    async def __anext__(self) -> Any:
        if self._number == NOT_SCHEDULED and not self._is_over:
            self._number = self._streams.schedule(self, self._activity, self._encoded)
        while not self.arrived:
            if self._failure is not None:
                failure = self._failure
                self._failure = None
                self._is_over = True
                raise failure
            if self._is_over:
                raise StopAsyncIteration
            await self._wait()
        return self.take()

    async def aclose(self) -> None:
        """Cancel the activity."""
        self.abandon()

    def abandon(self) -> None:
        """Drop the remaining values and cancel the activity."""
        if not self._is_over:
            self._is_over = True
            self.arrived.clear()
            self._streams.abandon(self._number)

    def break_off(self) -> None:
        """Abandon the stream after a loop over it was left, unless the run is being torn down."""
        if self._number != NOT_SCHEDULED and self._streams.is_running:
            self.abandon()

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise UsageError(f"two tasks wait for the next value of one stream of {self._activity.name}")
        self._waiter = self._streams.context.loop.create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self.abandon()
            raise
        finally:
            self._waiter = None

    def take(self) -> Any:
        """The next value that has arrived; `StopAsyncIteration` at the end."""
        value = self.arrived.popleft()
        while type(value) is not Payload:
            if value is None:
                self._is_over = True
                raise StopAsyncIteration
            self._restart()
            value = self.arrived.popleft()
        self._delivered += 1
        read = self._read
        data = self._streams.context.data_of(value) if value.reference else value.data
        try:
            return read(data)
        except Exception:  # noqa: BLE001 - `_decode` raises an error that names the part that does not fit
            return self._decode(data)

    def _restart(self) -> None:
        """Begin the values of another attempt; `StreamRestarted` unless the activity is resumable."""
        stream = self._activity.options.stream
        if self._delivered and not (stream and stream.resumable):
            delivered = self._delivered
            self._delivered = 0
            raise StreamRestarted(
                f"{self._activity.name} begins again: {delivered} values of the attempt before were delivered",
                delivered,
            )

    # ------------------------------------------------------------ called by the run

    def yielded(self, event: ActivityYielded) -> None:
        self._begin_attempt(event.attempt)
        self.arrived.append(event.value)
        if event.more:
            self.arrived.extend(event.more)
        self.received += len(event.numbers)
        self._wake()

    def completed(self, event: ActivityCompleted) -> None:
        self._begin_attempt(event.attempt)
        self.arrived.append(None)
        self._wake()

    def _begin_attempt(self, attempt: int) -> None:
        if attempt != self._attempt:
            self._attempt = attempt
            self.arrived.append(StreamRestart())

    def failed(self, error: BaseException) -> None:
        self._failure = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class StreamIteration(AsyncIterator[Any]):
    """One loop over a stream."""

    __slots__ = ("_is_restarted", "_stream")

    def __init__(self, stream: ActivityStream) -> None:
        self._stream = stream
        self._is_restarted = False

    def __aiter__(self) -> "StreamIteration":
        return self

    async def __anext__(self) -> Any:
        stream = self._stream
        try:
            return stream.take() if stream.arrived else await stream.__anext__()
        except StreamRestarted:
            self._is_restarted = True  # the code may catch it and loop over the stream again
            raise

    def __del__(self) -> None:
        if not self._is_restarted:
            self._stream.break_off()
