"""Which commits other processes have to hear of, and which instances ended in them without having been asked.

Other processes are woken, and look; what there is to see is in the store.
"""

from collections.abc import Iterator, Sequence

from holdfast.core.gates import IdPolicy
from holdfast.storage.contract import (
    Applied,
    ClaimAttempts,
    ClaimInstances,
    Delivered,
    EndedInstance,
    Expired,
    Forget,
    HeartbeatAttempt,
    Member,
    Outcome,
    Start,
    StartedInstance,
    TakeQuestions,
    TerminatedInstance,
    Turn,
)


def ended_with(outcomes: Sequence[Outcome]) -> Iterator[EndedInstance]:
    """Children that ended with something else in a group."""
    for outcome in outcomes:
        if isinstance(outcome, Applied | TerminatedInstance | Delivered | StartedInstance | Expired) and outcome.ended:
            yield from outcome.ended


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
        case ClaimAttempts() | ClaimInstances() | HeartbeatAttempt() | TakeQuestions() | Forget():
            return False
        case _:
            return True


def _reaches_others(turn: Turn) -> bool:
    """Whether a turn has something for other instances, which other processes may have, or for senders of updates."""
    return turn.family or len(turn.sent) > 0 or len(turn.answers) > 0 or len(turn.kept) > 0
