"""A flow as its history tells it: where every node is, and what it did in each round.

Nothing is decided and nothing is evaluated: whoever shows, draws or audits a flow reads it here.
"""

from collections.abc import Iterable, Mapping

from holdfast.core import history as ev
from holdfast.core.flow.definition import FlowDefinition, Node, graph_of, nodes_by_id
from holdfast.core.flow.graph import Graph
from holdfast.core.flow.state import NO_ITEM, FlowState, NodePlace, replay_event
from holdfast.core.history import ActivityScheduled, ChildScheduled, EventAwaited, HistoryEvent, Started, TimerStarted
from holdfast.core.steps import RecordedStep, read_steps


class NodeSnapshot:
    """One node. `steps` are its activities, timers, waits and children, of all rounds, in their order."""

    __slots__ = ("caught", "count", "digit", "dimension", "failure", "node", "output", "own_events", "rounds", "steps")

    def __init__(self, node: Node, book: FlowState) -> None:
        self.node = node
        self.digit = book.scheduler.digit(node.id)
        self.dimension = book.dimension(NodePlace(node.id))
        """The round in which it is (K8)."""
        failures = book.scheduler.failures
        self.caught = node.id in failures.caught or node.id in failures.offered
        """Whether its failure was, or may still be."""
        self.output = book.outputs.get(node.id)
        self.failure = book.errors.get(node.id) if book.has_failed(node.id) else None
        self.count: int | None = None
        """Of a fan-out that has begun: its items."""
        self.rounds = book.rounds.get(node.id, 0)
        """Of a cycle: how often it went round."""
        self.own_events: frozenset[type[HistoryEvent]] = frozenset()
        """Which kinds of events of its own it has in this round: that it completed, failed, began its items."""
        self.steps: list[RecordedStep] = []

    @property
    def current(self) -> list[RecordedStep]:
        """What it did in this round."""
        return [step for step in self.steps if is_in(step.dimension, self.dimension)]


class FlowSnapshot:
    """What a history says about the instance of a flow."""

    def __init__(self, definition: FlowDefinition, events: Iterable[HistoryEvent]) -> None:
        self.definition = definition
        self.graph = graph = graph_of(definition)
        self.book = book = FlowState(graph)
        events = list(events)
        places: dict[tuple[str, int], tuple[str, int, str]] = {}
        said: dict[str, dict[type[HistoryEvent], HistoryEvent]] = {name: {} for name in graph.joins}
        for event in events:
            replay_event(book, event)
            if isinstance(event, ev.CycleRestarted):
                for behind in graph.reachable(event.target):
                    said[behind].clear()
            elif isinstance(event, ev.FanOutStarted | ev.NodeCompleted | ev.NodeFailed):
                said[event.node][type(event)] = event
            elif (found := _begun(event)) is not None:
                kind, number, place = found
                places[kind, number] = (place.node, place.item, book.dimension(place))
        self.nodes: Mapping[str, NodeSnapshot] = {
            name: NodeSnapshot(node, book) for name, node in nodes_by_id(definition).items()
        }
        """By id, in the order of the key."""
        for name, own in said.items():
            self.nodes[name].own_events = frozenset(own)
            if isinstance(began := own.get(ev.FanOutStarted), ev.FanOutStarted):
                self.nodes[name].count = began.count
        self.steps = read_steps(events)
        for step in self.steps:
            step.node, step.item, step.dimension = places[step.kind, step.number]
            if step.node in self.nodes:
                self.nodes[step.node].steps.append(step)

    @property
    def key(self) -> str:
        """The collation key that the history adds up to (K1)."""
        return self.book.scheduler.key

    def in_order(self) -> list[NodeSnapshot]:
        """The nodes as the graph runs: none before those it comes after, else as they were written."""
        return [self.nodes[name] for name in in_order(self.graph, self.definition)]


def version_of(events: Iterable[HistoryEvent]) -> str:
    """The hash of the definition that an instance stays with; empty for code, and before the first turn."""
    first = next(iter(events), None)
    return first.flow if isinstance(first, Started) else ""


def is_in(inner: str, dimension: str) -> bool:
    """Whether the dimension of a step belongs to this round of its node: an item of a fan-out is one level further."""
    return inner == dimension or inner.startswith(f"{dimension}:")


def in_order(graph: Graph, definition: FlowDefinition) -> list[str]:
    """The ids as the graph runs them; those that may run at the same time as they were written."""
    lines = {node.id: (node.line, node.id) for node in definition.nodes}
    missing = {name: len(edges) for name, edges in graph.incoming.items()}
    ready = [lines[name] for name, count in missing.items() if not count]
    ordered: list[str] = []
    while ready:
        ready.sort(reverse=True)
        _, name = ready.pop()
        ordered.append(name)
        for at in graph.outgoing[name]:
            target = graph.edges[at].target
            missing[target] -= 1
            if not missing[target]:
                ready.append(lines[target])
    return ordered


def _begun(event: HistoryEvent) -> tuple[str, int, NodePlace] | None:
    match event:
        case ActivityScheduled():
            return "activity", event.activity, NodePlace(event.node, event.item)
        case ChildScheduled():
            return "child", event.child, NodePlace(event.node, event.item)
        case TimerStarted():
            return "timer", event.timer, NodePlace(event.node)
        case EventAwaited():
            return "event", event.wait, NodePlace(event.node, NO_ITEM)
        case _:
            return None
