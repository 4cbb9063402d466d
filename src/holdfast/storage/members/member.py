"""The union of all members of a group.

A member names the rows that it expects and the change that it makes of them. It is applied as a whole or not at all.
"""

from typing import Final

from holdfast.storage.members.attempts import (
    CancelActivity,
    ClaimAttempts,
    Completion,
    HeartbeatAttempt,
    OpenNextAttempt,
    RunPrepared,
)
from holdfast.storage.members.instances import (
    Block,
    ClaimInstances,
    CloseChildren,
    Expire,
    Pause,
    Release,
    Resume,
    RetryBlocked,
    SaveFlow,
    SetAttributes,
    SetDeadline,
    Start,
    Terminate,
    Watch,
)
from holdfast.storage.members.messages import Deliver, QueryMember
from holdfast.storage.members.restoring import LiftNumbers, RestoreInstances
from holdfast.storage.members.retention import DeleteExecutions, DeleteFamilies
from holdfast.storage.members.row_handling import ContractMember
from holdfast.storage.members.turns import StreamValues, Turn
from holdfast.storage.members.workers import MarkWorkerLost, ReleaseUnknown

Member = (
    Start
    | Turn
    | Terminate
    | Completion
    | OpenNextAttempt
    | CancelActivity
    | ClaimInstances
    | ClaimAttempts
    | RunPrepared
    | Release
    | RetryBlocked
    | Pause
    | Resume
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
    | SetAttributes
    | Watch
    | LiftNumbers
    | RestoreInstances
    | DeleteFamilies
    | DeleteExecutions
    | QueryMember
    | ContractMember
)


CANCEL_REQUESTED: Final = "cancel requested"
"""The reason of the rejection of a heartbeat or a streamed value of an attempt that its workflow cancelled."""
CANCEL_AWAITED: Final = "cancel requested from outside"
"""The same for an attempt that was cancelled from outside of its workflow, which waits for the end of the body."""
