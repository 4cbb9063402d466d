"""Reports about external attempts: how the engine judges one row of `activity_events` (C2, C4, A1, A2, A6, A7, L10).

`judge` decides one report by the state of its attempt, without changing anything. The store applies the verdict inside
its transaction and judges the next report by the state after it.
"""

from enum import StrEnum
from typing import Final

import msgspec

from holdfast.core.activity_options import SILENCE_AFTER_CANCEL_MS, ActivityOptions
from holdfast.core.lifecycle import ATTEMPT_FINAL, ATTEMPT_TABLE, AttemptEvent, AttemptState
from holdfast.core.pauses import is_withheld

MOST_WAITING: Final = 1_000
"""Rows of one attempt that wait for RUNNING or for a sequence. The next one is refused."""
TOO_EARLY: Final = "TOO EARLY"
OTHER_CLAIM: Final = "under another claim"
"""The end of the refusal of a report whose claim is not the one that took the attempt (A2)."""
DEFAULT_ERROR_TYPE: Final = "ExternalFailure"
"""The type of a failure that is reported without one. A retry policy knows it by this name."""
NO_RESPONSES: Final = "the activity takes no responses; declare it with the result AsyncIterator[...]"


class ReportKind(StrEnum):
    """The values of the column `transition`."""

    QUEUED = "QUEUED"
    PREPARING = "PREPARING"
    RUNNING = "RUNNING"
    HEARTBEAT = "HEARTBEAT"
    RESPONSE = "RESPONSE"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    RELEASE = "RELEASE"
    CANCEL = "CANCEL"
    STOPPED = "STOPPED"
    NOTE = "NOTE"


class ReportState(StrEnum):
    """The states of a row of `activity_events`."""

    NEW = "NEW"
    APPLIED = "APPLIED"
    WAITING = "WAITING"
    DUPLICATE = "DUPLICATE"
    REFUSED = "REFUSED"


_K = ReportKind
_S = AttemptState

EVENT_OF: Final = {
    _K.QUEUED: AttemptEvent.QUEUE,
    _K.PREPARING: AttemptEvent.PREPARE,
    _K.RUNNING: AttemptEvent.RUN,
    _K.COMPLETED: AttemptEvent.COMPLETE,
    _K.FAILED: AttemptEvent.FAIL,
    _K.RELEASE: AttemptEvent.RELEASE,
    _K.CANCEL: AttemptEvent.CANCEL,
    _K.STOPPED: AttemptEvent.STOPPED,
}
"""The reports that change the state, by the one table (A1). HEARTBEAT, RESPONSE and NOTE do not."""

_BEFORE_RUNNING: Final = frozenset({_S.READY, _S.QUEUED, _S.PREPARING})
_CLAIMED: Final = frozenset({_S.QUEUED, _S.PREPARING})
_HELD: Final = frozenset({_S.QUEUED, _S.PREPARING, _S.RUNNING, _S.CANCELLED_RUNNING})
_HELD_BACK: Final = frozenset({_K.RESPONSE, _K.COMPLETED, _K.FAILED})
"""The reports that a row which waits for RUNNING holds back."""
WITHOUT_CLAIM: Final = frozenset({_K.NOTE, _K.CANCEL})
"""The reports that need no claim (A2)."""


class CheckedReport(msgspec.Struct, frozen=True, gc=False):
    """One row of `activity_events`, with its values checked against the signature of the activity."""

    row: int
    kind: ReportKind | None
    """None: the transition is unknown, and `fault` is its refusal."""
    claim: str | None = None
    sequence: int | None = None
    value: bytes = b"null"
    """The encoded value of COMPLETED and RESPONSE, the details of HEARTBEAT."""
    failure: bytes | None = None
    """The encoded failure of FAILED, and in `error_types` the names by which a retry policy knows it."""
    error_types: tuple[str, ...] = ()
    inserted_at_ms: int = 0
    fault: str | None = None
    """Why the row is refused whatever the state of its attempt: malformed JSON, a value of the wrong type."""
    is_unread: bool = False
    """Its values were not read and checked. It may be refused or go on waiting, and is not applied."""
    event_id: str = ""


