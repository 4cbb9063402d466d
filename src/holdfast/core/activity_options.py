"""Options of an activity, and the decision about retries (A5, A10, G13).

The options are stored with every attempt, so that every worker makes the same decisions about it. Whether another
attempt follows a failure or a loss is decided in the transaction that records it, without a turn of the workflow: a
pure function of the retry policy, the failures so far, and a random number from the caller.
"""

import math
from collections.abc import Collection
from enum import StrEnum
from functools import lru_cache
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from holdfast.core.ledger import DEFAULT_LEG1_LIMIT
from holdfast.errors import MAX_RETRY_AFTER_SECONDS, RetryPolicyError

DEFAULT_MAX_LOSSES: Final = 5
"""A10: after more losses of workers than this, the activity fails."""
LONGEST_DELAY_MS: Final = MAX_RETRY_AFTER_SECONDS * 1_000
LEAST_JITTER: Final = 0.5
"""With jitter, a delay is multiplied by a random factor from this value to 1."""


class RetryPolicy(msgspec.Struct, frozen=True):
    """How a failed activity is retried. `attempts` None: without a limit."""

    attempts: int | None = 5
    initial_ms: int = 1_000
    backoff: float = 2.0
    maximum_ms: int = 60_000
    jitter: bool = True
    non_retryable: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise RetryPolicyError(f"attempts must be 1 or more (1 means no retry), not {self.attempts}")
        if not 0 <= self.initial_ms <= LONGEST_DELAY_MS:
            raise RetryPolicyError(f"the initial delay must be 0 to {LONGEST_DELAY_MS} ms, not {self.initial_ms}")
        if not self.initial_ms <= self.maximum_ms <= LONGEST_DELAY_MS:
            raise RetryPolicyError(
                f"the maximum delay must be {self.initial_ms} (the initial one) to {LONGEST_DELAY_MS} ms, "
                f"not {self.maximum_ms}"
            )
        if not (math.isfinite(self.backoff) and self.backoff >= 1):
            raise RetryPolicyError(f"backoff must be a number of at least 1, not {self.backoff}")


class RetryLater(msgspec.Struct, frozen=True):
    """Open the next attempt `delay_ms` from now."""

    delay_ms: int


class NoRetry(msgspec.Struct, frozen=True):
    """The activity fails."""

    reason: str
    is_exhausted: bool = True
    """Its retries are used up; False if the failure itself is not retried."""


RetryDecision = RetryLater | NoRetry


def delay_ms(policy: RetryPolicy, failures: int, random_number: float) -> int:
    """The wait after the given number of failures (1 or more); `random_number` is in [0, 1)."""
    if failures < 1:
        raise RetryPolicyError(f"a delay follows at least one failure, not {failures}")
    if not 0 <= random_number < 1:
        raise RetryPolicyError(f"the random number must be from 0 up to 1, not {random_number}")
    if not policy.initial_ms:
        return 0
    try:
        grown = policy.initial_ms * policy.backoff ** (failures - 1)
    except OverflowError:
        grown = math.inf
    delay = min(grown, policy.maximum_ms)
    if policy.jitter:
        delay *= LEAST_JITTER + (1 - LEAST_JITTER) * random_number
    return round(delay)


def after_failure(
    policy: RetryPolicy,
    *,
    failures: int,
    error_types: Collection[str],
    random_number: float,
    left_ms: int | None = None,
    asked_delay_ms: int | None = None,
) -> RetryDecision:
    """Decide whether the activity is retried after failure number `failures` (G13).

    `error_types` has the type of the error and its base classes, `left_ms` the time until schedule-to-close if any, and
    `asked_delay_ms` a delay that the error requests, such as that of a rate limit.
    """
    barred = policy.non_retryable.intersection(error_types)
    if barred:
        return NoRetry(f"{min(barred)} is not retried", is_exhausted=False)
    if policy.attempts is not None and failures >= policy.attempts:
        return NoRetry("it was the only attempt" if failures == 1 else f"all {failures} attempts failed")
    delay = delay_ms(policy, failures, random_number)
    if asked_delay_ms is not None:
        delay = min(max(0, asked_delay_ms), LONGEST_DELAY_MS)
    if left_ms is not None and delay >= left_ms:
        return NoRetry("the next attempt would begin after schedule-to-close")
    return RetryLater(delay)


def after_loss(*, losses: int, rerun_after_loss: bool = True, max_losses: int = DEFAULT_MAX_LOSSES) -> RetryDecision:
    """Decide whether the activity runs again after the loss of its worker (A10). Losses do not count as failures."""
    if not rerun_after_loss:
        return NoRetry("its worker was lost, and it may run at most once")
    if losses > max_losses:
        return NoRetry(f"its worker was lost {losses} times")
    return RetryLater(0)


