"""Which activities start and which are skipped after one has finished (K3, K4, K5, K8).

A `FlowState` is a key, the state of every edge and the set of caught failures. `finish` takes the outcome of one
activity and gives the state after everything that follows from it: the edges it decides, the joins they satisfy,
and the skips that spread, each node once. The caller commits all of it together or not at all.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Final, assert_never

from holdfast.core.collation.digits import LEGAL_MOVES, Digit, Move
from holdfast.core.collation.graph import Edge, Graph, Join
from holdfast.core.collation.key import CollationKey
from holdfast.core.words import word
from holdfast.errors import CycleLimitExceeded, IllegalMove

DEFAULT_CYCLE_LIMIT: Final = 1_000
"""K8: how often a cycle goes round before it is taken for a runaway."""


class Policy(StrEnum):
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
class Failed:
    """The activity failed (8 -> 7). `error_types`: the name of its type and of those it derives from."""

    error_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The wait ran out (5 -> 7)."""

    error_types: tuple[str, ...] = ("TimeoutError", "OSError", "Exception")


Outcome = Completed | Released | Failed | TimedOut


@dataclass(frozen=True, slots=True)
class FlowState:
    """Where a flow is: digits, edges, and the failures that an error edge caught."""

    key: CollationKey
    edges: Mapping[Edge, EdgeState]
    caught: frozenset[str] = frozenset()

    @classmethod
    def new(cls, graph: Graph) -> "FlowState":
        """Nothing has happened yet."""
        key = CollationKey.for_activities(graph.joins)
        return cls(key, dict.fromkeys(graph.edges, EdgeState.UNDECIDED))


@dataclass(frozen=True, slots=True)
class Settlement:
    """What one decision led to, in the order it was reached. Belongs into one commit."""

    state: FlowState
    started: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()

    @property
    def completed_now(self) -> bool:
        """K5: whether this very decision took the flow from active to complete.

        Whatever is decided was open before, so the flow was active; exactly one settlement can say yes.
        """
        return self.state.key.is_complete


Condition = Callable[[Edge], bool]
"""Evaluates the condition of an edge that its source would otherwise take. An edge without one is always true."""


def always(edge: Edge) -> bool:
    """The condition of an edge that has none."""
    del edge
    return True


def edge_state(edge: Edge, outcome: Outcome, condition: Condition = always) -> EdgeState:
    """K3, K4: what the outcome of its source makes of an edge. The condition is asked only if the answer matters."""
    match outcome:
        case Completed() | Released():
            return EdgeState.TAKEN if not edge.is_error_edge and condition(edge) else EdgeState.DEAD
        case Failed(error_types) | TimedOut(error_types):
            if edge.catches is None:
                return EdgeState.FAILED
            caught = any(name in edge.catches for name in error_types)
            return EdgeState.TAKEN if caught and condition(edge) else EdgeState.DEAD
        case _:
            assert_never(outcome)


def join_verdict(join: Join, edges: Iterable[EdgeState]) -> JoinVerdict:
    """K3: run, wait, or skip because nothing can enable the node any more."""
    states = tuple(edges)
    undecided = EdgeState.UNDECIDED in states
    taken = EdgeState.TAKEN in states
    match join:
        case Join.ALL:
            if EdgeState.FAILED in states:
                return JoinVerdict.SKIP
            if undecided:
                return JoinVerdict.WAIT
            return JoinVerdict.RUN if taken else JoinVerdict.SKIP
        case Join.ANY:
            if taken:
                return JoinVerdict.RUN
            return JoinVerdict.WAIT if undecided else JoinVerdict.SKIP
        case _:
            assert_never(join)


def trigger(graph: Graph, state: FlowState, condition: Condition = always) -> Settlement:
    """The flow begins: the trigger passes through (9 -> 6) and what it leads to starts."""
    key = state.key.move(graph.trigger, Move.PASS_THROUGH)
    edges = _decide_edges(graph, state.edges, graph.trigger, Completed(), condition)
    return _settle(graph, replace(state, key=key, edges=edges), _targets(graph, graph.trigger))


def finish(
    graph: Graph,
    state: FlowState,
    activity: str,
    outcome: Outcome,
    *,
    condition: Condition = always,
    policy: Policy | str = Policy.DRAIN,
) -> Settlement:
    """One activity is decided: move its digit, decide its edges, and follow what they lead to."""
    policy = word(Policy, policy, "policy of a flow")
    key = state.key.move(activity, _MOVE_OF_OUTCOME[type(outcome)])
    edges = _decide_edges(graph, state.edges, activity, outcome, condition)
    state = replace(state, key=key, edges=edges)
    if isinstance(outcome, Failed | TimedOut):
        error_edges = (edge for edge in graph.outgoing[activity] if edge.is_error_edge)
        if any(edges[edge] is EdgeState.TAKEN for edge in error_edges):
            state = replace(state, caught=state.caught | {activity})
        elif policy is Policy.FAIL_FAST:
            return cancel_all(state)
    return _settle(graph, state, _targets(graph, activity))


