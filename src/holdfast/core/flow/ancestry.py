"""Ancestors and descendants of the nodes of a flow as bit sets, and its cycles. The graph may still have errors."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from holdfast.core.flow.definition import CycleAction, Node


class Ancestry(NamedTuple):
    """`before` and `behind` have a bit for each node. Nodes in or behind a cycle are only in `tangled`."""

    bits: Mapping[str, int]
    before: Mapping[str, int]
    behind: Mapping[str, int]
    tangled: frozenset[str]

    @classmethod
    def of(cls, nodes: Mapping[str, Node]) -> "Ancestry":
        """The ancestry of `nodes`. Edges from unknown names are left out."""
        bits = {node: 1 << place for place, node in enumerate(nodes)}
        sources = {name: [edge.source for edge in node.after if edge.source in nodes] for name, node in nodes.items()}
        order = _order(sources)
        before: dict[str, int] = {}
        for name in order:
            before[name] = 0
            for source in sources[name]:
                before[name] |= before[source] | bits[source]
        behind = dict.fromkeys(order, 0)
        for name in reversed(order):
            for source in sources[name]:
                behind[source] |= behind[name] | bits[name]
        return cls(bits, before, behind, frozenset(nodes) - frozenset(order))

    def is_before(self, first: str, second: str) -> bool:
        """Whether `first` is an ancestor of `second`, and so decided before it."""
        return bool(self.before[second] & self.bits[first])

    def reach(self, node: str) -> int:
        """`node` and everything behind it."""
        return self.behind[node] | self.bits[node]


def _order(sources: Mapping[str, list[str]]) -> list[str]:
    """The nodes in topological order, without those in or behind a cycle."""
    waits_for = {name: len(several) for name, several in sources.items()}
    targets: dict[str, list[str]] = {name: [] for name in sources}
    for name, several in sources.items():
        for source in several:
            targets[source].append(name)
    order = [name for name, count in waits_for.items() if not count]
    for name in order:  # the list grows in the loop
        for target in targets[name]:
            waits_for[target] -= 1
            if not waits_for[target]:
                order.append(target)
    return order


def rounds(nodes: Mapping[str, Node], ancestry: Ancestry) -> Mapping[str, int]:
    """For each node, the nodes whose values of an earlier round of a cycle it can read, as bits."""
    readable: dict[str, int] = {}
    for node in nodes.values():
        if isinstance(node.action, CycleAction) and node.action.target in ancestry.before:
            reach = ancestry.reach(node.action.target)
            for name, bit in ancestry.bits.items():
                if reach & bit:
                    readable[name] = readable.get(name, 0) | reach
    return readable


def cycles(nodes: Mapping[str, Node], tangled: frozenset[str]) -> Iterator[list[str]]:
    """One cycle through each group of nodes that wait for each other, then the rest of the group."""
    sources = {
        name: [edge.source for edge in nodes[name].after if edge.source in tangled] for name in nodes if name in tangled
    }
    for group in _groups(sources):
        first = min(group)
        if len(group) > 1 or first in sources[first]:
            yield _cycle_from(first, sources, group)


def _cycle_from(first: str, sources: Mapping[str, list[str]], group: frozenset[str]) -> list[str]:
    """The shortest path from `first` back to itself, each node before its successor."""
    came_from: dict[str, str] = {}
    waiting = [first]
    for name in waiting:  # the list grows in the loop
        for source in sources[name]:
            if source == first:
                way = [name]
                while way[-1] != first:
                    way.append(came_from[way[-1]])
                return way[::-1][:1] + way[:-1] + sorted(group - set(way))
            if source in group and source not in came_from:
                came_from[source] = name
                waiting.append(source)
    return sorted(group)


def _groups(sources: Mapping[str, list[str]]) -> Iterator[frozenset[str]]:
    """The strongly connected components, by Tarjan's algorithm, without recursion."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in sources:
        if root in numbers:
            continue
        work: list[tuple[str, Iterator[str]]] = [(root, iter(sources[root]))]
        while work:
            name, rest = work[-1]
            if name not in numbers:
                numbers[name] = lowest[name] = len(numbers)
                stack.append(name)
                on_stack.add(name)
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[name])
                if lowest[name] == numbers[name]:
                    place = stack.index(name)
                    group = frozenset(stack[place:])
                    del stack[place:]
                    on_stack -= group
                    yield group
            elif following not in numbers:
                work.append((following, iter(sources[following])))
            elif following in on_stack:
                lowest[name] = min(lowest[name], numbers[following])
