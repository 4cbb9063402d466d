"""The steps of a workflow written as code, derived from its history, and their key (K9).

The key has one digit for each activity, timer, wait for an event and child, in the order in which they were scheduled.
It is derived on reading, never stored.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.core import history as ev
from holdfast.core.history import HistoryEvent, Payload, payload_of

STARTED: Final = "8"
PAUSED: Final = "5"
_OPEN: Final = STARTED + PAUSED
ERRORED: Final = "7"

_BEGINS: Final[dict[type[object], tuple[str, str, str]]] = {
    ev.ActivityScheduled: ("activity", "activity", STARTED),
    ev.TimerStarted: ("timer", "timer", PAUSED),
    ev.EventAwaited: ("event", "wait", PAUSED),
    ev.ChildScheduled: ("child", "child", STARTED),
}
"""The events that begin a step: its kind, the field with its number, its digit."""
_ENDS: Final[dict[type[object], tuple[str, str, str]]] = {
    ev.ActivityCompleted: ("activity", "activity", "6"),
    ev.ActivityFailed: ("activity", "activity", ERRORED),
    ev.ActivityAbandoned: ("activity", "activity", ERRORED),
    ev.TimerFired: ("timer", "timer", "4"),
    ev.TimerCancelled: ("timer", "timer", "3"),
    ev.EventWaitEnded: ("event", "wait", "3"),
    ev.ChildCompleted: ("child", "child", "6"),
    ev.ChildFailed: ("child", "child", ERRORED),
    ev.ChildStopped: ("child", "child", ERRORED),
    ev.ChildRefused: ("child", "child", ERRORED),
}
"""The events that end a step: its kind, the field with its number, its digit afterwards."""


class RecordedStep(msgspec.Struct):
    """An activity, timer, wait or child of an execution."""

    kind: str
    number: int
    name: str
    digit: str
    due_at_ms: int | None = None
    ended_by: type[object] | None = None
    """The class of the event that ended it."""
    ended_at_ms: int | None = None
    outcome: Payload | None = None
    """A result, the value of an event, or a failure."""
    id: str = ""
    """Of a child: its instance id."""
    node: str = ""
    """Of a flow: the node of the step, the item of its list, and the dimension (see `core.flow.snapshot`)."""
    item: int = -1
    dimension: str = ""

    @property
    def is_open(self) -> bool:
        return self.digit in _OPEN


def read_steps(events: Iterable[HistoryEvent]) -> list[RecordedStep]:
    """The steps in the order in which they were first scheduled."""
    steps: dict[tuple[str, int], RecordedStep] = {}
    waits: defaultdict[str, deque[RecordedStep]] = defaultdict(deque)
    for event in events:
        kind = type(event)
        if kind in _BEGINS:
            what, field, digit = _BEGINS[kind]
            number: int = getattr(event, field)
            step = RecordedStep(what, number, getattr(event, "name", what), digit, getattr(event, "due_at_ms", None))
            step.id = getattr(event, "id", "")
            steps[what, number] = step
            if what == "event":
                waits[step.name].append(step)
        elif kind in _ENDS:
            what, field, digit = _ENDS[kind]
            _end(steps.get((what, getattr(event, field))), event, digit)
        elif isinstance(event, ev.EventReceived):
            _end(_first_open(waits[event.name]), event, "4")  # the first wait gets it (G6)
        elif isinstance(event, ev.EventSetAside):
            _open_again(steps.get(("event", event.wait)))
        elif isinstance(event, ev.FROM_OUTSIDE):
            for step in steps.values():  # what was open is cancelled with it (K2)
                if step.is_open:
                    _end(step, event, ERRORED)
    return list(steps.values())


def _first_open(waits: deque[RecordedStep]) -> RecordedStep | None:
    """The oldest open wait; removes the ended ones before it."""
    while waits and not waits[0].is_open:
        waits.popleft()
    return waits[0] if waits else None


def _end(step: RecordedStep | None, event: HistoryEvent, digit: str) -> None:
    if step is not None:
        step.digit = digit
        step.ended_by = type(event)
        step.ended_at_ms = getattr(event, "time_ms", None)
        step.outcome = payload_of(event)


def _open_again(wait: RecordedStep | None) -> None:
    if wait is not None:
        wait.digit = PAUSED
        wait.ended_by = None
        wait.ended_at_ms = None
        wait.outcome = None


def derived_key(steps: Iterable[RecordedStep]) -> str:
    """The key of a workflow in code: one digit for each step (K9)."""
    return "".join(step.digit for step in steps)
