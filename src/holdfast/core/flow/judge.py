"""Who evaluates the conditions of a flow (K3). What they say is written elsewhere: the core only asks."""

from typing import Final, Protocol

from holdfast.core.collation.graph import GraphEdge


class Conditions(Protocol):
    """Evaluates conditions, where there are any and it matters."""

    def holds(self, edge: GraphEdge) -> bool:
        """Whether an edge is taken that its source would otherwise take. Asked only of edges that have a condition."""
        ...

    def admits(self, activity: str) -> bool:
        """Whether a node runs whose join is satisfied. Asked only of those that the graph calls guarded."""
        ...


class AlwaysTrue:
    """Every condition holds."""

    def holds(self, edge: GraphEdge) -> bool:
        del edge
        return True

    def admits(self, activity: str) -> bool:
        del activity
        return True


ALWAYS: Final = AlwaysTrue()
