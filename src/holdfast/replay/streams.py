"""Streams in workflow code: what an activity yields, in order and each value once (L15).

A loop over a stream that is left early abandons the activity. The loop's iterator lives on the stack of the code only,
so it goes away at the moment in which the loop is left, the same in every replay.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.history import ActivityCompleted, ActivityFailed, ActivityYielded, Payload
from holdfast.errors import StreamRestarted, UsageError
from holdfast.replay.loop.event_loop import WorkflowLoop
from holdfast.replay.loop.loop_swap import swapped_loop

if TYPE_CHECKING:
    from holdfast.replay.calls import CallableActivity

NOT_SCHEDULED: Final = -1


class Streams:
    """The streams of one run. They tell it, through these functions, what the code does."""

    __slots__ = ("_abandon", "_loop", "_open", "_schedule", "data_of")

    def __init__(
        self,
        loop: WorkflowLoop,
        schedule: "Callable[[CallableActivity, bytes], int]",
        abandon: Callable[[int], None],
        data_of: "Callable[[Payload], bytes]",
    ) -> None:
        self._loop = loop
        self._schedule = schedule
        self._abandon = abandon
        self.data_of = data_of
        self._open: dict[int, ActivityStream] = {}

    def open(self, activity: "CallableActivity", encoded: bytes) -> "ActivityStream":
        """What an activity yields, for the code to iterate over."""
        return ActivityStream(self, activity, encoded)

    def yielded(self, event: ActivityYielded) -> None:
        if (stream := self._open.get(event.activity)) is not None:
            stream.yielded(event)

    def given(self, activity: int) -> int:
        """How many values of an activity have come; -1 if nobody waits for any."""
        stream = self._open.get(activity)
        return -1 if stream is None else stream.given

    def completed(self, event: ActivityCompleted) -> None:
        if (stream := self._open.pop(event.activity, None)) is not None:
            stream.completed(event)

    def failed(self, event: ActivityFailed, error: BaseException) -> None:
        if (stream := self._open.pop(event.activity, None)) is not None:
            stream.failed(error)

    @property
    def is_running(self) -> bool:
        """Whether the code takes a step now, and is not being torn down."""
        return swapped_loop() is self._loop and not self._loop.is_closed()

    def schedule(self, stream: "ActivityStream", activity: "CallableActivity", encoded: bytes) -> int:
        """Schedule the activity of a stream."""
        self._loop.check_evicted()
        number = self._schedule(activity, encoded)
        self._open[number] = stream
        return number

    def abandon(self, number: int) -> None:
        """Nobody waits for the values of a stream any more."""
        if self._open.pop(number, None) is not None:
            self._abandon(number)

    def new_future(self) -> "asyncio.Future[None]":
        """Something to wait for."""
        return self._loop.create_own_future()


class StreamRestart:
    """Stands between the values of one attempt and those of the next."""

    __slots__ = ()


class ActivityStream(AsyncIterator[Any]):
    """The values of one call of an activity that yields. It is scheduled when the first value is asked for."""

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
        "given",
    )

    def __init__(self, streams: Streams, activity: "CallableActivity", encoded: bytes) -> None:
        self._streams = streams
        self._activity = activity
        self._encoded = encoded
        self._number = NOT_SCHEDULED
        self._read = activity.signature.read_result
        self._decode = activity.signature.decode_result
        self.arrived: deque[Payload | StreamRestart | None] = deque()
        """Values; before those of another attempt a word of it; the end of the stream is None."""
        self._failure: BaseException | None = None
        self._attempt = 1
        """The one whose values came last."""
        self._delivered = 0
        self.given = 0
        """How many values have come, taken or not."""
        self._is_over = False
        self._waiter: asyncio.Future[None] | None = None

    # ------------------------------------------------------------ asked by the code

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
        """Stop waiting for more: the activity is cancelled."""
        self.abandon()

    def abandon(self) -> None:
        """Nobody takes further values."""
        if not self._is_over:
            self._is_over = True
            self.arrived.clear()
            self._streams.abandon(self._number)

    def break_off(self) -> None:
        """A loop over the stream was left: by the code, unless its run is being torn down."""
        if self._number != NOT_SCHEDULED and self._streams.is_running:
            self.abandon()

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise UsageError(f"two tasks wait for the next value of one stream of {self._activity.name}")
        self._waiter = self._streams.new_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self.abandon()
            raise
        finally:
            self._waiter = None

    def take(self) -> Any:
        """The next value, which has come; `StopAsyncIteration` at the end."""
        value = self.arrived.popleft()
        while type(value) is not Payload:
            if value is None:
                self._is_over = True
                raise StopAsyncIteration
            self._begin_again()
            value = self.arrived.popleft()
        self._delivered += 1
        read, data = self._read, self._streams.data_of(value) if value.reference else value.data
        try:
            return read(data)
        except Exception:  # noqa: BLE001 - here it is said what does not fit
            return self._decode(data)

    def _begin_again(self) -> None:
        """What comes from here on is of another attempt."""
        stream = self._activity.options.stream
        if self._delivered and not (stream and stream.resumable):
            delivered = self._delivered
            self._delivered = 0
            raise StreamRestarted(
                f"{self._activity.name} begins again: {delivered} values of the attempt before were delivered",
                delivered,
            )

    # ------------------------------------------------------------ told by the run

    def yielded(self, event: ActivityYielded) -> None:
        self._note(event.attempt)
        self.arrived.append(event.value)
        if event.more:
            self.arrived.extend(event.more)
        self.given += len(event.numbers)
        self._wake()

    def completed(self, event: ActivityCompleted) -> None:
        self._note(event.attempt)
        self.arrived.append(None)
        self._wake()

    def _note(self, attempt: int) -> None:
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

    __slots__ = ("_goes_on", "_stream")

    def __init__(self, stream: ActivityStream) -> None:
        self._stream = stream
        self._goes_on = False

    def __aiter__(self) -> "StreamIteration":
        return self

    async def __anext__(self) -> Any:
        stream = self._stream
        try:
            return stream.take() if stream.arrived else await stream.__anext__()
        except StreamRestarted:
            self._goes_on = True  # whoever catches it may loop over the stream again
            raise

    def __del__(self) -> None:
        if not self._goes_on:
            self._stream.break_off()
