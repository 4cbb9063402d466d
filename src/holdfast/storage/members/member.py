"""Members of a group, each with its own guard, and what can come of them.

A member says which rows it expects and what it makes of them. It is applied as a whole or not at all.

Whether a commit has something for other processes: they are woken and look, and find it in the store.
"""

from typing import Final

from holdfast.core.admission import IdPolicy
from holdfast.core.leases import WorkerKey
from holdfast.storage.members.attempts import ClaimAttempts, Completion, HeartbeatAttempt, OpenNextAttempt
from holdfast.storage.members.instances import (
    Block,
    ClaimInstances,
    CloseChildren,
    Expire,
    Release,
    SaveFlow,
    SetDeadline,
    Start,
    Terminate,
)
from holdfast.storage.members.messages import AskQuery, ClaimQueries, DeleteQueries, Deliver, QueryMember
from holdfast.storage.members.turns import StreamValues, Turn
from holdfast.storage.members.workers import MarkWorkerLost, ReleaseUnknown

Member = (
    Start
    | Turn
    | Terminate
    | Completion
    | OpenNextAttempt
    | ClaimInstances
    | ClaimAttempts
    | Release
    | Block
    | HeartbeatAttempt
    | MarkWorkerLost
    | ReleaseUnknown
    | Deliver
    | StreamValues
    | SetDeadline
    | Expire
    | CloseChildren
    | SaveFlow
    | QueryMember
)


CANCEL_REQUESTED: Final = "cancel requested"
"""Why the heartbeat or a streamed value of an attempt that was cancelled is rejected."""


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


def actor_of(member: Member) -> WorkerKey | None:
    """In whose name a member acts. Janitors and clients act in nobody's."""
    match member:
        case Turn():
            return member.owner
        case Start():
            return member.first.owner if member.first else None
        case (
            MarkWorkerLost()
            | Terminate()
            | Deliver()
            | Expire()
            | CloseChildren()
            | AskQuery()
            | DeleteQueries()
            | SaveFlow()
        ):
            return None
        case OpenNextAttempt():
            return member.ended.owner if member.by_owner else None
        case Completion():
            return member.owner if member.by_owner else None
        case _:
            return member.owner
