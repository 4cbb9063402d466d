"""What follows when an attempt ends without a result: a retry, or the failure of its activity (G13, A10, W6).

The decision is pure and the same for every store. The worker that records the end commits the member that is returned:
the owner whose body failed, maintenance that found a passed deadline, or a worker that found a dead one.
"""

import msgspec

from holdfast.core.activity_options import (
    NoRetry,
    RetryAfter,
    after_failure,
    after_loss,
    decode_options,
    options_of_next,
)
from holdfast.core.history import ActivityFailed, Payload
from holdfast.core.ledger import SEED, enter_leg2, exit_leg2, read_ledger
from holdfast.core.lifecycle import AttemptEvent, AttemptState, next_state
from holdfast.core.streams import values_delivered
from holdfast.payloads.failures import Failure
from holdfast.storage.members.attempts import Completion, OpenNextAttempt, Transition
from holdfast.storage.records import AttemptRecord, NewAttempt

_encode = msgspec.json.Encoder().encode


def end_by_failure(
    attempt: AttemptRecord,
    failure: Failure,
    error_types: tuple[str, ...],
    *,
    event: AttemptEvent,
    now_ms: int,
    random_number: float,
) -> OpenNextAttempt | Completion:
    """The body failed (`event` FAIL) or a deadline passed (EXPIRE)."""
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
        decision = NoRetry("the failure is marked as not retryable")
    data = _encode(failure)
    if isinstance(decision, NoRetry) or attempt.state is AttemptState.CANCELLED_RUNNING:
        return _final(attempt, data, event, now_ms)
    return _again(attempt, data, event, now_ms, decision, failures=attempt.failures + 1, losses=attempt.losses)


def end_by_loss(attempt: AttemptRecord, *, now_ms: int, is_clean: bool = False) -> OpenNextAttempt | Completion:
    """The worker of a running attempt was lost. Losses are counted apart from failures; clean stops are not counted."""
    options = decode_options(attempt.options)
    losses = attempt.losses + (0 if is_clean else 1)
    decision = after_loss(losses=losses, rerun_after_loss=options.rerun_after_loss, max_losses=options.max_losses)
    message = f"worker {attempt.owner} was lost while {attempt.name} ran"
    if isinstance(decision, NoRetry):
        message = f"{message}, and it is not run again: {decision.reason}"
    data = _encode(Failure(type="holdfast.errors.WorkerLost", message=message))
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
    retry: RetryAfter,
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
        ),
    )


def _final(attempt: AttemptRecord, failure: bytes, event: AttemptEvent, now_ms: int) -> Completion:
    """The failure is the activity's answer. A timed-out attempt keeps its digits; its answer needs no leg 2 (A8)."""
    to_state = next_state(attempt.state, event)
    entered = applied = attempt.ledger
    if to_state is AttemptState.FAILED and read_ledger(attempt.ledger).leg1_concluded:
        entered, _ = enter_leg2(attempt.ledger)
        applied = exit_leg2(entered, final=True)
    stream = decode_options(attempt.options).stream
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
        event=None if attempt.state is AttemptState.CANCELLED_RUNNING else answer,
        failure=failure,
        values=None if stream is None else values_delivered(stream.delivered, attempt.ledger),
    )