def cancel_all(state: FlowState) -> Settlement:
    """Cancel whatever is not decided yet (9 -> 3, 8 -> 7, 5 -> 7)."""
    key = state.key
    cancelled = tuple(activity for activity, digit in key.digits.items() if (digit, Move.CANCEL) in LEGAL_MOVES)
    for activity in cancelled:
        key = key.move(activity, Move.CANCEL)
    edges = {edge: EdgeState.DEAD if now is EdgeState.UNDECIDED else now for edge, now in state.edges.items()}
    return Settlement(replace(state, key=key, edges=edges), cancelled=cancelled)


def restart_cycle(
    graph: Graph, state: FlowState, target: str, *, rounds: int, limit: int = DEFAULT_CYCLE_LIMIT
) -> Settlement:
    """K8: run `target` and everything behind it again, in the next dimension.

    `rounds` says how often the cycle went round before. Edges that come from outside keep what they say, except
    that a taken one into an `any` join was spent by the run it enabled: left taken, it would start that node ahead of
    the target.
    """
    if rounds >= limit:
        raise CycleLimitExceeded(f"the cycle to {target!r} went round {rounds} times, which is its limit")
    if target == graph.trigger or state.key.digit(target) is Digit.PENDING:
        raise IllegalMove(f"{target!r} has not run yet, so a cycle cannot run it again")
    members = graph.reachable(target)
    key = state.key.reset(sorted(members)).move(target, Move.START)
    edges = dict(state.edges)
    for edge in graph.edges:
        if edge.source in members:
            edges[edge] = EdgeState.UNDECIDED
        elif edges[edge] is EdgeState.TAKEN and edge.target in members and graph.joins[edge.target] is Join.ANY:
            edges[edge] = EdgeState.DEAD
    begun = FlowState(key, edges, state.caught - members)
    settled = _settle(graph, begun, sorted(members - {target}))
    return replace(settled, started=(target, *settled.started))


def flow_outcome(state: FlowState) -> FlowOutcome:
    """K5: complete when no digit is 9, 8 or 5; an error if a failure was not caught."""
    if not state.key.is_complete:
        return FlowOutcome.ACTIVE
    errored = {activity for activity, digit in state.key.digits.items() if digit is Digit.ERRORED}
    return FlowOutcome.ERROR if errored - state.caught else FlowOutcome.COMPLETED


_MOVE_OF_OUTCOME: Mapping[type[Outcome], Move] = {
    Completed: Move.COMPLETE,
    Released: Move.RELEASE,
    Failed: Move.FAIL,
    TimedOut: Move.TIME_OUT,
}


def _decide_edges(
    graph: Graph, edges: Mapping[Edge, EdgeState], activity: str, outcome: Outcome, condition: Condition
) -> dict[Edge, EdgeState]:
    decided = dict(edges)
    for edge in graph.outgoing[activity]:
        decided[edge] = edge_state(edge, outcome, condition)
    return decided


def _targets(graph: Graph, activity: str) -> list[str]:
    return [edge.target for edge in graph.outgoing[activity]]


def _settle(graph: Graph, state: FlowState, candidates: Iterable[str]) -> Settlement:
    """Follow decided edges to the nodes they start or skip, until nothing more follows. Each node moves once."""
    key, edges = state.key, dict(state.edges)
    started: list[str] = []
    skipped: list[str] = []
    waiting = deque(candidates)
    while waiting:
        activity = waiting.popleft()
        if key.digit(activity) is not Digit.PENDING:
            continue
        match join_verdict(graph.joins[activity], (edges[edge] for edge in graph.incoming[activity])):
            case JoinVerdict.RUN:
                key = key.move(activity, Move.START)
                started.append(activity)
            case JoinVerdict.SKIP:
                key = key.move(activity, Move.SKIP)
                skipped.append(activity)
                for edge in graph.outgoing[activity]:
                    edges[edge] = EdgeState.DEAD
                    waiting.append(edge.target)
            case JoinVerdict.WAIT:
                pass
    return Settlement(replace(state, key=key, edges=edges), tuple(started), tuple(skipped))
