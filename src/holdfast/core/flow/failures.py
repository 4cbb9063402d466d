"""What becomes of the failures of a flow that an error edge takes to a node (K4).

A failure is caught once such a node has started. While the node still waits it is offered to it; if nobody to whom it
was offered runs in the end, because of a condition or because another parent failed, it has escaped: it is as if there
had been no error edge.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from holdfast.core.collation.digits import Digit
from holdfast.core.collation.graph import Graph
from holdfast.core.flow.edges import EdgeStates
from holdfast.core.flow.outcomes import EdgeState

_PENDING_DIGIT: Final = ord(Digit.PENDING.character)
_SKIPPED: Final = ord(Digit.SKIPPED.character)


class FailureFate(Enum):
    """What became of a failure."""

    OFFERED = "offered"
    CAUGHT = "caught"
    ESCAPED = "escaped"


class FailureRouting:
    """The failures of one flow, by the activity that failed. `digits` are those of the flow, and change under it."""

    __slots__ = ("_digits", "_edges", "_graph", "_positions", "caught", "now", "offered")

    def __init__(self, graph: Graph, edges: EdgeStates, digits: Sequence[int], positions: Mapping[str, int]) -> None:
        self._graph, self._edges, self._digits, self._positions = graph, edges, digits, positions
        self.caught: set[str] = set()
        self.offered: set[str] = set()
        self.now: dict[str, FailureFate] = {}
        """What happened since somebody emptied this."""

    def offer(self, activity: str, target: str) -> None:
        """An error edge takes a failure to a node: it catches it, may do so later, or never will."""
        digit = self._digits[self._positions[target]]
        if digit == _PENDING_DIGIT:
            if activity not in self.caught:
                self.note(activity, FailureFate.OFFERED)
        elif digit != _SKIPPED:
            self.note(activity, FailureFate.CAUGHT)

    def catch(self, activity: str) -> None:
        """A node starts: it catches the failures that were offered to it."""
        for source in self._offered_to(activity):
            self.note(source, FailureFate.CAUGHT)

    def let_escape(self, activity: str) -> None:
        """A node does not run: a failure that was offered to it, and to nobody who still waits, has escaped."""
        for source in self._offered_to(activity):
            waiting = (self._graph.edges[at].target for at in self._graph.outgoing[source] if self._is_offer(at))
            if all(target == activity for target in waiting):
                self.note(source, FailureFate.ESCAPED)

    def note(self, activity: str, how: FailureFate) -> None:
        """Say what became of a failure."""
        self.now[activity] = how
        (self.offered.add if how is FailureFate.OFFERED else self.offered.discard)(activity)
        if how is FailureFate.CAUGHT:
            self.caught.add(activity)

    def forget(self, activity: str) -> None:
        """An activity runs again (K8): what it failed with before is over."""
        self.caught.discard(activity)
        self.offered.discard(activity)

    def _offered_to(self, activity: str) -> list[str]:
        edges = self._graph.edges
        incoming = (at for at in self._graph.incoming[activity] if edges[at].is_error_edge)
        return [edges[at].source for at in incoming if edges[at].source in self.offered]

    def _is_offer(self, at: int) -> bool:
        """Whether an error edge was taken to a node that still waits."""
        edge = self._graph.edges[at]
        is_taken = edge.is_error_edge and self._edges.states[at] is EdgeState.TAKEN
        return is_taken and self._digits[self._positions[edge.target]] == _PENDING_DIGIT
