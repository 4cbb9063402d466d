"""Members of a group, each with its own guard, and what can come of them.

A member says which rows it expects and what it makes of them. It is applied as a whole or not at all.

Whether a commit has something for other processes: they are woken and look, and find it in the store.
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
"""Why the heartbeat or a streamed value of an attempt that was cancelled is rejected."""
