"""Updates: their states, and the decision about a sent update (G5, G7, G10)."""

from enum import StrEnum
from typing import Final

from holdfast.core.admission import EventVerdict
from holdfast.core.checks import parse_enum
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState
from holdfast.core.queries import ReplyKind

MAX_OPEN_UPDATES: Final = 1_000
"""The largest number of unanswered updates of one instance."""
RELEASE_UPDATE: Final = "holdfast.release"
"""The name of the update that releases a held node of a flow (K11). Its arguments: the node, and another output."""
REJECTION_KEPT_MS: Final = 600_000
"""How long the rejection of an update is stored: long enough for its waiting sender to read it."""


class UpdateState(StrEnum):
    """The state of an update: ASKED, then possibly ACCEPTED, then one of the replies."""

    ASKED = "asked"
    ACCEPTED = "accepted"
    DONE = "done"
    FAILED = "failed"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


REFUSALS: Final = frozenset({UpdateState.REJECTED, UpdateState.UNKNOWN})
"""States that leave no event in the history: an update with the same id may be sent again."""
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
    """Decide about an update for the newest instance of an id.

    `known`: the state of an earlier update with the same id. `is_same`: it had the same name and input.
    """
    state = parse_enum(InstanceState, state, "state of an instance")
    if known is not None and parse_enum(UpdateState, known, "state of an update") not in REFUSALS:
        return EventVerdict.DUPLICATE if is_same else EventVerdict.CONFLICT
    if state in INSTANCE_FINAL:
        return EventVerdict.CLOSED
    return EventVerdict.DELIVER if open_updates < limit else EventVerdict.MAILBOX_FULL
