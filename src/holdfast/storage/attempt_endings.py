"""What follows when an attempt ends without a result: a retry, or the failure of its activity (G13, A10, W6).

The decision is pure and the same for every store. The worker that records the end commits the member that is returned:
the owner whose body failed, maintenance that found a passed deadline, or a worker that found a dead one.

A cancelled attempt is not retried (A1). After a cancel by the turn of its own workflow nothing waits for an answer.
After a request from outside (`cancel_requested_at_ms`) the workflow still waits, and every end of the attempt but a
result is answered with `ActivityCancelled`.
"""

from typing import Final, cast

import msgspec

from holdfast.core.activity_options import (
    NoRetry,
    RetryLater,
    after_failure,
    after_loss,
    decode_options,
    options_of_next,
)
from holdfast.core.checks import require
from holdfast.core.history import ActivityFailed, Payload
from holdfast.core.ledger import SEED, enter_leg2, exit_leg2, read_ledger
from holdfast.core.lifecycle import AttemptEvent, AttemptState, next_state
from holdfast.core.streams import values_delivered
from holdfast.errors import ActivityTimedOut
from holdfast.payloads.failures import RecordedFailure, qualified_name
from holdfast.storage.members.attempts import Completion, OpenNextAttempt, Transition
from holdfast.storage.records import AttemptRecord, NewAttempt

LONGEST_REASON: Final = 1_000
"""The number of characters of the reason of a pause."""
_encode = msgspec.json.Encoder().encode
_decode_failure = msgspec.json.Decoder(RecordedFailure).decode


def is_awaited(attempt: AttemptRecord) -> bool:
    """Whether the workflow waits for the answer of an open attempt, as far as its row says."""
    return attempt.state is not AttemptState.CANCELLED_RUNNING or attempt.cancel_requested_at_ms is not None


def end_by_cancel(
    attempt: AttemptRecord, event: AttemptEvent, *, now_ms: int, failure: bytes | None = None
) -> Completion:
    """The end of an attempt that was cancelled, by the one table (A1).

    `event` is CANCEL before an executor has it; afterwards STOPPED, or FAIL or EXPIRE with the failure of the attempt.
    """
    if not is_awaited(attempt):
        return _final(attempt, failure, event, now_ms)
    cause = None if failure is None else _cause_of(failure)
    cancelled = RecordedFailure(
        type="holdfast.errors.ActivityCancelled", message=f"{attempt.name} was cancelled", cause=cause, retryable=False
    )
    return _final(attempt, _encode(cancelled), event, now_ms)


def _cause_of(failure: bytes) -> RecordedFailure | None:
    try:
        return _decode_failure(failure)
    except msgspec.DecodeError:
        return None  # of a newer release


def end_by_failure(
    attempt: AttemptRecord,
    failure: RecordedFailure,
    error_types: tuple[str, ...],
    *,
    event: AttemptEvent,
    now_ms: int,
    random_number: float,
    is_exhausted: bool = False,
) -> OpenNextAttempt | Completion:
    """The body failed (`event` FAIL) or a deadline passed (EXPIRE).

    `is_exhausted`: no further claim is allowed (L8).
    """
    options = decode_options(attempt.options)
    close_at = None if options.schedule_to_close_ms is None else attempt.scheduled_at_ms + options.schedule_to_close_ms
    asked = failure.next_delay_seconds
    decision = after_failure(
        options.retry,
        failures=attempt.failures + 1,
        error_types=(*error_types, *(name.rpartition(".")[2] for name in error_types)),  # flows may use the short names
        random_number=random_number,
        left_ms=None if close_at is None else close_at - now_ms,
        asked_delay_ms=None if asked is None else round(asked * 1000),
    )
    if failure.retryable is False:
        decision = NoRetry("the failure is marked as not retryable", is_exhausted=is_exhausted)
    data = _encode(failure)
    if attempt.state is AttemptState.CANCELLED_RUNNING:
        return end_by_cancel(attempt, event, now_ms=now_ms, failure=data)
    if isinstance(decision, NoRetry):
        if options.pauses and decision.is_exhausted:
            return _held(attempt, failure, event, now_ms)
        return _final(attempt, data, event, now_ms)
    return _again(attempt, data, event, now_ms, decision, failures=attempt.failures + 1, losses=attempt.losses)


