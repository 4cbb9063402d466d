"""The books of a flow: everything its history says, kept event by event.

A flow that runs notes each event as it happens; one that is brought back to life notes the events of its history. Both
have the same books in the end, because there is only this one way in: nothing is decided, evaluated or run again.
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
    """Where in a flow something belongs: its node and, in a fan-out, the item."""

    node: str
    item: int = NO_ITEM


class ChildPlace(NamedTuple):
    """Where a child belongs, whether anybody waits for its end, and whether its id was chosen and may be taken."""

    node: str
    item: int
    id: str
    detached: bool
    named: bool
    round: int


EventHandler: TypeAlias = Callable[["FlowState", Never], "NodePlace | None"]
"""Takes one kind of event in."""


class FanOut:
    """A node that runs once for each item of a list."""

    __slots__ = ("begun", "count", "items", "results")

    def __init__(self, count: int, items: Payload | None = None) -> None:
        self.count = count
        self.items = items
        """The list, where not all of it began at once."""
        self.begun = 0
        self.results: dict[int, Payload] = {}


class FlowState:
    """What is open, and what came of the rest."""

    __slots__ = (
        "_failed_in",
        "activities",
        "cancel_reason",
        "children",
        "errors",
        "fan_outs",
        "is_overdue",
        "next_activity",
        "next_child",
        "next_timer",
        "next_wait",
        "outputs",
        "rounds",
        "scheduler",
        "sent",
        "started",
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
        self.errors: dict[str, Payload] = {}
        self._failed_in: dict[str, int] = {}
        """The round in which each of those failed."""
        self.activities: dict[int, NodePlace] = {}
        self.timers: dict[int, str] = {}
        self.waits: dict[str, deque[tuple[int, str]]] = {}
        """By the name of the event: the waits for it, those that are there longest first (G6)."""
        self.children: dict[int, ChildPlace] = {}
        self.fan_outs: dict[str, FanOut] = {}
        self.rounds: dict[str, int] = {}
        """How often each cycle went round, since one around it did."""
        self.targets: dict[str, str] = {}
        """Where each cycle that went round goes back to."""
        self.next_activity = self.next_timer = self.next_wait = self.next_child = self.sent = 0
        self.cancel_reason: str | None = None
        self.is_overdue = False
        self.unclear: dict[int, str] = {}
        """Edges that were taken because their condition could not be evaluated, with the reason."""

    def dimension(self, place: NodePlace) -> Dimension:
        """K8: the round in which a node is, and its item."""
        here = Dimension(f"0/{self.scheduler.rounds.get(place.node, 0)}")
        return here if place.item == NO_ITEM else item_dimension(here, place.item)

    def apply(self, event: HistoryEventBase) -> NodePlace | None:
        """Take an event in. What an answer was for, if somebody still waits for it."""
        if type(event) is ev.ActivityCompleted:  # nearly all of them
            return _activity_completed(self, event)
        how = _HOW.get(type(event))
        return None if how is None else how(self, cast("Never", event))  # the table has for each type its own

    def scheduled(self, activity: int, place: NodePlace) -> None:
        """An activity was called for a node, or for an item of it."""
        self.next_activity = activity + 1
        self.activities[activity] = place
        if place.item != NO_ITEM:
            self.fan_outs[place.node].begun = place.item + 1

    def completed(self, place: NodePlace, output: Payload) -> None:
        """A node, or an item of it, has its result."""
        if place.item == NO_ITEM:
            self.outputs[place.node] = output
            self.errors.pop(place.node, None)
        else:
            self.fan_outs[place.node].results[place.item] = output

    def failed(self, node: str, failure: Payload) -> None:
        """A node failed, or an item of it, and so the node."""
        self.errors.pop(node, None)  # the last one to fail comes last
        self.errors[node] = failure
        self._failed_in[node] = self.scheduler.rounds.get(node, 0)
        self.outputs.pop(node, None)
        self.fan_outs.pop(node, None)

    def has_failed(self, node: str) -> bool:
        """Whether a node failed in this round, and is not one that was cancelled or failed in an earlier one."""
        in_round = self._failed_in.get(node)
        return in_round == self.scheduler.rounds.get(node, 0) and self.scheduler.digit(node) is Digit.ERRORED

    def timer_of(self, node: str) -> int | None:
        """The timer that a node waits for."""
        return next((timer for timer, owner in self.timers.items() if owner == node), None)

    def wait_of(self, node: str) -> int | None:
        """The wait of a node for an event."""
        return next((number for waits in self.waits.values() for number, owner in waits if owner == node), None)


# ---------------------------------------------------------------- how each event is taken in


def _started(book: FlowState, event: ev.Started) -> None:
    book.started = event


def _scheduled(book: FlowState, event: ev.ActivityScheduled) -> None:
    book.scheduled(event.activity, NodePlace(event.node, event.item))


def _activity_completed(book: FlowState, event: ev.ActivityCompleted) -> NodePlace | None:
    place = book.activities.pop(event.activity, None)
    if place is not None:
        book.completed(place, event.result)
    return place


def _activity_failed(book: FlowState, event: ev.ActivityFailed) -> NodePlace | None:
    place = book.activities.pop(event.activity, None)
    if place is not None:
        book.failed(place.node, event.failure)
    return place


def _activity_abandoned(book: FlowState, event: ev.ActivityCancelled) -> None:
    book.activities.pop(event.activity, None)


def _timer_started(book: FlowState, event: ev.TimerStarted) -> None:
    book.next_timer = event.timer + 1
    book.timers[event.timer] = event.node


def _timer_fired(book: FlowState, event: ev.TimerFired) -> NodePlace | None:
    node = book.timers.pop(event.timer, None)
    return None if node is None else NodePlace(node)


def _timer_cancelled(book: FlowState, event: ev.TimerCancelled) -> None:
    book.timers.pop(event.timer, None)


def _awaited(book: FlowState, event: ev.EventAwaited) -> None:
    book.next_wait = event.wait + 1
    book.waits.setdefault(event.name, deque()).append((event.wait, event.node))


def _wait_ended(book: FlowState, event: ev.EventWaitEnded) -> None:
    for name, waits in list(book.waits.items()):
        left = deque(each for each in waits if each[0] != event.wait)
        if left:
            book.waits[name] = left
        else:
            del book.waits[name]


def _received(book: FlowState, event: ev.EventReceived) -> NodePlace | None:
    waits = book.waits.get(event.name)
    if not waits:
        return None
    _, node = waits.popleft()
    if not waits:
        del book.waits[event.name]
    book.completed(NodePlace(node), event.value)
    return NodePlace(node)


def _child_scheduled(book: FlowState, event: ev.ChildScheduled) -> None:
    book.next_child = event.child + 1
    number = book.scheduler.rounds.get(event.node, 0)
    book.children[event.child] = ChildPlace(event.node, event.item, event.id, event.detached, event.named, number)
    if event.item != NO_ITEM:
        book.fan_outs[event.node].begun = event.item + 1
        if event.detached and not event.named:  # nobody waits for anything of it
            book.completed(NodePlace(event.node, event.item), _id_of(event))


def _child_started(book: FlowState, event: ev.ChildStarted) -> NodePlace | None:
    """Nobody waits for the end of one that is detached: its id is the result."""
    child = book.children.get(event.child)
    place = None if child is None or not child.detached else _place_of(book, child)
    if child is not None and place is not None:
        book.completed(place, _id_of(child))
    return place


def _id_of(child: ChildPlace | ev.ChildScheduled) -> Payload:
    return Payload(msgspec.Raw(msgspec.json.encode(child.id)))


def _place_of(book: FlowState, child: ChildPlace) -> NodePlace | None:
    """Where an answer of a child belongs, if its node has not failed meanwhile."""
    if child.round != book.scheduler.rounds.get(child.node, 0):
        return None
    return NodePlace(child.node, child.item) if child.item == NO_ITEM or child.node in book.fan_outs else None


def _child_asked_to_end(book: FlowState, event: ev.ChildCancelRequested) -> None:
    """What comes of it is not waited for."""
    book.children.pop(event.child, None)


def _child_ended(book: FlowState, event: ev.ChildEnd) -> NodePlace | None:
    """Its result is noted here; what it means that there is none, whoever reads this decides."""
    child = book.children.pop(event.child, None)
    if child is None or (child.detached and not (child.named and isinstance(event, ev.ChildRefused))):
        return None
    place = _place_of(book, child)
    if place is not None and isinstance(event, ev.ChildCompleted):
        book.completed(place, event.result)
    return place


def _fan_out_began(book: FlowState, event: ev.FanOutStarted) -> None:
    book.fan_outs[event.node] = FanOut(event.count, event.items)


def _node_completed(book: FlowState, event: ev.NodeCompleted) -> None:
    book.fan_outs.pop(event.node, None)
    book.completed(NodePlace(event.node), event.output)


def _node_failed(book: FlowState, event: ev.NodeFailed) -> None:
    book.failed(event.node, event.failure)


def _cycle_restarted(book: FlowState, event: ev.CycleRestarted) -> None:
    book.rounds[event.node] = event.round
    book.targets[event.node] = event.target
    graph = book.scheduler.graph
    again = graph.reachable(event.target)
    for cycle, target in book.targets.items():  # those inside begin to count anew
        if target != event.target and target in again:
            book.rounds[cycle] = 0
    for at in list(book.unclear):
        if graph.edges[at].source in again:
            del book.unclear[at]


def _advanced(book: FlowState, event: ev.FlowAdvanced) -> None:
    book.unclear.update(event.unclear)


def _cancel_requested(book: FlowState, event: ev.CancelRequested) -> None:
    if book.cancel_reason is None:
        book.cancel_reason, book.is_overdue = event.reason, event.by_deadline


def _raised(book: FlowState, event: ev.EventRaised) -> None:
    book.sent = event.number + 1


_HOW: Final[dict[type[HistoryEventBase], EventHandler]] = {
    ev.Started: _started,
    ev.ActivityScheduled: _scheduled,
    ev.ActivityCompleted: _activity_completed,
    ev.ActivityFailed: _activity_failed,
    ev.ActivityCancelled: _activity_abandoned,
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
    ev.NodeFailed: _node_failed,
    ev.CycleRestarted: _cycle_restarted,
    ev.FlowAdvanced: _advanced,
    ev.CancelRequested: _cancel_requested,
    ev.EventRaised: _raised,
}


def replay_event(book: FlowState, event: HistoryEventBase) -> None:
    """Take in an event of the history: with the moves of digits, which a live flow has made already."""
    book.apply(event)
    if isinstance(event, ev.FlowAdvanced):
        book.scheduler.restore(event)
    elif isinstance(event, ev.CycleRestarted):
        book.scheduler.reset(event.target)