class ReportVerdict(msgspec.Struct, frozen=True):
    """The state of a row after it was judged. `reason` is a sentence for its writer."""

    state: ReportState
    reason: str | None = None


APPLY: Final = ReportVerdict(ReportState.APPLIED)
_DUPLICATE: Final = ReportVerdict(
    ReportState.DUPLICATE, "an event with this sequence was handled before; this one is ignored"
)


class OfferedAttempt(msgspec.Struct, frozen=True):
    """The state of an attempt by which a report is judged."""

    state: AttemptState
    is_withdrawn: bool
    """The report names an offer that was released: the attempt has another exec id by now."""
    claim: str | None
    """The claim that took the attempt out of READY, if one was given."""
    expires_at_ms: int | None
    available_at_ms: int
    takes_responses: bool
    handled_sequence: int
    """The highest sequence of the report's series that was handled, with all before it."""
    holds_back: bool = False
    """A row of the attempt that was inserted before the report waits for RUNNING."""


def judge(attempt: OfferedAttempt, report: CheckedReport, *, now_ms: int) -> ReportVerdict:
    """The verdict on one report. A report counts from its insert: a deadline that passed later does not refuse it."""
    state = attempt.state
    kind = report.kind
    is_over = attempt.is_withdrawn or state in ATTEMPT_FINAL
    if is_over:
        return _judge_after_end(attempt, report)
    if _has_other_claim(attempt, report):
        return _refused(
            f"the attempt is {state} {OTHER_CLAIM}"
            if report.claim is not None
            else f"the attempt is {state} under a claim, which this event does not give"
        )
    inserted_at_ms = min(report.inserted_at_ms, now_ms)
    if kind is not _K.NOTE and attempt.expires_at_ms is not None and inserted_at_ms > attempt.expires_at_ms:
        return _refused(f"it was inserted after a deadline of the attempt, which was {state}, had passed")
    if (verdict := _judge_sequence(attempt, report)) is not None:
        return verdict
    if report.fault is not None or kind is None:
        return _refused(report.fault or "the transition is unknown")
    return _judge_kind(attempt, kind, now_ms=now_ms)


def is_early(attempt_state: AttemptState, verdict: ReportVerdict) -> bool:
    """Whether a row waits for RUNNING, and so holds back results behind it (L10)."""
    return verdict.state is ReportState.WAITING and verdict.reason == TOO_EARLY and attempt_state in _BEFORE_RUNNING


def _refused(reason: str) -> ReportVerdict:
    return ReportVerdict(ReportState.REFUSED, reason)


def _judge_after_end(attempt: OfferedAttempt, report: CheckedReport) -> ReportVerdict:
    """A7: notes are kept, once. Nothing else changes a closed attempt, or one that is offered under another id."""
    if report.kind is _K.NOTE:
        if report.sequence is not None and 1 <= report.sequence <= attempt.handled_sequence:
            return _DUPLICATE
        return APPLY if report.fault is None else _refused(report.fault)
    if attempt.is_withdrawn:
        return _refused("the claim of this activity_exec_id was released, and the attempt is offered under another id")
    return _refused(f"the attempt is {attempt.state}; the first result stands")


def _has_other_claim(attempt: OfferedAttempt, report: CheckedReport) -> bool:
    """A2: whether another claimant has the attempt."""
    if attempt.state is _S.READY or attempt.claim is None or report.kind in WITHOUT_CLAIM:
        return False
    return report.claim != attempt.claim


def _judge_sequence(attempt: OfferedAttempt, report: CheckedReport) -> ReportVerdict | None:
    sequence = report.sequence
    if sequence is None:
        return None
    if sequence < 1:
        return _refused(f"sequences count from 1, and this one is {sequence}")
    if sequence <= attempt.handled_sequence:
        return _DUPLICATE
    if sequence > attempt.handled_sequence + 1:
        return ReportVerdict(
            ReportState.WAITING, f"it waits for the event with sequence {attempt.handled_sequence + 1}"
        )
    return None


