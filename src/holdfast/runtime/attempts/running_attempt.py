"""One attempt that is prepared or runs here: its activity context, its lease and time-outs, and its heartbeats."""

import asyncio
import datetime as dt
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec import UNSET

from holdfast.authoring.activity import Activity, ActivityInfo, AttemptIdentity, Cancelled
from holdfast.core.activity_options import decode_options
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.ledger import conclude_leg1
from holdfast.core.lifecycle import AttemptState
from holdfast.errors import PayloadTooLarge
from holdfast.payloads.encoding import decode, encode
from holdfast.payloads.limits import PayloadLimit
from holdfast.payloads.signature import Signature
from holdfast.runtime.committer import Done
from holdfast.runtime.worker_lease import WorkerLease
from holdfast.storage.members.attempts import Completion, HeartbeatAttempt, OpenNextAttempt
from holdfast.storage.members.turns import StreamValues
from holdfast.storage.records import AttemptRecord

HEARTBEATS_PER_TIMEOUT: Final = 4
"""The most heartbeats that are written within one heartbeat time-out; those between are skipped."""
HEARTBEAT_WRITE_MS: Final = 1_000
"""Between two written heartbeats of an attempt without a heartbeat time-out."""


class AttemptSink(Protocol):
    """Receives what the bodies of a worker produce."""

    def attempt_ended(self, ended: Completion | OpenNextAttempt) -> None:
        """Record how an attempt ended: with the next turn of its instance, or alone."""
        ...

    def values_yielded(self, values: StreamValues, done: Done) -> None:
        """Record values that a body yielded. `done` is called with their outcome."""
        ...

    def take_turns(self) -> None:
        """No further body ends in this round of the event loop: take the turns that their ends made possible."""
        ...


class ResultNotStored(Exception):
    """A body returned or yielded a value that cannot be stored. `reason` is the error that the workflow receives.

    It is not retried: another attempt would repeat the side effects of the body and end with the same error.
    """

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


def stored_result(signature: Signature, limit: PayloadLimit, value: Any) -> bytes:
    """The payload of a value that a body returned or yielded, or `ResultNotStored`."""
    try:
        data = signature.encode_result(value)
    except Exception as error:
        raise ResultNotStored(error) from error
    return data if len(data) <= limit.quiet_bytes else limited_result(signature, limit, data, value)


def limited_result(signature: Signature, limit: PayloadLimit, data: bytes, value: object) -> bytes:
    """`data`, the payload of a result, unless it is above the limit."""
    try:
        return limit.checked(data, f"the result of {signature.name}()", value=value)
    except PayloadTooLarge as error:
        raise ResultNotStored(error) from error


class StopReason(Enum):
    """Why a body was asked to stop, which decides how its end is recorded."""

    CANCELLED = "was cancelled"
    """Its row is CANCELLED_RUNNING. Its workflow no longer awaits it, and its end is recorded without an event; or a
    client cancelled it, and the workflow gets the answer when it has ended (A1)."""
    TIMED_OUT = "is beyond its time-out"
    """`start_to_close` or `schedule_to_close` has passed. Whatever the body returns or raises, it timed out (A5)."""
    GIVEN_UP = "is given up by its worker, which leaves or has lost its lease"
    """Another worker runs the next attempt. A result that comes before the worker has stopped counts (W10)."""
    NOT_HELD = "was ended by another worker"
    """The row is no longer RUNNING in this worker's name (W3). Its end is not recorded."""


class AttemptHost(msgspec.Struct, frozen=True):
    """The parts of a worker that its attempts use."""

    loop: asyncio.AbstractEventLoop
    now_ms: Callable[[], int]
    """The store's clock, by which time-outs are measured."""
    lease: WorkerLease
    beat: Callable[[HeartbeatAttempt], None]
    """Commits a heartbeat."""
    provided: Any
    """What `context=` made, for `hf.context`."""