def end_by_loss(attempt: AttemptRecord, *, now_ms: int, is_clean: bool = False) -> OpenNextAttempt | Completion:
    """The worker of a running attempt was lost. Losses are counted apart from failures; clean stops are not counted."""
    options = decode_options(attempt.options)
    losses = attempt.losses + (0 if is_clean else 1)
    decision = after_loss(losses=losses, rerun_after_loss=options.rerun_after_loss, max_losses=options.max_losses)
    who = f"worker {attempt.owner}" if attempt.owner is not None else "the executor"
    message = f"{who} was lost while {attempt.name} ran"
    if isinstance(decision, NoRetry):
        message = f"{message}, and it is not run again: {decision.reason}"
    failure = RecordedFailure(type="holdfast.errors.WorkerLost", message=message)
    data = _encode(failure)
    if isinstance(decision, NoRetry) and options.pauses:
        return _held(attempt, failure, AttemptEvent.EXPIRE, now_ms)
    if isinstance(decision, NoRetry):
        return _final(attempt, data, AttemptEvent.EXPIRE, now_ms)
    return _again(attempt, data, AttemptEvent.EXPIRE, now_ms, decision, failures=attempt.failures, losses=losses)


def transition(attempt: AttemptRecord, event: AttemptEvent, *, failure: bytes | None = None) -> Transition:
    """The guarded change of an attempt by `event`, from the one table (A1). The digits stay."""
    return Transition(
        key=attempt.key,
        owner=attempt.owner,
        from_state=attempt.state,
        from_ledger=attempt.ledger,
        to_state=next_state(attempt.state, event),
        to_ledger=attempt.ledger,
        failure=failure,
    )


def _again(
    attempt: AttemptRecord,
    failure: bytes,
    event: AttemptEvent,
    now_ms: int,
    retry: RetryLater,
    *,
    failures: int,
    losses: int,
) -> OpenNextAttempt:
    options = decode_options(attempt.options)
    available_at_ms = now_ms + retry.delay_ms
    entered = read_ledger(attempt.ledger).responses_entered
    return OpenNextAttempt(
        ended=transition(attempt, event, failure=failure),
        next=NewAttempt(
            activity=attempt.key.activity,
            attempt=attempt.key.attempt + 1,
            name=attempt.name,
            queue=attempt.queue,
            state=AttemptState.READY,
            ledger=SEED,
            input=attempt.input,
            options=attempt.options if not entered else options_of_next(attempt.options, entered),
            available_at_ms=available_at_ms,
            scheduled_at_ms=attempt.scheduled_at_ms,
            expires_at_ms=options.expires_at_ready_ms(
                scheduled_at_ms=attempt.scheduled_at_ms, available_at_ms=available_at_ms
            ),
            failures=failures,
            losses=losses,
            details=attempt.details,
            is_external=options.external is not None,
        ),
        attempt=attempt,
    )


def _held(attempt: AttemptRecord, failure: RecordedFailure, event: AttemptEvent, now_ms: int) -> OpenNextAttempt:
    """R26: the retries are used up, and a person decides. The next attempt has a fresh budget and waits for that."""
    begun = msgspec.structs.replace(attempt, scheduled_at_ms=now_ms)
    opened = _again(begun, _encode(failure), event, now_ms, RetryLater(0), failures=0, losses=0)
    return msgspec.structs.replace(opened, attempt=attempt, exhausted=_why_held(attempt, failure))


def _why_held(attempt: AttemptRecord, failure: RecordedFailure) -> str:
    name = failure.type.rpartition(".")[2]
    what = f"{name}: {failure.message}" if failure.message else name
    return f"{attempt.name} has used up its retries: {what}"[:LONGEST_REASON]


