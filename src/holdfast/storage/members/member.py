"""The union of all members of a group.

A member names the rows that it expects and the change that it makes of them. It is applied as a whole or not at all.
"""

from typing import Final

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
from holdfast.storage.members.messages import Deliver, QueryMember
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
"""The reason of the rejection of a heartbeat or a streamed value of an attempt that was cancelled."""
