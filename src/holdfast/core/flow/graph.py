"""The graph of a flow: activities, and edges between them (K3).

A graph is checked when it is made: unknown names, duplicate edges, unreachable activities and cycles are refused.
`cycle` nodes are not edges: to restart is a decision of the scheduler (`FlowScheduler.restart`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.core.checks import parse_enum
from holdfast.errors import MalformedGraph, UnknownActivity


class Join(StrEnum):
    """When a node with several incoming edges runs (K3)."""

    ALL = "all"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """An edge from one activity to another. With `catches` it is an error edge, for these names of error types.

    `otherwise`: the default branch, taken if the source completed and no edge of it with a condition was taken.
    `carries_responses`: taken at the first response of the source, before the source has completed (K10).
    """

    source: str
    target: str
    catches: tuple[str, ...] | None = None
    has_condition: bool = False
    otherwise: bool = False
    carries_responses: bool = False

    is_plain: bool = field(init=False, compare=False, repr=False)
    """Taken whenever its source completed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_plain", self.catches is None and not self.has_condition and not self.otherwise)

    @property
    def is_error_edge(self) -> bool:
        return self.catches is not None


@dataclass(frozen=True, slots=True)
class Graph:
    """The activities of a flow and the edges between them. It has no cycles: `cycle` nodes are not edges."""

    trigger: str
    joins: Mapping[str, Join]
    edges: tuple[GraphEdge, ...]
    incoming: Mapping[str, tuple[int, ...]]
    """By target, the positions in `edges`."""
    outgoing: Mapping[str, tuple[int, ...]]
    indegrees: dict[str, int]
    """The number of edges to each activity."""
    guarded: frozenset[str] = frozenset()
    """The activities with a condition of their own, evaluated when their join is satisfied."""
    held: frozenset[str] = frozenset()
    """The activities that are held after they have run (K11)."""
    consumers: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """By the activity whose responses they take: the activities that run once for each response (K10)."""
    _reach: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]], compare=False, repr=False)
    """Results of `reachable`."""

    @classmethod
    def of(
        cls,
        trigger: str,
        joins: Mapping[str, Join | str],
        edges: Iterable[GraphEdge],
        guarded: Iterable[str] = (),
        held: Iterable[str] = (),
    ) -> "Graph":
        """Check the edges and index them. A cycle or an unknown name is refused."""
        every_edge = tuple(edges)
        incoming: dict[str, list[int]] = {activity: [] for activity in joins}
        outgoing: dict[str, list[int]] = {activity: [] for activity in joins}
        if trigger not in joins:
            raise UnknownActivity(f"the trigger {trigger!r} is not among the activities")
        consumers: dict[str, tuple[str, ...]] = {}
        seen: set[tuple[str, str, bool]] = set()
        for at, edge in enumerate(every_edge):
            for end in (edge.source, edge.target):
                if end not in joins:
                    raise UnknownActivity(
                        f"the edge {edge.source} -> {edge.target} names {end!r}, which does not exist"
                    )
            mark = (edge.source, edge.target, edge.is_error_edge)
            if mark in seen:
                raise MalformedGraph(f"the edge {edge.source} -> {edge.target} occurs twice")
            seen.add(mark)
            incoming[edge.target].append(at)
            outgoing[edge.source].append(at)
            if edge.carries_responses:
                consumers[edge.source] = (*consumers.get(edge.source, ()), edge.target)
        graph = cls(
            trigger,
            {activity: parse_enum(Join, join, "join") for activity, join in joins.items()},
            every_edge,
            {activity: tuple(several) for activity, several in incoming.items()},
            {activity: tuple(several) for activity, several in outgoing.items()},
            {activity: len(several) for activity, several in incoming.items()},
            frozenset(guarded),
            frozenset(held),
            consumers,
        )
        graph._refuse_cycles_and_strays()
        return graph

    def reachable(self, activity: str) -> frozenset[str]:
        """`activity` and everything behind it."""
        if (known := self._reach.get(activity)) is not None:
            return known
        if activity not in self.joins:
            raise UnknownActivity(f"there is no activity {activity!r}")
        found = {activity}
        waiting = [activity]
        while waiting:
            for at in self.outgoing[waiting.pop()]:
                target = self.edges[at].target
                if target not in found:
                    found.add(target)
                    waiting.append(target)
        reach = self._reach[activity] = frozenset(found)
        return reach

    def _refuse_cycles_and_strays(self) -> None:
        if self.incoming[self.trigger]:
            raise MalformedGraph(f"the trigger {self.trigger!r} cannot come after another activity")
        undecided = {activity: len(edges) for activity, edges in self.incoming.items()}
        ready = [activity for activity, count in undecided.items() if not count]
        if strays := [activity for activity in ready if activity != self.trigger]:
            raise MalformedGraph(f"these activities are unreachable: {', '.join(sorted(strays))}")
        done = 0
        while ready:
            done += 1
            for at in self.outgoing[ready.pop()]:
                target = self.edges[at].target
                undecided[target] -= 1
                if not undecided[target]:
                    ready.append(target)
        if done != len(self.joins):
            caught = sorted(activity for activity, count in undecided.items() if count)
            raise MalformedGraph(f"these activities form a cycle: {', '.join(caught)}")
