"""The snapshot of a flow for readers: the state of every node, and its steps in each round.

It is built from the history alone; nothing is decided or evaluated. Views, drawings and audits read it.
"""

from collections.abc import Iterable, Mapping

from holdfast.core import history as ev
from holdfast.core.collation import Digit
from holdfast.core.flow.definition import FlowDefinition, Node, graph_of, nodes_by_id
from holdfast.core.flow.graph import Graph
from holdfast.core.flow.state import NO_ITEM, FlowState, NodePlace, replay_event
from holdfast.core.history import ActivityScheduled, ChildScheduled, EventAwaited, HistoryEvent, Started, TimerStarted
from holdfast.core.steps import RecordedStep, read_steps


class NodeSnapshot:
    """One node. `steps` are its activities, timers, waits and children, of all rounds, in their order."""

    __slots__ = (
        "caught",
        "count",
        "digit",
        "dimension",
        "failure",
        "held",
        "node",
        "output",
        "own_events",
        "rounds",
        "steps",
    )

    def __init__(self, node: Node, state: FlowState) -> None:
        self.node = node
        self.digit = state.scheduler.digit(node.id)
        self.dimension = state.dimension(NodePlace(node.id))
        """The round in which it is (K8)."""
        failures = state.scheduler.failures
        self.caught = node.id in failures.caught or node.id in failures.offered
        """Whether its failure was caught, or still can be."""
        self.output = state.outputs.get(node.id)
        self.held = state.held.get(node.id) if self.digit is Digit.PAUSED else None
        """The output of a node that has run and is held (K11)."""
        self.failure = state.errors.get(node.id) if state.has_failed(node.id) else None
        self.count: int | None = None
        """The number of items of a fan-out that has started; of responses, those that have arrived."""
        self.rounds = state.rounds.get(node.id, 0)
        """How often a cycle restarted."""
        self.own_events: frozenset[type[HistoryEvent]] = frozenset()
        """The types of its own events in this round: completed, failed, released, fan-out started."""
        self.steps: list[RecordedStep] = []

    @property
    def current(self) -> list[RecordedStep]:
        """Its steps in this round."""
        return [step for step in self.steps if is_in(step.dimension, self.dimension)]


class FlowSnapshot:
    """One instance of a flow, by its history."""

    def __init__(self, definition: FlowDefinition, events: Iterable[HistoryEvent]) -> None:
        self.definition = definition
        self.graph = graph = graph_of(definition)
        self.state = state = FlowState(graph)
        events = list(events)
        places: dict[tuple[str, int], tuple[str, int, str]] = {}
        own_events: dict[str, dict[type[HistoryEvent], HistoryEvent]] = {name: {} for name in graph.joins}
        for event in events:
            replay_event(state, event)
            if isinstance(event, ev.CycleRestarted):
                for behind in graph.reachable(event.target):
                    own_events[behind].clear()
            elif isinstance(event, ev.FanOutStarted | ev.NodeCompleted | ev.NodeFailed | ev.NodeReleased):
                if not isinstance(event, ev.NodeCompleted) or event.item == NO_ITEM:
                    own_events[event.node][type(event)] = event
            elif (found := _begun(event)) is not None:
                kind, number, place = found
                places[kind, number] = (place.node, place.item, state.dimension(place))
        self.nodes: Mapping[str, NodeSnapshot] = {
            name: NodeSnapshot(node, state) for name, node in nodes_by_id(definition).items()
        }
        """By id, in the order of the key."""
        for name, own in own_events.items():
            self.nodes[name].own_events = frozenset(own)
            if isinstance(began := own.get(ev.FanOutStarted), ev.FanOutStarted):
                self.nodes[name].count = len(state.responses[began.stream].values) if began.stream else began.count
        self.steps = read_steps(events)
        for step in self.steps:
            step.node, step.item, step.dimension = places[step.kind, step.number]
            if step.node in self.nodes:
                self.nodes[step.node].steps.append(step)

    @property
    def key(self) -> str:
        """The collation key (K1)."""
        return self.state.scheduler.key

    def in_order(self) -> list[NodeSnapshot]:
        """The nodes in topological order, and else in the order of their lines."""
        return [self.nodes[name] for name in in_order(self.graph, self.definition)]


def version_of(events: Iterable[HistoryEvent]) -> str:
    """The hash of the definition that an instance runs; empty for code, and before the first turn."""
    first = next(iter(events), None)
    return first.flow if isinstance(first, Started) else ""


def is_in(inner: str, dimension: str) -> bool:
    """Whether the dimension of a step belongs to this round of its node: an item of a fan-out is one level further."""
    return inner == dimension or inner.startswith(f"{dimension}:")


def in_order(graph: Graph, definition: FlowDefinition) -> list[str]:
    """The ids in topological order; nodes that are ready together in the order of their lines."""
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
