"""Updates: what becomes of one that is sent, judged from what is known of its id (G5, G7, G10)."""

from enum import StrEnum
from typing import Final

from holdfast.core.admission import EventVerdict
from holdfast.core.checks import parse_enum
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState
from holdfast.core.queries import ReplyKind

MAX_OPEN_UPDATES: Final = 1_000
"""Updates of one instance that were sent and not answered yet."""
REJECTION_KEPT_MS: Final = 600_000
"""How long is kept that an update was rejected: long enough for its sender, who waits for it, to read it."""


class UpdateState(StrEnum):
    """How far an update has come. From ASKED to ACCEPTED or to an answer; from ACCEPTED to an answer."""

    ASKED = "asked"
    ACCEPTED = "accepted"
    DONE = "done"
    FAILED = "failed"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


REFUSALS: Final = frozenset({UpdateState.REJECTED, UpdateState.UNKNOWN})
"""These left no trace in the history: the same id may be sent again, and is judged anew."""
STATE_OF: Final = {
    ReplyKind.DONE: UpdateState.DONE,
    ReplyKind.FAILED: UpdateState.FAILED,
    ReplyKind.REJECTED: UpdateState.REJECTED,
    ReplyKind.UNKNOWN: UpdateState.UNKNOWN,
}


def decide_update(
    state: InstanceState | str,
    *,
    known: UpdateState | str | None,
    open_updates: int,
    is_same: bool = True,
    limit: int = MAX_OPEN_UPDATES,
) -> EventVerdict:
    """Judge an update for the newest instance of an id.

    `known`: what became of one of the same id before. `is_same`: it had the same name and the same input, too.
    """
    state = parse_enum(InstanceState, state, "state of an instance")
    if known is not None and parse_enum(UpdateState, known, "state of an update") not in REFUSALS:
        return EventVerdict.DUPLICATE if is_same else EventVerdict.CONFLICT
    if state in INSTANCE_FINAL:
        return EventVerdict.CLOSED
    return EventVerdict.DELIVER if open_updates < limit else EventVerdict.MAILBOX_FULL
