"""One attempt whose body runs in this process."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.authoring.activity import Activity
from holdfast.authoring.activity_context import ActivityInfo
from holdfast.core.options import decode_options
from holdfast.payloads.encoding import decode, encode
from holdfast.payloads.signature import Signature
from holdfast.storage.contract import AttemptRecord, HeartbeatAttempt

HEARTBEATS_PER_TIMEOUT: Final = 4
"""How often within its heartbeat time-out an attempt's beats are written at most; the ones between are skipped."""
HEARTBEAT_WRITE_MS: Final = 1_000
"""Between two writes of beats without a time-out."""


class ResultNotStored(Exception):
    """A body returned or yielded a value that cannot be stored. `reason` is the error that the workflow receives.

    It is not retried: another attempt would repeat the side effects of the body and end with the same refusal.
    """

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


def stored_result(signature: Signature, value: Any) -> bytes:
    """The payload of a value that a body returned or yielded, or `ResultNotStored`."""
    try:
        return signature.encode_result(value)
    except Exception as error:
        raise ResultNotStored(error) from error


class RunningAttempt:
    """One attempt whose body runs here. It is what `hf.heartbeat` and its like talk to."""

    __slots__ = (
        "_beat",
        "_loop",
        "_now_ms",
        "_written_at",
        "activity",
        "attempt",
        "cancel_requested",
        "has_begun",
        "is_abandoned",
        "kind",
        "task",
    )

    def __init__(
        self,
        activity: Activity[..., Any],
        attempt: AttemptRecord,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        beat: Callable[[HeartbeatAttempt], None],
    ) -> None:
        self._now_ms = now_ms
        self.activity = activity
        self.attempt = attempt
        self.kind = attempt.name
        self.task: asyncio.Task[None] | None = None
        """The task that the body has for itself; see `carriers`."""
        self.has_begun = False
        self.cancel_requested = False
        self.is_abandoned = False
        """It was told to stop because this worker leaves or lost its lease: unless it gives a result all the same,
        somebody else decides what becomes of the attempt."""
        self._beat = beat
        self._loop = loop
        self._written_at = -1e9

    def stop(self) -> None:
        """Cancel the body. One that has not begun finds it out when it does: a task that never ran would not tell."""
        if self.has_begun and self.task is not None:
            self.task.cancel()

    @property
    def info(self) -> ActivityInfo:
        attempt = self.attempt
        details = None if attempt.details is None else decode(attempt.details)
        return ActivityInfo(
            attempt.instance_id,
            attempt.workflow,
            attempt.name,
            attempt.key.activity,
            attempt.key.attempt,
            attempt.queue,
            details,
            0 if (stream := decode_options(attempt.options).stream) is None else stream.delivered,
        )

    @property
    def idempotency_key(self) -> str:
        key = self.attempt.key
        return f"{self.attempt.instance_id}/{key.number}/{key.execution}/{key.activity}"  # an id may be used again (G3)

    def heartbeat(self, details: Any) -> None:
        """Called from the body, on whatever thread it runs."""
        encoded = None if details is None else encode(details, what="the details of a heartbeat")
        self._loop.call_soon_threadsafe(self._heartbeat, encoded)

    def _heartbeat(self, details: bytes | None) -> None:
        now = self._loop.time() * 1000
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
                heard_at_ms=self._now_ms(),
            )
            beat = HeartbeatAttempt(key=attempt.key, owner=attempt.owner, details=details, expires_at_ms=expires)
            self._beat(beat)
