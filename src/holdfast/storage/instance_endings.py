"""The end of an instance that its own code did not bring about: a termination, a cancellation or a deadline (A9, G3).

The decisions are pure and the same for every store. A store reads the instance, asks here, and writes the result in one
transaction: the last event of the history, the state, the outcome, and the end that its children see.
"""

from typing import Final, NamedTuple, assert_never

import msgspec

from holdfast.core import deadlines
from holdfast.core.admission import EventVerdict, stamp_ms
from holdfast.core.children import ParentEnd
from holdfast.core.history import (
    CancelRequested,
    DeadlinePassed,
    ExternalEnd,
    InstanceCancelled,
    InstanceTerminated,
    Payload,
)
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceEvent, InstanceState, next_state
from holdfast.errors import DeadlineExceeded
from holdfast.payloads.failures import RecordedFailure, error_name, qualified_name
from holdfast.storage.records import DeadlineRecord, InstanceRecord

REPLACED: Final = "its id was started again, and the policy was terminate_existing"
"""The reason of the termination of an instance whose id is given to a new one (G3)."""
PARENT_ENDED: Final = "its parent ended"
MOST_CHILDREN_PER_COMMIT: Final = 500
"""The children that one commit closes at most. A longer commit would delay all others."""

_encode = msgspec.json.Encoder().encode


class CancelResult(NamedTuple):
    """The verdict on a request to cancel, and whether the instance ends by it without running code."""

    verdict: EventVerdict
    ends_at_once: bool = False


def decide_cancel(found: InstanceRecord) -> CancelResult:
    """A9: the code handles the request. An instance that has not begun, or that is blocked, ends at once."""
    state = found.state
    if state in INSTANCE_FINAL:
        return CancelResult(EventVerdict.CLOSED)
    if state is InstanceState.CANCEL_REQUESTED:
        return CancelResult(EventVerdict.DUPLICATE)
    return CancelResult(EventVerdict.DELIVER, ends_at_once=not found.has_begun or state is InstanceState.BLOCKED)


def end_by_termination(found: InstanceRecord, reason: str, *, now_ms: int) -> InstanceTerminated:
    return InstanceTerminated(time_ms=stamp_ms(found.stamp_ms, now_ms), reason=reason)


def end_by_cancel(found: InstanceRecord, reason: str, *, now_ms: int) -> InstanceCancelled:
    return InstanceCancelled(time_ms=stamp_ms(found.stamp_ms, now_ms), reason=reason)


def end_by_deadline(found: InstanceRecord, deadline: DeadlineRecord, *, now_ms: int) -> DeadlinePassed:
    why = deadlines.why_ended(
        found.state,
        limit_ms=deadline.at_ms - found.begins_at_ms,
        grace_ms=deadline.grace_ms,
        is_grace_over=deadline.is_in_grace,
    )
    failure = RecordedFailure(type=qualified_name(DeadlineExceeded), message=why)
    return DeadlinePassed(time_ms=stamp_ms(found.stamp_ms, now_ms), failure=Payload(msgspec.Raw(_encode(failure))))


def cancel_at_deadline(found: InstanceRecord, deadline: DeadlineRecord) -> CancelRequested:
    """The request to cancel that the code gets when its deadline passes."""
    reason = deadlines.reason(deadline.at_ms - found.begins_at_ms)
    return CancelRequested(time_ms=0, reason=reason, by_deadline=True)


def state_after(found: InstanceRecord, ended: ExternalEnd) -> InstanceState:
    """The final state, by the edges of the table. A cancel passes from PAUSED through the state before the pause."""
    state = found.state
    match ended:
        case InstanceTerminated():
            return next_state(state, InstanceEvent.TERMINATE)
        case InstanceCancelled():
            if state is InstanceState.PAUSED:
                state = next_state(state, InstanceEvent.RESUME_REQUESTED)
            return next_state(state, InstanceEvent.CANCEL)
        case DeadlinePassed():
            return deadlines.failed_from(state)
        case _:
            assert_never(ended)


def outcome_of(ended: ExternalEnd) -> bytes:
    """The encoded payload in the instance's row: the failure, or the reason."""
    if isinstance(ended, DeadlinePassed):
        return _encode(ended.failure)
    return _encode(Payload(msgspec.Raw(_encode(ended.reason or None))))


def error_of(ended: ExternalEnd) -> str | None:
    """The type of the error, if the instance ended as FAILED (F4)."""
    return error_name(bytes(ended.failure.data)) if isinstance(ended, DeadlinePassed) else None


def parent_end_of(ended: ExternalEnd) -> ParentEnd:
    """The end of their parent as its children see it."""
    return ParentEnd.CANCELLED if isinstance(ended, InstanceCancelled) else ParentEnd.TERMINATED
