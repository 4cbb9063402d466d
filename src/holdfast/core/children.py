"""Children: what a parent's end means for them, what their end tells the parent, and how deep they may nest.

A child is an instance of its own. It is tied to the step of the execution that started it: its end answers that step,
if that execution is still the active one (G4, G5); and the end of that execution does to it what its policy says.
"""

from enum import StrEnum
from typing import Final, Literal

import msgspec

from holdfast.core.history import ChildCompleted, ChildFailed, ChildStopped, Payload
from holdfast.core.lifecycle import InstanceState

MOST_PARENTS: Final = 100
"""How many parents may be above an instance: a workflow that starts itself for ever ends here, with a typed error."""


class ParentClose(StrEnum):
    """What the end of the parent's execution does to a child that is open."""

    TERMINATE = "terminate"
    CANCEL = "cancel"
    ABANDON = "abandon"


ParentCloseOption = ParentClose | Literal["terminate", "cancel", "abandon"]
"""A policy as people write it."""


class ParentEnd(StrEnum):
    """In which way the execution of a parent came to its end."""

    BY_ITSELF = "by itself"
    """Its code returned, raised, or continued as new."""
    TERMINATED = "terminated"
    CANCELLED = "cancelled"
    """From outside, where no code could be asked (A9): its children are asked in its place."""


def decide_close(policy: ParentClose, ended: ParentEnd, state: InstanceState) -> ParentClose:
    """What to do with an open child of an execution that has ended.

    One that was asked to end may clean up, unless its parent was terminated.
    """
    if policy is ParentClose.TERMINATE and ended is ParentEnd.CANCELLED:
        policy = ParentClose.CANCEL
    if state is InstanceState.CANCEL_REQUESTED and not (
        policy is ParentClose.TERMINATE and ended is ParentEnd.TERMINATED
    ):
        return ParentClose.ABANDON
    return policy


def child_reply(
    child: int, state: InstanceState, outcome: Payload, *, time_ms: int
) -> ChildCompleted | ChildFailed | ChildStopped:
    """What the parent is told of the end of its child number `child`."""
    if state is InstanceState.COMPLETED:
        return ChildCompleted(time_ms=time_ms, child=child, result=outcome)
    if state is InstanceState.FAILED:
        return ChildFailed(time_ms=time_ms, child=child, failure=outcome)
    reason = msgspec.json.decode(outcome.data, type=str | None)
    return ChildStopped(time_ms=time_ms, child=child, state=state.value, reason=reason or "")