def _judge_kind(attempt: OfferedAttempt, kind: ReportKind, *, now_ms: int) -> ReportVerdict:
    state = attempt.state
    if kind is _K.NOTE:
        return APPLY
    if kind is _K.HEARTBEAT:
        return APPLY if state in _HELD else _refused(f"an attempt that is {state} has no executor and no heartbeat")
    if kind is _K.RESPONSE and not attempt.takes_responses:
        return _refused(NO_RESPONSES)
    is_early_result = kind in (_K.RESPONSE, _K.COMPLETED) and state in _BEFORE_RUNNING
    if is_early_result or (attempt.holds_back and kind in _HELD_BACK):
        return ReportVerdict(ReportState.WAITING, TOO_EARLY)
    if kind is _K.RESPONSE:
        return APPLY if state is _S.RUNNING else _refused("a cancel was requested, so that nothing takes the response")
    if ATTEMPT_TABLE[state].get(EVENT_OF[kind]) is None:
        return _refused(f"an attempt that is {state} has no transition {kind}")
    if state is _S.READY and kind is not _K.CANCEL and is_withheld(attempt.available_at_ms):
        return _refused("its instance is PAUSED, so that nothing takes the attempt out of READY")
    if state is _S.READY and kind is not _K.CANCEL and attempt.available_at_ms > now_ms:
        return _refused(f"the attempt is a retry that is available in {attempt.available_at_ms - now_ms} ms")
    return APPLY


class ExternalDeadline(msgspec.Struct, frozen=True):
    """The nearest deadline of an external attempt, and the event of the table that follows it (A5)."""

    at_ms: int
    event: AttemptEvent


def external_deadline(
    options: ActivityOptions,
    state: AttemptState,
    *,
    scheduled_at_ms: int,
    available_at_ms: int,
    started_at_ms: int | None,
    heard_at_ms: int | None,
    silent_until_ms: int = 0,
) -> ExternalDeadline | None:
    """The nearest deadline. Of two at one time, EXPIRE.

    `heard_at_ms` is the time at which the claimant or executor last reported. The silence of a cancelled attempt is not
    judged before `silent_until_ms`.
    """
    external = options.external
    close_at_ms = _after(scheduled_at_ms, options.schedule_to_close_ms)
    expiring = [close_at_ms]
    other: tuple[int, AttemptEvent] | None = None
    if state in _BEFORE_RUNNING:
        expiring.append(_after(available_at_ms, options.schedule_to_start_ms))
        if state in _CLAIMED and external is not None and heard_at_ms is not None:
            other = heard_at_ms + external.claim_timeout_ms, AttemptEvent.RELEASE
    else:
        expiring.append(_after(started_at_ms, options.start_to_close_ms))
        if state is _S.CANCELLED_RUNNING:
            silence_ms = SILENCE_AFTER_CANCEL_MS if options.heartbeat_ms is None else options.heartbeat_ms
            known = (moment for moment in (heard_at_ms, started_at_ms) if moment is not None)
            silent_at_ms = next(known, scheduled_at_ms) + silence_ms
            other = max(silent_at_ms, silent_until_ms), AttemptEvent.STOPPED
        else:
            expiring.append(_after(heard_at_ms, options.heartbeat_ms))
    nearest = min((at_ms for at_ms in expiring if at_ms is not None), default=None)
    if other is not None and (nearest is None or other[0] < nearest):
        return ExternalDeadline(*other)
    return None if nearest is None else ExternalDeadline(nearest, AttemptEvent.EXPIRE)


def _after(start_ms: int | None, duration_ms: int | None) -> int | None:
    return None if start_ms is None or duration_ms is None else start_ms + duration_ms