def let_through(held: OpenNextAttempt, *, now_ms: int) -> Completion:
    """The end of the activity, for an instance that cannot be paused."""
    require(held.attempt is not None, "an attempt whose retries are used up comes with its row")
    attempt = cast("AttemptRecord", held.attempt)
    event = AttemptEvent.FAIL if held.ended.to_state is AttemptState.FAILED else AttemptEvent.EXPIRE
    ended = _final(attempt, held.ended.failure, event, now_ms)
    return msgspec.structs.replace(ended, from_state=held.ended.from_state, by_owner=held.by_owner)


def end_exhausted(attempt: AttemptRecord, *, now_ms: int) -> Completion:
    """R27: the failure of the attempt before is the answer, and this attempt is never run."""
    return _final(attempt, attempt.failure, AttemptEvent.CANCEL, now_ms)


def _final(attempt: AttemptRecord, failure: bytes | None, event: AttemptEvent, now_ms: int) -> Completion:
    """The failure is the activity's answer, if the workflow waits for one.

    A timed-out or cancelled attempt keeps its digits; its answer needs no leg 2 (A8).
    """
    to_state = next_state(attempt.state, event)
    entered = applied = attempt.ledger
    if to_state is AttemptState.FAILED and read_ledger(attempt.ledger).leg1_concluded:
        entered, _ = enter_leg2(attempt.ledger)
        applied = exit_leg2(entered, final=True)
    stream = decode_options(attempt.options).stream
    answer: ActivityFailed | None = None
    if failure is not None and is_awaited(attempt):
        answer = ActivityFailed(
            time_ms=now_ms,
            activity=attempt.key.activity,
            attempt=attempt.key.attempt,
            failure=Payload(msgspec.Raw(failure)),
        )
    return Completion(
        key=attempt.key,
        owner=attempt.owner,
        from_state=attempt.state,
        from_ledger=attempt.ledger,
        to_state=to_state,
        entered_ledger=entered,
        applied_ledger=applied,
        event=answer,
        failure=failure,
        values=None if stream is None else values_delivered(stream.delivered, attempt.ledger),
        attempt=attempt,
    )


TIMED_OUT_TYPES: Final = tuple(qualified_name(cls) for cls in ActivityTimedOut.__mro__)


def time_out(attempt: AttemptRecord) -> tuple[RecordedFailure, tuple[str, ...]]:
    """The failure of an attempt whose deadline has passed, and the names of its type and base classes (A5)."""
    message, kind = _overdue(attempt)
    attributes = {} if kind is None else {"kind": kind}
    failure = RecordedFailure(type=qualified_name(ActivityTimedOut), message=message, attributes=attributes)
    return failure, TIMED_OUT_TYPES


def _overdue(attempt: AttemptRecord) -> tuple[str, str | None]:
    """Which of the four time-outs has passed (A5): the one that passed first. In words, and its name."""
    options = decode_options(attempt.options)
    close_ms = options.schedule_to_close_ms
    limits = [(attempt.scheduled_at_ms, close_ms, "was not done within its", "schedule_to_close")]
    if attempt.started_at_ms is None:
        limits.append(
            (attempt.available_at_ms, options.schedule_to_start_ms, "did not begin within its", "schedule_to_start")
        )
    else:
        heard_at_ms = attempt.heartbeat_at_ms or attempt.started_at_ms
        limits.append((attempt.started_at_ms, options.start_to_close_ms, "did not answer within its", "start_to_close"))
        limits.append((heard_at_ms, options.heartbeat_ms, "was silent for longer than its", "heartbeat"))
    passed = [(since + limit, limit, what, kind) for since, limit, what, kind in limits if limit is not None]
    if not passed:
        return f"{attempt.name} was {attempt.state} beyond its deadline", None
    _, limit_ms, what, kind = min(passed)
    return f"{attempt.name} {what} {kind} of {limit_ms / 1000:g} s", kind
