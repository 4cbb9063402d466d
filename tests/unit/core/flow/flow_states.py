"""Progress of a flow as values: each step gives a new state and leaves the one before it as it was."""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass

from holdfast.core.collation import CollationKey, Digit, Move
from holdfast.core.flow.definition import FailurePolicy
from holdfast.core.flow.graph import Graph, GraphEdge, Join
from holdfast.core.flow.scheduler import EdgeState, Errored, FlowOutcome, FlowScheduler, NodeOutcome, Settlement
from holdfast.core.history import FlowAdvanced

Condition = Callable[[GraphEdge], bool]


def always(_: object) -> bool:
    """The condition of what has none."""
    return True


def never(_: object) -> bool:
    """The condition of what never runs."""
    return False


class Asking:
    """Asks functions about conditions."""

    def __init__(self, condition: Condition = always, admits: Callable[[str], bool] = always) -> None:
        self._condition, self._admits = condition, admits

    def edge_holds(self, edge: GraphEdge) -> bool:
        return self._condition(edge)

    def node_admitted(self, activity: str) -> bool:
        return self._admits(activity)


class FlowState:
    """A progress that is never changed."""

    def __init__(self, progress: FlowScheduler) -> None:
        self._progress = progress

    @classmethod
    def new(cls, graph: Graph) -> "FlowState":
        return cls(FlowScheduler(graph))

    def copy(self) -> FlowScheduler:
        """One to be changed. What the flow is made of stays the same."""
        own = self._progress
        return deepcopy(own, {id(own.graph): own.graph, id(own.roster): own.roster})

    @property
    def key(self) -> CollationKey:
        return CollationKey.parse(self._progress.key, self._progress.graph.joins)

    @property
    def digits(self) -> Mapping[str, Digit]:
        return self.key.digits

    @property
    def edges(self) -> Mapping[GraphEdge, EdgeState]:
        return {edge: self._progress.edge(at) for at, edge in enumerate(self._progress.graph.edges)}

    @property
    def caught(self) -> set[str]:
        return self._progress.failures.caught

    @property
    def offered(self) -> set[str]:
        return self._progress.failures.offered

    @property
    def is_complete(self) -> bool:
        assert self._progress.is_complete == self.key.is_complete
        return self._progress.is_complete

    def paused(self, activity: str) -> "FlowState":
        progress = self.copy()
        progress.move(activity, Move.PAUSE)
        return FlowState(progress)


@dataclass(frozen=True)
class Settled:
    """What a step led to, and the state after it."""

    state: FlowState
    started: tuple[str, ...]
    skipped: tuple[str, ...]
    cancelled: tuple[str, ...]

    @property
    def completed_now(self) -> bool:
        return self.state.is_complete


def settled_of(progress: FlowScheduler, settled: Settlement) -> Settled:
    return Settled(FlowState(progress), tuple(settled.started), tuple(settled.skipped), tuple(settled.cancelled))


def changes_of(state: FlowState) -> FlowAdvanced:
    """All that has happened, as it is recorded."""
    changes = state.copy().take_changes()
    assert changes is not None
    return changes


def trigger(graph: Graph, state: FlowState, condition: Condition = always) -> Settled:
    del graph
    progress = state.copy()
    settled = progress.trigger(Asking(condition))
    return settled_of(progress, settled)


def finish(
    graph: Graph,
    state: FlowState,
    activity: str,
    outcome: NodeOutcome,
    *,
    condition: Condition = always,
    policy: FailurePolicy | str = FailurePolicy.DRAIN,
) -> Settled:
    del graph
    progress = state.copy()
    settled = progress.finish(activity, outcome, conditions=Asking(condition), policy=policy)
    return settled_of(progress, settled)


def restart_cycle(graph: Graph, state: FlowState, target: str) -> Settled:
    del graph
    progress = state.copy()
    settled = progress.restart(target)
    return settled_of(progress, settled)


def flow_outcome(state: FlowState) -> FlowOutcome:
    return state.copy().outcome


OOPS = Errored(("TooTired", "RuntimeError", "Exception"))


def graph_of(*edges: str | GraphEdge, any_joins: Iterable[str] = (), guarded: Iterable[str] = ()) -> Graph:
    """Edges as `a->b`, or `a-!>b` for one that catches everything. The first source is the trigger."""
    parsed = [edge if isinstance(edge, GraphEdge) else _parse(edge) for edge in edges]
    names = {end for edge in parsed for end in (edge.source, edge.target)}
    joins = {name: Join.ANY if name in any_joins else Join.ALL for name in names}
    return Graph.of(parsed[0].source, joins, parsed, guarded)


def _parse(edge: str) -> GraphEdge:
    if "-!>" in edge:
        source, target = edge.split("-!>")
        return GraphEdge(source, target, ("Exception",), has_condition=True)
    source, target = edge.split("->")
    return GraphEdge(source, target, has_condition=True)


def begin(graph: Graph, condition: Condition = always) -> Settled:
    return trigger(graph, FlowState.new(graph), condition)
