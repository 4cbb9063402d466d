"""Progress of a flow as values: each step gives a new state and leaves the one before it as it was."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass

from holdfast.core.collation import CollationKey, Digit, Edge, Graph, Move
from holdfast.core.flow.outcomes import EdgeState, FlowOutcome, Outcome, Policy
from holdfast.core.flow.progress import DEFAULT_CYCLE_LIMIT, Progress, Settlement

Condition = Callable[[Edge], bool]


def always(_: object) -> bool:
    """The condition of what has none."""
    return True


class Asking:
    """Asks functions about conditions."""

    def __init__(self, condition: Condition = always, admits: Callable[[str], bool] = always) -> None:
        self._condition, self._admits = condition, admits

    def holds(self, edge: Edge) -> bool:
        return self._condition(edge)

    def admits(self, activity: str) -> bool:
        return self._admits(activity)


class FlowState:
    """A progress that is never changed."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    @classmethod
    def new(cls, graph: Graph) -> "FlowState":
        return cls(Progress(graph))

    def copy(self) -> Progress:
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
    def edges(self) -> Mapping[Edge, EdgeState]:
        return {edge: self._progress.edge(at) for at, edge in enumerate(self._progress.graph.edges)}

    @property
    def caught(self) -> set[str]:
        return self._progress.caught

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


def settled_of(progress: Progress, settled: Settlement) -> Settled:
    return Settled(FlowState(progress), *map(tuple, settled))


def trigger(graph: Graph, state: FlowState, condition: Condition = always) -> Settled:
    del graph
    progress = state.copy()
    settled = progress.trigger(Asking(condition))
    return settled_of(progress, settled)


def finish(
    graph: Graph,
    state: FlowState,
    activity: str,
    outcome: Outcome,
    *,
    condition: Condition = always,
    policy: Policy | str = Policy.DRAIN,
) -> Settled:
    del graph
    progress = state.copy()
    settled = progress.finish(activity, outcome, judge=Asking(condition), policy=policy)
    return settled_of(progress, settled)


def restart_cycle(
    graph: Graph, state: FlowState, target: str, *, rounds: int, limit: int = DEFAULT_CYCLE_LIMIT
) -> Settled:
    del graph
    progress = state.copy()
    settled = progress.restart(target, rounds=rounds, limit=limit)
    return settled_of(progress, settled)


def flow_outcome(state: FlowState) -> FlowOutcome:
    return state.copy().outcome
