"""What the edges of a flow say (K3): the state of each, and for each activity how many are in which."""

from typing import Final

from holdfast.core.collation.graph import Graph, Join
from holdfast.core.flow.outcomes import EdgeState, JoinVerdict, join_verdict

_UNDECIDED_EDGE, _TAKEN_EDGE, _FAILED_EDGE = EdgeState.UNDECIDED, EdgeState.TAKEN, EdgeState.FAILED
_OF_ONE: Final = {
    state: join_verdict(
        Join.ALL, undecided=state is _UNDECIDED_EDGE, taken=state is _TAKEN_EDGE, failed=state is _FAILED_EDGE
    )
    for state in EdgeState
}


class EdgeStates:
    """The edges of one flow. Whether a join of several is satisfied is known without a look at them."""

    __slots__ = ("_edges", "_failed", "_graph", "_taken", "_undecided", "settled", "states")

    def __init__(self, graph: Graph) -> None:
        self._edges, self._graph = graph.edges, graph
        self.states = [_UNDECIDED_EDGE] * len(graph.edges)
        self.settled: list[int] = []
        """Those that changed since somebody emptied this."""
        self._undecided = graph.indegrees.copy()
        self._taken: dict[str, int] = {}
        self._failed: dict[str, int] = {}

    def decide(self, at: int, state: EdgeState) -> None:
        """Put an edge into a state."""
        before = self.states[at]
        if before is state:
            return
        self.states[at] = state
        self.settled.append(at)
        target = self._edges[at].target
        if self._graph.indegrees[target] > 1:
            self._count(target, before, state)

    def _count(self, target: str, before: EdgeState, state: EdgeState) -> None:
        self._undecided[target] += (state is _UNDECIDED_EDGE) - (before is _UNDECIDED_EDGE)
        if state is _TAKEN_EDGE or before is _TAKEN_EDGE:
            self._taken[target] = self._taken.get(target, 0) + (1 if state is _TAKEN_EDGE else -1)
        if state is _FAILED_EDGE or before is _FAILED_EDGE:
            self._failed[target] = self._failed.get(target, 0) + (1 if state is _FAILED_EDGE else -1)

    def verdict(self, activity: str) -> JoinVerdict:
        """Whether an activity runs, is skipped, or waits."""
        graph = self._graph
        if graph.indegrees[activity] == 1:  # most of them, and any join of one edge is the same
            return _OF_ONE[self.states[graph.incoming[activity][0]]]
        return join_verdict(
            graph.joins[activity],
            undecided=self._undecided[activity],
            taken=self._taken.get(activity, 0),
            failed=self._failed.get(activity, 0),
        )
