"""Delivery of the values that an activity yields (L15): values that wait while the store writes go to disk together.

The body may be ahead of the store by a bounded number of values, and then waits. The end of an attempt is recorded only
after the outcome of its last values is known, because its ledger counts the values that were delivered.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent import futures
from contextlib import aclosing, closing
from typing import Any, Final

import msgspec

from holdfast.authoring.activity import Cancelled
from holdfast.core.activity_options import decode_options
from holdfast.core.history import (
    ActivityYielded,
    Payload,
)
from holdfast.core.streams import MAX_YIELDS, enter_pending, room_for_yields
from holdfast.errors import HoldfastError, StreamTooLong
from holdfast.runtime.attempts.executors import end_of
from holdfast.runtime.attempts.running_attempt import AttemptSink, RunningAttempt, StopReason
from holdfast.storage.members.outcomes import Applied, Failed, Outcome, Rejected
from holdfast.storage.members.turns import StreamValues
from holdfast.storage.records import AttemptKey

MAX_TOGETHER: Final = 500
"""Values in one message."""
MAX_AHEAD: Final = 2 * MAX_TOGETHER
"""Values that a body may have yielded and that are not on disk yet: while some are written the next ones gather."""
MAX_AHEAD_BYTES: Final = 4 * 1024 * 1024
"""Their size together."""
LEASE_CHECK_SECONDS: Final = 0.001
"""A value that follows another one within this time is queued without a check of lease and time-outs. If the process
was stopped meanwhile, the clock of the event loop has advanced and the check is made."""
NO_VALUE: Final = b"null"
"""The data of the final response of a stream."""


class StreamSender:
    """Sends the values of one running attempt to the store, from one event loop."""

    def __init__(
        self,
        running: RunningAttempt,
        encode: Callable[[Any], bytes],
        sink: AttemptSink,
        refused: Callable[[AttemptKey, Rejected], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._running = running
        self._encode = encode
        self._sink = sink
        self._refused = refused
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._options = decode_options(running.attempt.options)
        self._next_number = self._options.stream.delivered if self._options.stream else 0
        self._room = room_for_yields(running.attempt.ledger)
        """How many more values than those in flight the ledger can count."""
        self._waiting: list[bytes] = []
        self._in_flight = 0
        self._bytes = self._bytes_in_flight = 0
        self._most = MAX_AHEAD
        """How many values may wait beside those in flight."""
        self._ahead = min(self._most, self._room) - 1
        """With fewer values waiting, a value is queued without further checks."""
        self._is_idle = True
        """Nothing is in flight, and `_go` is not scheduled."""
        self._error: BaseException | None = None
        self._outcome: asyncio.Future[None] | None = None

    async def deliver(self, values: AsyncGenerator[Any, None]) -> None:
        """Deliver the values of an async generator. Values that it yielded before it failed count."""
        running, encode, now = self._running, self._encode, self._loop.time
        check_at = 0.0
        try:
            async with aclosing(values) as generator:
                async for value in generator:
                    data = encode(value)
                    waiting = self._waiting
                    is_usual = waiting and len(waiting) < self._ahead and self._bytes < MAX_AHEAD_BYTES
                    if is_usual and running.stop_reason is None and now() < check_at:
                        waiting.append(data)  # the short form of `_put`, for most values
                        self._bytes += len(data)
                        continue
                    if self._put(data):
                        await self._until_nearer()
                    check_at = now() + LEASE_CHECK_SECONDS
            await self._flush()
        except Exception:
            await self._flush()
            raise
        finally:
            await self._settle()

    async def deliver_from(self, thread: "asyncio.Future[Any]") -> None:
        """Deliver the values that `produce` sends from a thread; `thread` is the future of its call."""
        try:
            await end_of(thread)
            await self._flush()
        except Exception:
            await self._flush()
            raise
        finally:
            self._refuse(self._error or Cancelled("the attempt is over, and its values are not delivered any more"))
            await self._settle()

    def produce(self, values: Generator[Any, None, None]) -> None:
        """Send each value of a generator from a thread, and wait while the store is behind."""
        with closing(values) as generator:
            for value in generator:
                sent = asyncio.run_coroutine_threadsafe(self._send(self._encode(value)), self._loop)
                try:
                    sent.result()
                except futures.CancelledError:  # `Cancelled` crosses the threads as this type
                    raise self._running.cancelled() from None

    async def _send(self, data: bytes) -> None:
        if self._put(data):
            await self._until_nearer()

    def _put(self, data: bytes) -> bool:
        """Queue a value. Returns whether the body is far ahead of the store and has to wait."""
        if self._error is not None:
            raise self._error
        if not self._running.may_deliver():
            raise self._running.cancelled()
        waiting = self._waiting
        if len(waiting) >= self._room:
            raise StreamTooLong(f"{self._running.attempt.name} yielded more than {MAX_YIELDS:,} values in one attempt")
        waiting.append(data)
        self._bytes += len(data)
        if self._is_idle:
            self._is_idle = False
            self._loop.call_soon(self._go)
        return len(waiting) >= self._most or self._bytes >= MAX_AHEAD_BYTES

    async def _until_nearer(self) -> None:
        while (len(self._waiting) >= self._most or self._bytes >= MAX_AHEAD_BYTES) and self._error is None:
            await self._next_outcome()

    async def _flush(self) -> None:
        while (self._waiting or self._in_flight) and self._error is None:
            await self._next_outcome()
        if self._error is not None:
            raise self._error

    async def _settle(self) -> None:
        """Send nothing more, and wait for the values in flight, so that the ledger is known.

        The ledger of an attempt that is given up here is not needed: another worker reads it from the store.
        """
        self._waiting.clear()
        while self._in_flight and self._running.stop_reason is not StopReason.GIVEN_UP:
            await self._next_outcome()

    async def _next_outcome(self) -> None:
        if self._outcome is None or self._outcome.done():
            self._outcome = self._loop.create_future()
        await asyncio.shield(self._outcome)

    def _go(self) -> None:
        if not self._waiting or self._error is not None:
            self._is_idle = True
            return
        values = self._waiting[:MAX_TOGETHER]
        self._waiting = self._waiting[MAX_TOGETHER:]
        attempt, now_ms = self._running.attempt, self._now_ms()
        self._in_flight = len(values)
        self._bytes_in_flight = sum(map(len, values))
        self._most = MAX_AHEAD - len(values)
        self._room = self._room - len(values)
        self._ahead = min(self._most, self._room) - 1
        expires = self._options.expires_at_running_ms(
            scheduled_at_ms=attempt.scheduled_at_ms,
            started_at_ms=attempt.started_at_ms or attempt.scheduled_at_ms,
            heard_at_ms=now_ms,
        )
        first, *more = map(Payload, map(msgspec.Raw, values))
        key, owner = attempt.key, attempt.owner
        event = ActivityYielded(
            time_ms=now_ms,
            activity=key.activity,
            number=self._next_number,
            value=first,
            attempt=key.attempt,
            more=tuple(more),
        )
        if owner is None:
            raise HoldfastError(f"attempt {key} runs here and has no owner")
        responses = StreamValues(key=key, owner=owner, from_ledger=attempt.ledger, event=event, expires_at_ms=expires)
        self._sink.values_yielded(responses, self._decided)

    def _decided(self, outcome: Outcome) -> None:
        count = self._in_flight
        self._in_flight = 0
        self._bytes = self._bytes - self._bytes_in_flight
        self._most = MAX_AHEAD
        attempt = self._running.attempt
        match outcome:
            case Applied():
                self._next_number += count
                self._ahead = min(self._most, self._room) - 1
                self._running.attempt = msgspec.structs.replace(attempt, ledger=enter_pending(attempt.ledger, count))
                self._go()
            case Failed():
                self._refuse(outcome.error)
            case Rejected():
                self._refuse(Cancelled("the attempt is closed, was asked to stop, or belongs to another worker"))
                self._refused(attempt.key, outcome)
            case _:
                self._refuse(HoldfastError(f"streamed values had the outcome {outcome!r}"))
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(None)

    def _refuse(self, error: BaseException) -> None:
        """Accept no more values: the next one raises this error in the body."""
        self._error = error
        self._ahead = 0
