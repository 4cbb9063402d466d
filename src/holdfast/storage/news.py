"""Whether a commit has something for other processes: they are woken and look, and find it in the store."""

from holdfast.core.gates import IdPolicy
from holdfast.storage.contract import (
    ClaimAttempts,
    ClaimInstances,
    ClaimQueries,
    DeleteQueries,
    HeartbeatAttempt,
    Member,
    Start,
    Turn,
)


def is_for_others(member: Member) -> bool:
    """Whether a member may have something for another process."""
    match member:
        case Turn():
            return member.close is not None or member.release or len(member.attempts) > 0 or _reaches_others(member)
        case Start():
            first = member.first
            ends_another = member.policy is IdPolicy.TERMINATE_EXISTING
            if first is None or first.close is not None or len(first.attempts) > 0 or ends_another:
                return True
            return _reaches_others(first)
        case ClaimAttempts() | ClaimInstances() | HeartbeatAttempt() | ClaimQueries() | DeleteQueries():
            return False
        case _:
            return True


def _reaches_others(turn: Turn) -> bool:
    """Whether a turn has something for other instances, which other processes may have, or for senders of updates."""
    return turn.family or len(turn.sent) > 0 or len(turn.answers) > 0 or len(turn.kept) > 0
