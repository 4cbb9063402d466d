"""The state of a flow: everything that the events of its history add up to.

A running flow applies each event as it happens; a flow that is loaded applies the events of its history. Both have the
same state in the end, because `FlowState.apply` is the only way in: nothing is decided, evaluated or run again.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Never, TypeAlias, cast

import msgspec

from holdfast.core import history as ev
from holdfast.core.collation import ActivityOrder, Digit, Dimension, item_dimension
from holdfast.core.flow.graph import Graph
from holdfast.core.flow.scheduler import FlowScheduler
from holdfast.core.history import HistoryEventBase, Payload

NO_ITEM: Final = -1


class NodePlace(msgspec.Struct, frozen=True, gc=False):
    """A node, and in a fan-out the item."""

    node: str
    item: int = NO_ITEM


class ChildPlace(NamedTuple):
    """The node and the item of a child. `detached`: no node waits for its end. `named`: the flow chose its id."""

    node: str
    item: int
    id: str
    detached: bool
    named: bool
    round: int


EventHandler: TypeAlias = Callable[["FlowState", Never], "NodePlace | None"]
"""Applies one type of event. Returns the node that waits for it."""


class ResponseStream:
    """The values that one call of an activity has yielded to the flow (L15, K10)."""

    __slots__ = ("attempt", "is_closed", "is_resumable", "received", "values")

    def __init__(self, *, is_resumable: bool) -> None:
        self.is_resumable = is_resumable
        self.attempt = 1
        """The attempt that sent the newest value."""
        self.values: list[Payload] = []
        """In order. A stream that restarts begins a new list."""
        self.received = 0
        """How many values have arrived, those of lost attempts included."""
        self.is_closed = False

    def begin_attempt(self, attempt: int) -> int:
        """Begin the values of an attempt. The number of earlier values that it yields again and that are dropped."""
        if attempt == self.attempt:
            return 0
        self.attempt = attempt
        lost = 0 if self.is_resumable else len(self.values)
        if lost:
            self.values = []
        return lost


class FanOut:
    """A node that runs once for each item of a list, or for each response of a stream."""

    __slots__ = ("begun", "count", "is_restarted", "items", "responses", "results")

    def __init__(self, count: int, items: Payload | None = None, responses: ResponseStream | None = None) -> None:
        self.count = count if responses is None else len(responses.values)
        """The number of items; of a stream that is not closed, those that have arrived."""
        self.items = items
        """The list, if not all of its items started at once."""
        self.responses = responses
        self.begun = 0
        self.results: dict[int, Payload] = {}
        self.is_restarted = False
        """Whether items began for responses that the stream sends again."""

    @property
    def is_complete(self) -> bool:
        """Whether there are no further items, and each has its result."""
        return len(self.results) >= self.count and (self.responses is None or self.responses.is_closed)


class FlowState:
    """The open work of a flow, and the results of the rest."""

    __slots__ = (
        "_failed_in",
        "activities",
        "cancel_reason",
        "children",
        "closed_stream",
        "errors",
        "fan_outs",
        "held",
        "is_overdue",
        "next_activity",
        "next_child",
        "next_timer",
        "next_wait",
        "outputs",
        "responses",
        "rounds",
        "scheduler",
        "sent",
        "started",
        "streams",
        "targets",
        "timers",
        "unclear",
        "waits",
    )

    def __init__(self, graph: Graph, roster: ActivityOrder | None = None) -> None:
        self.scheduler = FlowScheduler(graph, roster)
        self.started: ev.Started | None = None
        self.outputs: dict[str, Payload] = {}
        """By node. In a cycle the latest, which is that of the nearest dimension (K8)."""
        self.held: dict[str, Payload] = {}
        """The outputs of nodes that have run and are held (K11). No expression reads them."""
        self.errors: dict[str, Payload] = {}
        self._failed_in: dict[str, int] = {}
        """The round in which each of these nodes failed."""
        self.activities: dict[int, NodePlace] = {}
        self.streams: dict[int, ResponseStream] = {}
        """By the number of the activity: the open streams."""
        self.closed_stream: ResponseStream | None = None
        """The stream that closed last. The run joins its values and records them as the output of the node."""
        self.responses: dict[str, ResponseStream] = {}
        """By node: the latest stream of each node whose responses are the items of another (K10)."""
        self.timers: dict[int, str] = {}
        self.waits: dict[str, deque[tuple[int, str]]] = {}
        """By the name of the event: the waits for it, the oldest first (G6)."""
        self.children: dict[int, ChildPlace] = {}
        self.fan_outs: dict[str, FanOut] = {}
        self.rounds: dict[str, int] = {}
        """How often each cycle restarted, since an outer cycle restarted."""
        self.targets: dict[str, str] = {}
        """The target of each cycle that restarted."""
        self.next_activity = 0
        self.next_timer = 0
        self.next_wait = 0
        self.next_child = 0
        self.sent = 0
        self.cancel_reason: str | None = None
        self.is_overdue = False
        self.unclear: dict[int, str] = {}
        """Edges that were taken because their condition could not be evaluated, with the reason."""

    def dimension(self, place: NodePlace) -> Dimension:
        """K8: the round in which a node is, and its item."""
        here = Dimension(f"0/{self.scheduler.rounds.get(place.node, 0)}")
        return here if place.item == NO_ITEM else item_dimension(here, place.item)

    def apply(self, event: HistoryEventBase) -> NodePlace | None:
        """Apply an event. Returns the place that waits for it, if there is one."""
        if type(event) is ev.ActivityCompleted:  # nearly all events
            return _activity_completed(self, event)
        handler = _APPLY.get(type(event))
        return None if handler is None else handler(self, cast("Never", event))  # of this type, by the table

    def scheduled(self, activity: int, place: NodePlace, stream: str = "") -> None:
        """An activity was called for a node, or for an item of it."""
        self.next_activity = activity + 1
        self.activities[activity] = place
        if place.item != NO_ITEM:
            self.fan_outs[place.node].begun = place.item + 1
        if stream:
            opened = self.streams[activity] = ResponseStream(is_resumable=stream == ev.STREAM_RESUMES)
            if place.item == NO_ITEM and place.node in self.scheduler.graph.consumers:
                self.responses[place.node] = opened

    def completed(self, place: NodePlace, output: Payload) -> None:
        """Record the result of a node, or of an item of it."""
        if place.item != NO_ITEM:
            self.fan_outs[place.node].results[place.item] = output
        elif place.node in self.scheduler.graph.held:
            self.held[place.node] = output
        else:
            self.outputs[place.node] = output
            self.errors.pop(place.node, None)

    def begin_attempt(self, stream: ResponseStream, attempt: int) -> None:
        """A response of this attempt arrived. Responses of an earlier attempt may be dropped (K10)."""
        if stream.begin_attempt(attempt):
            for fan_out in self.consumers_of(stream):
                fan_out.is_restarted = fan_out.begun > 0
                fan_out.count = 0

    def consumers_of(self, stream: ResponseStream) -> list[FanOut]:
        """The running fan-outs over the responses of a stream."""
        return [fan_out for fan_out in self.fan_outs.values() if fan_out.responses is stream]

    def failed(self, node: str, failure: Payload) -> None:
        """Record the failure of a node, or of an item of it, which fails the node."""
        self.errors.pop(node, None)  # the latest failure is the last entry
        self.errors[node] = failure
        self._failed_in[node] = self.scheduler.rounds.get(node, 0)
        self.outputs.pop(node, None)
        self.held.pop(node, None)
        self.fan_outs.pop(node, None)

    def has_failed(self, node: str) -> bool:
        """Whether a node failed in this round: not in an earlier one, and not by being cancelled."""
        in_round = self._failed_in.get(node)
        return in_round == self.scheduler.rounds.get(node, 0) and self.scheduler.digit(node) is Digit.ERRORED

    def timer_of(self, node: str) -> int | None:
        """The timer that a node waits for."""
        return next((timer for timer, owner in self.timers.items() if owner == node), None)

    def wait_of(self, node: str) -> int | None:
        """The wait of a node for an event."""
        return next((number for waits in self.waits.values() for number, owner in waits if owner == node), None)


# ---------------------------------------------------------------- one function for each event


def _started(state: FlowState, event: ev.Started) -> None:
    state.started = event


def _scheduled(state: FlowState, event: ev.ActivityScheduled) -> None:
    state.scheduled(event.activity, NodePlace(event.node, event.item), event.stream)


def _activity_completed(state: FlowState, event: ev.ActivityCompleted) -> NodePlace | None:
    place = state.activities.pop(event.activity, None)
    if place is None:
        return None
    if state.streams and (stream := state.streams.pop(event.activity, None)) is not None:
        state.begin_attempt(stream, event.attempt)
        stream.is_closed = True
        state.closed_stream = stream
    else:
        state.completed(place, event.result)
    return place


def _yielded(state: FlowState, event: ev.ActivityYielded) -> NodePlace | None:
    stream = state.streams.get(event.activity)
    if stream is None:
        return None
    state.begin_attempt(stream, event.attempt)
    stream.values.extend(event.values)
    stream.received += len(event.numbers)
    for fan_out in state.consumers_of(stream):
        fan_out.count = len(stream.values)
    return state.activities[event.activity]


def _activity_failed(state: FlowState, event: ev.ActivityFailed) -> NodePlace | None:
    place = state.activities.pop(event.activity, None)
    state.streams.pop(event.activity, None)
    if place is not None:
        state.failed(place.node, event.failure)
    return place


def _activity_abandoned(state: FlowState, event: ev.ActivityAbandoned) -> None:
    state.activities.pop(event.activity, None)
    state.streams.pop(event.activity, None)


def _timer_started(state: FlowState, event: ev.TimerStarted) -> None:
    state.next_timer = event.timer + 1
    state.timers[event.timer] = event.node


def _timer_fired(state: FlowState, event: ev.TimerFired) -> NodePlace | None:
    node = state.timers.pop(event.timer, None)
    return None if node is None else NodePlace(node)


def _timer_cancelled(state: FlowState, event: ev.TimerCancelled) -> None:
    state.timers.pop(event.timer, None)


def _awaited(state: FlowState, event: ev.EventAwaited) -> None:
    state.next_wait = event.wait + 1
    state.waits.setdefault(event.name, deque()).append((event.wait, event.node))


def _wait_ended(state: FlowState, event: ev.EventWaitEnded) -> None:
    for name, waits in list(state.waits.items()):
        left = deque(each for each in waits if each[0] != event.wait)
        if left:
            state.waits[name] = left
        else:
            del state.waits[name]


def _received(state: FlowState, event: ev.EventReceived) -> NodePlace | None:
    waits = state.waits.get(event.name)
    if not waits:
        return None
    _, node = waits.popleft()
    if not waits:
        del state.waits[event.name]
    state.completed(NodePlace(node), event.value)
    return NodePlace(node)


def _child_scheduled(state: FlowState, event: ev.ChildScheduled) -> None:
    state.next_child = event.child + 1
    number = state.scheduler.rounds.get(event.node, 0)
    state.children[event.child] = ChildPlace(event.node, event.item, event.id, event.detached, event.named, number)
    if event.item != NO_ITEM:
        state.fan_outs[event.node].begun = event.item + 1
        if event.detached and not event.named:  # it is not waited for
            state.completed(NodePlace(event.node, event.item), _id_of(event))


def _child_started(state: FlowState, event: ev.ChildStarted) -> NodePlace | None:
    """The id of a detached child is its result, because its end is not waited for."""
    child = state.children.get(event.child)
    place = None if child is None or not child.detached else _place_of(state, child)
    if child is not None and place is not None:
        state.completed(place, _id_of(child))
    return place


def _id_of(child: ChildPlace | ev.ChildScheduled) -> Payload:
    return Payload(msgspec.Raw(msgspec.json.encode(child.id)))


def _place_of(state: FlowState, child: ChildPlace) -> NodePlace | None:
    """The place of a child, unless its node has failed or restarted since."""
    if child.round != state.scheduler.rounds.get(child.node, 0):
        return None
    return NodePlace(child.node, child.item) if child.item == NO_ITEM or child.node in state.fan_outs else None


def _child_asked_to_end(state: FlowState, event: ev.ChildCancelRequested) -> None:
    """The end of a child that was asked to end is not waited for."""
    state.children.pop(event.child, None)


def _child_ended(state: FlowState, event: ev.ChildEnd) -> NodePlace | None:
    """Record the result of a child. The caller decides about an end without one."""
    child = state.children.pop(event.child, None)
    if child is None or (child.detached and not (child.named and isinstance(event, ev.ChildRefused))):
        return None
    place = _place_of(state, child)
    if place is not None and isinstance(event, ev.ChildCompleted):
        state.completed(place, event.result)
    return place


def _fan_out_began(state: FlowState, event: ev.FanOutStarted) -> None:
    responses = state.responses[event.stream] if event.stream else None
    state.fan_outs[event.node] = FanOut(event.count, event.items, responses)


def _node_completed(state: FlowState, event: ev.NodeCompleted) -> None:
    if event.item == NO_ITEM:
        state.fan_outs.pop(event.node, None)
    state.completed(NodePlace(event.node, event.item), event.output)


def _node_released(state: FlowState, event: ev.NodeReleased) -> None:
    output = state.held.pop(event.node)
    state.outputs[event.node] = output if event.output is None else event.output
    state.errors.pop(event.node, None)


def _node_failed(state: FlowState, event: ev.NodeFailed) -> None:
    state.failed(event.node, event.failure)


def _cycle_restarted(state: FlowState, event: ev.CycleRestarted) -> None:
    state.rounds[event.node] = event.round
    state.targets[event.node] = event.target
    graph = state.scheduler.graph
    again = graph.reachable(event.target)
    for cycle, target in state.targets.items():  # inner cycles count from 0 again
        if target != event.target and target in again:
            state.rounds[cycle] = 0
    for at in list(state.unclear):
        if graph.edges[at].source in again:
            del state.unclear[at]


def _advanced(state: FlowState, event: ev.FlowAdvanced) -> None:
    state.unclear.update(event.unclear)


def _cancel_requested(state: FlowState, event: ev.CancelRequested) -> None:
    if state.cancel_reason is None:
        state.cancel_reason = event.reason
        state.is_overdue = event.by_deadline


def _raised(state: FlowState, event: ev.EventRaised) -> None:
    state.sent = event.number + 1


_APPLY: Final[dict[type[HistoryEventBase], EventHandler]] = {
    ev.Started: _started,
    ev.ActivityScheduled: _scheduled,
    ev.ActivityCompleted: _activity_completed,
    ev.ActivityYielded: _yielded,
    ev.ActivityFailed: _activity_failed,
    ev.ActivityAbandoned: _activity_abandoned,
    ev.TimerStarted: _timer_started,
    ev.TimerFired: _timer_fired,
    ev.TimerCancelled: _timer_cancelled,
    ev.EventAwaited: _awaited,
    ev.EventWaitEnded: _wait_ended,
    ev.EventReceived: _received,
    ev.ChildScheduled: _child_scheduled,
    ev.ChildStarted: _child_started,
    ev.ChildCancelRequested: _child_asked_to_end,
    ev.ChildCompleted: _child_ended,
    ev.ChildFailed: _child_ended,
    ev.ChildStopped: _child_ended,
    ev.ChildRefused: _child_ended,
    ev.FanOutStarted: _fan_out_began,
    ev.NodeCompleted: _node_completed,
    ev.NodeReleased: _node_released,
    ev.NodeFailed: _node_failed,
    ev.CycleRestarted: _cycle_restarted,
    ev.FlowAdvanced: _advanced,
    ev.CancelRequested: _cancel_requested,
    ev.EventRaised: _raised,
}


def replay_event(state: FlowState, event: HistoryEventBase) -> None:
    """Apply an event of the history with its moves of digits, which a running flow makes itself."""
    state.apply(event)
    if isinstance(event, ev.FlowAdvanced):
        state.scheduler.restore(event)
    elif isinstance(event, ev.CycleRestarted):
        state.scheduler.reset(event.target)
