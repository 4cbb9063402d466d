"""Children: parent-close policy, the result for the parent, and ids and seeds of children.

A child is an instance of its own, tied to the step of the execution that started it. Its end completes that step, if
that execution is still the active one (G4, G5). The end of that execution applies the parent-close policy of the child.
"""

from enum import StrEnum
from hashlib import sha256
from typing import Final, Literal

import msgspec

from holdfast.core.history import ChildCompleted, ChildFailed, ChildStopped, Payload
from holdfast.core.lifecycle import InstanceState

MOST_PARENTS: Final = 100
"""The largest number of ancestors: a workflow that starts itself recursively fails here with a typed error."""
NAME_LIMIT_BYTES: Final = 255
"""The longest name of an instance, a workflow or an activity."""
HASH_DIGITS: Final = 16
NOT_WAITED_FOR: Final = "its parent does not wait for it any more"
"""The reason of the cancel that an attached child receives when its parent stops waiting for it."""
SEED_BYTES: Final = 7
"""A seed stays below 2**63."""


class ParentClose(StrEnum):
    """What the end of the parent's execution does to an open child."""

    TERMINATE = "terminate"
    CANCEL = "cancel"
    ABANDON = "abandon"


ParentCloseOption = ParentClose | Literal["terminate", "cancel", "abandon"]
"""A policy as an argument of the public API."""


class ParentEnd(StrEnum):
    """How the execution of a parent ended."""

    BY_ITSELF = "by itself"
    """Its code returned, raised, or continued as new."""
    TERMINATED = "terminated"
    CANCELLED = "cancelled"
    """From outside, without running its code (A9): its children are cancelled in its place."""


def decide_close(policy: ParentClose, ended: ParentEnd, state: InstanceState) -> ParentClose:
    """What happens to an open child of an execution that has ended.

    A child that is already cancelling may clean up, unless its parent was terminated.
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
    """The message to the parent about the end of its child number `child`."""
    if state is InstanceState.COMPLETED:
        return ChildCompleted(time_ms=time_ms, child=child, result=outcome)
    if state is InstanceState.FAILED:
        return ChildFailed(time_ms=time_ms, child=child, failure=outcome)
    reason = msgspec.json.decode(outcome.data, type=str | None)
    return ChildStopped(time_ms=time_ms, child=child, state=state.value, reason=reason or "")


def default_child_id(parent: str, execution: int, child: int) -> str:
    """The id of a child without one: ``order-42/1/0`` is the first child of the first execution of order-42.

    A long id of the parent is shortened and gets a hash.
    """
    tail = f"/{execution}/{child}"
    room = NAME_LIMIT_BYTES - len(tail)
    encoded = parent.encode()
    if len(encoded) <= room:
        return parent + tail
    digest = "~" + sha256(encoded).hexdigest()[:HASH_DIGITS]
    return encoded[: room - len(digest)].decode(errors="ignore").rstrip() + digest + tail


def child_seed(seed: int, child: int) -> int:
    """The seed of child number `child` of an execution with this seed."""
    return _derived_seed(f"{seed} child {child}")


def next_execution_seed(seed: int, execution: int) -> int:
    """The seed of the execution that follows `execution` by continue-as-new (G4)."""
    return _derived_seed(f"{seed} {execution}")


def _derived_seed(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:SEED_BYTES])