DEFAULT_QUEUE: Final = "default"
DEFAULT_CLAIM_TIMEOUT_MS: Final = 300_000


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a streaming activity (L15). `delivered`: the number of values that earlier attempts delivered."""

    resumable: bool = False
    delivered: int = 0


class ExternalOptions(msgspec.Struct, frozen=True):
    """Options of an activity that runs in an executor which is not a Holdfast worker (C4).

    A claim that is silent for `claim_timeout_ms` before the body runs is released (A5).
    """

    claim_timeout_ms: int = DEFAULT_CLAIM_TIMEOUT_MS


class OnCancel(StrEnum):
    """A14: what happens to an activity whose call is cancelled in workflow code."""

    REQUEST = "request"
    """The body is asked to stop, and the code continues at once."""
    WAIT = "wait"
    """The body is asked to stop, and the code continues when the attempt has ended."""
    ABANDON = "abandon"
    """A body that runs is not asked to stop, and the code continues at once."""


OnCancelOption = OnCancel | Literal["request", "wait", "abandon"]
"""A mode as an argument of the public API."""


class ActivityOptions(msgspec.Struct, frozen=True):
    """Everything about an activity that is needed after it was scheduled.

    A field that is UNSET is not stored: it costs nothing for the activities that do not use it.
    """

    queue: str = DEFAULT_QUEUE
    retry: RetryPolicy = msgspec.field(default_factory=RetryPolicy)
    schedule_to_start_ms: int | None = None
    start_to_close_ms: int | None = None
    schedule_to_close_ms: int | None = None
    heartbeat_ms: int | None = None
    rerun_after_loss: bool = True
    max_losses: int = DEFAULT_MAX_LOSSES
    max_claims: int = DEFAULT_LEG1_LIMIT
    stream: StreamOptions | None = None
    external: ExternalOptions | None = None
    prepares: bool = False
    """Its attempts are PREPARING while the function of `prepare=` runs."""
    process: bool | UnsetType = UNSET
    """Chosen by the call: whether the body runs in a process. Otherwise the activity of the worker decides."""
    on_cancel: OnCancel | UnsetType = UNSET
    """UNSET: `OnCancel.REQUEST`."""
    trace: str | msgspec.UnsetType = msgspec.UNSET
    """The trace context of the execution that scheduled the attempt; not stored if it is not traced (M4)."""
    pauses: bool = False
    """When its retries are used up, its instance is paused and a person decides (R26)."""

    def expires_at_ready_ms(self, *, scheduled_at_ms: int, available_at_ms: int) -> int | None:
        """A5: the time at which a queued attempt expires. The delay of a retry does not count as waiting."""
        return _nearest(
            _after(available_at_ms, self.schedule_to_start_ms), _after(scheduled_at_ms, self.schedule_to_close_ms)
        )

    def expires_at_running_ms(self, *, scheduled_at_ms: int, started_at_ms: int, heard_at_ms: int) -> int | None:
        """A5: the time at which a running body expires, given the time of its last heartbeat."""
        if self.start_to_close_ms is None and self.schedule_to_close_ms is None and self.heartbeat_ms is None:
            return None  # the most frequent case
        return _nearest(
            _after(started_at_ms, self.start_to_close_ms),
            _after(scheduled_at_ms, self.schedule_to_close_ms),
            _after(heard_at_ms, self.heartbeat_ms),
        )


SILENCE_AFTER_CANCEL_MS: Final = 60_000
"""A cancelled external attempt without a heartbeat time-out that is silent for this time has stopped (A6)."""


def expires_at_cancelled_ms(
    options: ActivityOptions, *, scheduled_at_ms: int, started_at_ms: int, heard_at_ms: int
) -> int | None:
    """The time at which a CANCELLED_RUNNING attempt expires, given the time of the cancel or of its last heartbeat.

    The silence of an external attempt counts as its stop; an attempt of a worker ends with its body or its worker.
    """
    expires = options.expires_at_running_ms(
        scheduled_at_ms=scheduled_at_ms, started_at_ms=started_at_ms, heard_at_ms=heard_at_ms
    )
    if options.external is None or options.heartbeat_ms is not None:
        return expires
    return _nearest(expires, heard_at_ms + SILENCE_AFTER_CANCEL_MS)


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(ActivityOptions)


def encode_options(options: ActivityOptions) -> bytes:
    """The options as they are stored with an attempt."""
    return _encoder.encode(options)


def with_trace(encoded: bytes, trace: str) -> bytes:
    """Encoded options without a trace context, with this one."""
    return b'%s,"trace":%s}' % (encoded[:-1], _encoder.encode(trace))


@lru_cache(maxsize=1_000)
def decode_options(data: bytes) -> ActivityOptions:
    """The options of a stored attempt. The attempts of one activity have the same ones unless they are traced."""
    return _decoder.decode(data)


def options_of_next(data: bytes, entered: int) -> bytes:
    """The options of the attempt that follows one which delivered `entered` values: numbering continues (L15)."""
    options = decode_options(data)
    if options.stream is None or not entered:
        return data
    return encode_options(
        replace(options, stream=replace(options.stream, delivered=options.stream.delivered + entered))
    )


def _after(start_ms: int, duration_ms: int | None) -> int | None:
    return None if duration_ms is None else start_ms + duration_ms


def _nearest(*deadlines_ms: int | None) -> int | None:
    return min((deadline for deadline in deadlines_ms if deadline is not None), default=None)