class RunningAttempt:
    """One attempt whose body runs here. It is the activity context of the body, on any thread."""

    __slots__ = (
        "_host",
        "_is_beat_posted",
        "_newest_details",
        "_written_at",
        "activity",
        "attempt",
        "deadline_ms",
        "has_begun",
        "in_process",
        "is_evicted",
        "kind",
        "prepared",
        "send_cancel",
        "stop_reason",
        "task",
        "thread",
        "timer",
    )

    def __init__(self, activity: Activity[..., Any], attempt: AttemptRecord, host: AttemptHost) -> None:
        self._host = host
        self.activity = activity
        self.attempt = attempt
        self.in_process = _in_process(activity, attempt)
        self.kind = attempt.name
        self.task: asyncio.Task[None] | None = None
        """The task that only this body uses; see `shared_tasks`."""
        self.thread: asyncio.Future[Any] | None = None
        """The call in a thread that runs the body, if it is a plain function."""
        self.send_cancel: Callable[[], None] | None = None
        """Passes a cancellation to the process that runs the body, if one does."""
        self.timer: asyncio.TimerHandle | None = None
        """The timer of its time-out; once it was asked to stop, of the grace period after which it is abandoned."""
        self.has_begun = False
        self.prepared: Any = None
        """The value of the function of `prepare=`."""
        self.stop_reason: StopReason | None = None
        self.is_evicted = False
        """It was asked to stop, did not, and runs on without a slot."""
        self.deadline_ms = None if attempt.expires_at_ms is None else _deadline_ms(attempt)
        self._written_at = -1e9
        self._newest_details = attempt.details
        self._is_beat_posted = False

    # ------------------------------------------------------------ begin and stop

    def begin(self) -> None:
        """Called where the body runs, immediately before its first line. Raises if it must not begin (W7, A5)."""
        if self.stop_reason is not None or not self.holds_lease():
            raise self.cancelled()
        if self.is_past_deadline():
            self.stop_reason = StopReason.TIMED_OUT
            raise self.cancelled()

    def enter_running(self, started_at_ms: int, expires_at_ms: int | None) -> None:
        """The store has moved the attempt from PREPARING to RUNNING (L3).

        If the attempt was asked to stop meanwhile by a cancel, the cancel came later: otherwise the store would have
        refused the move.
        """
        is_cancelled = self.stop_reason is StopReason.CANCELLED
        self.attempt = msgspec.structs.replace(
            self.attempt,
            state=AttemptState.CANCELLED_RUNNING if is_cancelled else AttemptState.RUNNING,
            ledger=conclude_leg1(self.attempt.ledger),
            started_at_ms=started_at_ms,
            heartbeat_at_ms=started_at_ms,
            expires_at_ms=expires_at_ms,
        )
        self.deadline_ms = None if expires_at_ms is None else _deadline_ms(self.attempt)
        if self.timer is not None and self.stop_reason is None:
            self.timer.cancel()  # the time-out of the preparation

    def holds_lease(self) -> bool:
        """W7: whether the lease under which this attempt runs is valid, by the worker's own clock.

        If not, the attempt is given up at once: another worker may run the next one already.
        """
        if self.lease_left_ms() > 0:
            return True
        self.stop_reason = self.stop_reason or StopReason.GIVEN_UP
        return False

    def lease_left_ms(self) -> int:
        """How long the lease lasts without a renewal."""
        return self._host.lease.remaining_ms(self.attempt.owner)

    def is_past_deadline(self) -> bool:
        """A5: whether `start_to_close` or `schedule_to_close` has passed."""
        return self.deadline_ms is not None and self._host.now_ms() >= self.deadline_ms

    def first_deadline(
        self, *, is_preparing: bool
    ) -> Literal["schedule_to_start", "start_to_close", "schedule_to_close"] | None:
        """The limit of the body, or of the preparation, that passes first."""
        attempt = self.attempt
        options = decode_options(attempt.options)
        close_ms = options.schedule_to_close_ms
        if is_preparing:
            begun_ms = attempt.available_at_ms
            own_ms = options.schedule_to_start_ms
        else:
            begun_ms = attempt.started_at_ms or attempt.scheduled_at_ms
            own_ms = options.start_to_close_ms
        if own_ms is None:
            return None if close_ms is None else "schedule_to_close"
        if close_ms is not None and attempt.scheduled_at_ms + close_ms < begun_ms + own_ms:
            return "schedule_to_close"
        return "schedule_to_start" if is_preparing else "start_to_close"

    def may_deliver(self) -> bool:
        """L15: whether a value that the body yields now counts."""
        if self.stop_reason in (None, StopReason.GIVEN_UP):
            return self.holds_lease() and not self.is_past_deadline()
        return False

    def interrupt(self) -> None:
        """Cancel the task or notify the process. A body that has not begun is refused by `begin`."""
        if self.send_cancel is not None and self.stop_reason is StopReason.CANCELLED:
            self.send_cancel()
        elif self.has_begun and self.task is not None:
            self.task.cancel()

    def give_up(self) -> None:
        """The worker stops or has lost its lease. An end that was recorded before is not recorded again."""
        if self.stop_reason is not StopReason.NOT_HELD:
            self.stop_reason = StopReason.GIVEN_UP

    def cancelled(self) -> Cancelled:
        """The exception for a body that has to stop."""
        attempt, reason = self.attempt, self.stop_reason or StopReason.CANCELLED
        return Cancelled(
            f"attempt {attempt.key.attempt} of {attempt.name} of instance {attempt.instance_id} {reason.value}"
        )

    # ------------------------------------------------------------ activity context

    @property
    def info(self) -> ActivityInfo:
        attempt = self.attempt
        stream = decode_options(attempt.options).stream
        return ActivityInfo(
            attempt.instance_id,
            attempt.workflow,
            attempt.name,
            attempt.key.activity,
            attempt.key.attempt,
            attempt.queue,
            None if attempt.details is None else decode(attempt.details),
            0 if stream is None else stream.delivered,
            self.stop_reason is not None or self.lease_left_ms() <= 0,
            attempt.key.execution,
            attempt.owner or "",
            self.prepared,
            _time_of(attempt.scheduled_at_ms),
            _time_of(attempt.started_at_ms or attempt.scheduled_at_ms),
            None if self.deadline_ms is None else _time_of(self.deadline_ms),
        )

    @property
    def worker_context(self) -> Any:
        return self._host.provided

    @property
    def identity(self) -> AttemptIdentity:
        attempt = self.attempt
        key = attempt.key
        return AttemptIdentity(
            attempt.instance_id, attempt.workflow, key.execution, attempt.name, key.attempt, attempt.owner
        )

    @property
    def idempotency_key(self) -> str:
        key = self.attempt.key
        return f"{self.attempt.instance_id}/{key.number}/{key.execution}/{key.activity}"  # an id may be used again (G3)

    def heartbeat(self, details: Any) -> None:
        """Called from the body, on any thread. Raises `Cancelled` if the body should stop.

        The lease is checked here as well, because a blocked event loop cannot ask the body to stop (W7).
        """
        if self._learns_by_heartbeat() and (self.stop_reason is not None or not self.holds_lease()):
            raise self.cancelled()
        try:
            self.beat(details)
        except RuntimeError:
            if not self._host.loop.is_closed():
                raise
            raise self.cancelled() from None

    def note_newest_details(self) -> None:
        """Take the details of a heartbeat that is not sent yet, for the attempt that follows a failure."""
        if self._newest_details is not self.attempt.details:
            self.attempt = msgspec.structs.replace(self.attempt, details=self._newest_details)

    def _learns_by_heartbeat(self) -> bool:
        """A coroutine is cancelled at its `await`, and may send heartbeats in its clean-up, until it is abandoned."""
        return self.is_evicted or not self.activity.is_async or not _is_in_event_loop()

    def beat(self, details: Any) -> None:
        """Record a heartbeat."""
        if details is not None:
            self._newest_details = encode(details, what="the details of a heartbeat")
        loop = self._host.loop
        if self._is_beat_posted and not loop.is_closed():
            return  # while the loop is blocked, one callback with the newest details suffices
        self._is_beat_posted = True
        loop.call_soon_threadsafe(self._send_heartbeat)

    def _send_heartbeat(self) -> None:
        self._is_beat_posted = False  # first: a beat that comes from here on posts another callback
        newest = self._newest_details
        details = None if newest is self.attempt.details else newest
        if self.stop_reason not in (None, StopReason.CANCELLED):
            return  # the row is, or is about to be, another worker's
        if self.attempt.state is AttemptState.PREPARING:
            return  # the heartbeat time-out begins with RUNNING (A6); the details are sent with the next heartbeat
        host = self._host
        now = host.loop.time() * 1000
        options = decode_options(self.attempt.options)
        timeout = options.heartbeat_ms
        pause = HEARTBEAT_WRITE_MS if timeout is None else timeout / HEARTBEATS_PER_TIMEOUT
        if details is None and now - self._written_at < pause:
            return
        self._written_at = now
        if details is not None:
            self.attempt = msgspec.structs.replace(self.attempt, details=details)
        attempt = self.attempt
        if attempt.owner is not None:
            expires = options.expires_at_running_ms(
                scheduled_at_ms=attempt.scheduled_at_ms,
                started_at_ms=attempt.started_at_ms or attempt.scheduled_at_ms,
                heard_at_ms=host.now_ms(),
            )
            beat = HeartbeatAttempt(key=attempt.key, owner=attempt.owner, details=details, expires_at_ms=expires)
            host.beat(beat)


def _time_of(time_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(time_ms / MILLISECONDS, dt.UTC)


def _in_process(activity: Activity[..., Any], attempt: AttemptRecord) -> bool:
    """Whether the body runs in a process: the call decides, otherwise the activity. The body of a test runs here."""
    chosen = decode_options(attempt.options).process
    return activity.process if chosen is UNSET or activity.is_stand_in else chosen


def _deadline_ms(attempt: AttemptRecord) -> int | None:
    """When the body has to have ended: the earlier of its two limits. The store judges missing heartbeats (A6).

    A preparation has to have ended when the queued attempt would have expired (A5).
    """
    if attempt.state is AttemptState.PREPARING:
        return attempt.expires_at_ms
    options = decode_options(attempt.options)
    started_ms = attempt.started_at_ms or attempt.scheduled_at_ms
    limits = ((started_ms, options.start_to_close_ms), (attempt.scheduled_at_ms, options.schedule_to_close_ms))
    return min((since_ms + limit_ms for since_ms, limit_ms in limits if limit_ms is not None), default=None)


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
