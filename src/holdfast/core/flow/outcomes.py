"""What becomes of an activity of a flow, of the edges behind it, and of the flow (K3, K4, K5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, TypeAlias, assert_never

from holdfast.core.collation.digits import Move
from holdfast.core.collation.graph import GraphEdge, Join

TIMED_OUT_TYPES: Final = ("TimeoutError", "OSError", "Exception")


class FailurePolicy(StrEnum):
    """What an uncaught failure does to the rest of the flow (K4)."""

    DRAIN = "drain"
    FAIL_FAST = "fail_fast"


class EdgeState(Enum):
    """K3: an edge is decided once its source is."""

    UNDECIDED = "undecided"
    TAKEN = "taken"
    DEAD = "dead"
    FAILED = "failed"


class JoinVerdict(Enum):
    """What the incoming edges of a node say about it."""

    WAIT = "wait"
    RUN = "run"
    SKIP = "skip"


class FlowOutcome(Enum):
    """K5: what the whole flow has come to."""

    ACTIVE = "active"
    COMPLETED = "completed"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Completed:
    """The activity completed (8 -> 6)."""


@dataclass(frozen=True, slots=True)
class Released:
    """The wait got what it waited for (5 -> 4)."""


@dataclass(frozen=True, slots=True)
class Errored:
    """The activity failed (8 -> 7). `error_types`: the names of its type and of those it derives from."""

    error_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The wait ran out (5 -> 7)."""

    error_types: tuple[str, ...] = TIMED_OUT_TYPES


COMPLETED: Final = Completed()
RELEASED: Final = Released()
NodeOutcome: TypeAlias = Completed | Released | Errored | TimedOut

MOVE_OF: Final[Mapping[type[NodeOutcome], Move]] = {
    Completed: Move.COMPLETE,
    Released: Move.RELEASE,
    Errored: Move.FAIL,
    TimedOut: Move.TIME_OUT,
}
"""How the digit of the activity moves."""


def undecided_edge(edge: GraphEdge, outcome: NodeOutcome) -> EdgeState:
    """K3, K4: what the outcome of its source makes of an edge, if its condition allows. Not TAKEN: it is not asked."""
    match outcome:
        case Completed() | Released():
            return EdgeState.DEAD if edge.is_error_edge else EdgeState.TAKEN
        case Errored(error_types) | TimedOut(error_types):
            if edge.catches is None:
                return EdgeState.FAILED
            return EdgeState.TAKEN if any(name in edge.catches for name in error_types) else EdgeState.DEAD
        case _:
            assert_never(outcome)


def join_verdict(join: Join, *, undecided: int, taken: int, failed: int) -> JoinVerdict:
    """K3: run, wait, or skip because nothing can enable the node any more; by how many edges are in which state."""
    if join is Join.ANY:
        if taken:
            return JoinVerdict.RUN
        return JoinVerdict.WAIT if undecided else JoinVerdict.SKIP
    if failed:
        return JoinVerdict.SKIP
    if undecided:
        return JoinVerdict.WAIT
    return JoinVerdict.RUN if taken else JoinVerdict.SKIP
