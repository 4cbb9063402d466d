"""Reads the history of one execution: turns without gaps, one start, one end, and one outcome for each step.

The workflow's code is not replayed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from holdfast.audit.problems import Finding, Rule
from holdfast.core import history as ev
from holdfast.core.history import HistoryEvent, decode_events
from holdfast.storage.large_payloads import REFERENCE
from holdfast.storage.relational.raw_tables import RawTurn

UPDATE_MARK: Final = b'"update_'
"""Occurs in every turn with an event of an update."""
ActivityEnd = ev.ActivityCompleted | ev.ActivityFailed
Terminal = (
    ev.ExecutionCompleted
    | ev.ExecutionFailed
    | ev.InstanceTerminated
    | ev.ExecutionCancelled
    | ev.InstanceCancelled
    | ev.DeadlinePassed
    | ev.ContinuedAsNew
)
TERMINAL = (ev.ExecutionCompleted, ev.ExecutionFailed, ev.ExecutionCancelled, ev.ContinuedAsNew, *ev.FROM_OUTSIDE)


@dataclass(slots=True)
class HistoryReading:
    """The contents of a history, and the rules that it breaks."""

    findings: list[Finding] = field(default_factory=list[Finding])
    events: list[HistoryEvent] = field(default_factory=list[HistoryEvent])
    is_complete: bool = True
    """False if a turn is missing or cannot be decoded: then a missing event proves nothing."""
    started: ev.Started | None = None
    terminal: Terminal | None = None
    scheduled: dict[int, str] = field(default_factory=dict[int, str])
    abandoned: set[int] = field(default_factory=set[int])
    outcomes: dict[int, ActivityEnd] = field(default_factory=dict[int, ActivityEnd])
    yielded: dict[int, int] = field(default_factory=dict[int, int])
    """The number of values of each activity that were applied."""
    timers: dict[int, int] = field(default_factory=dict[int, int])
    """Every timer that was started, with its due time."""
    timers_ended: dict[int, str] = field(default_factory=dict[int, str])
    waits: dict[int, str] = field(default_factory=dict[int, str])
    """Open waits for events, with the names of the events."""
    waits_by_name: dict[str, dict[int, None]] = field(default_factory=dict[str, dict[int, None]])
    """Open waits by the name of the event, oldest first."""
    next_wait: int = 0
    given: tuple[int, int, str] | None = None
    """The event that ended a wait last: its place in the history, the wait, and its name."""
    expiries: list[ev.DeadlinePassed | ev.CancelRequested] = field(
        default_factory=list[ev.DeadlinePassed | ev.CancelRequested]
    )
    """The effects of the deadline of the instance."""
    has_references: bool = False
    """Whether it may name large payloads."""
    has_updates: bool = False
    children: dict[int, ev.ChildScheduled] = field(default_factory=dict[int, ev.ChildScheduled])
    child_ends: dict[int, ev.ChildEnd] = field(default_factory=dict[int, ev.ChildEnd])
    children_started: set[int] = field(default_factory=set[int])
    """Children with a confirmed start, which only a child with an id of its own has."""

    @property
    def open_timers(self) -> dict[int, int]:
        """The due times of the timers that neither fired nor were cancelled."""
        return {timer: due for timer, due in self.timers.items() if timer not in self.timers_ended}

    def add(self, rule: Rule, text: str) -> None:
        self.findings.append((rule, text))


def read_history(turns: Sequence[RawTurn], execution: int) -> HistoryReading:
    """Reads the turns of one execution."""
    reading = HistoryReading()
    if any(turn.turn != expected for expected, turn in enumerate(turns)):
        reading.is_complete = False
        numbers = [turn.turn for turn in turns]
        reading.add(Rule.HISTORY_GAP_FREE, f"execution {execution} has the turns {shortened(numbers)}")
    for turn in turns:
        data = turn.events
        try:
            events = decode_events(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            reading.is_complete = False
            reading.add(Rule.EVENTS_READABLE, f"turn {turn.turn} cannot be decoded: {error}")
            continue
        if not events:
            reading.add(Rule.HISTORY_GAP_FREE, f"turn {turn.turn} has no events (G9)")
        reading.events += events
        reading.has_references = reading.has_references or REFERENCE in data
        reading.has_updates = reading.has_updates or UPDATE_MARK in data
    _read_events(reading)
    if reading.is_complete and reading.events and reading.started is None:
        reading.add(Rule.STARTED_ONCE, "the history has events but no start")
    return reading


def _read_events(reading: HistoryReading) -> None:
    if reading.events and reading.is_complete and not isinstance(reading.events[0], ev.Started):
        reading.add(Rule.STARTED_ONCE, "the first event is not the start")
    for at, event in enumerate(reading.events):
        if reading.terminal is not None:
            reading.add(Rule.TERMINAL_LAST, f"event {at} follows the end of the workflow")
        reader = _READERS.get(type(event))
        if reader is not None:
            reader(reading, at, event)


def _read_end(reading: HistoryReading, at: int, event: Terminal) -> None:
    del at
    reading.terminal = event
    if isinstance(event, ev.DeadlinePassed):
        reading.expiries.append(event)


def _read_start(reading: HistoryReading, at: int, event: ev.Started) -> None:
    if reading.started is not None:
        reading.add(Rule.STARTED_ONCE, f"event {at} is a second start")
    reading.started = event


def _read_cancel(reading: HistoryReading, at: int, event: ev.CancelRequested) -> None:
    del at
    if event.by_deadline:
        reading.expiries.append(event)


def _read_timer(reading: HistoryReading, at: int, event: ev.TimerStarted) -> None:
    if event.timer in reading.timers:
        reading.add(Rule.ONE_OUTCOME, f"event {at} starts timer {event.timer} again")
    reading.timers[event.timer] = event.due_at_ms


def _read_child(reading: HistoryReading, at: int, event: HistoryEvent) -> None:
    if isinstance(event, ev.ChildScheduled):
        if event.child in reading.children:
            reading.add(Rule.ONE_OUTCOME, f"event {at} starts child {event.child} again")
        reading.children[event.child] = event
    elif isinstance(event, ev.ChildStarted):
        reading.children_started.add(event.child)
    elif isinstance(event, ev.CHILD_ENDS):
        if event.child not in reading.children and reading.is_complete:
            reading.add(Rule.ONE_OUTCOME, f"event {at} answers child {event.child}, which was never started")
        if event.child in reading.child_ends:
            reading.add(Rule.ONE_OUTCOME, f"event {at} is a second end of child {event.child}")
        reading.child_ends[event.child] = event


def _read_wait(reading: HistoryReading, at: int, event: ev.EventAwaited | ev.EventReceived | ev.EventWaitEnded) -> None:
    """G6: an event ends the oldest wait for its name; a wait has no other end but its own."""
    waits = reading.waits
    match event:
        case ev.EventAwaited():
            if event.wait in waits or event.wait < reading.next_wait:
                reading.add(Rule.ONE_OUTCOME, f"event {at} begins wait {event.wait} again")
            waits[event.wait] = event.name
            reading.waits_by_name.setdefault(event.name, {})[event.wait] = None
            reading.next_wait = event.wait + 1
        case ev.EventWaitEnded():
            name = waits.pop(event.wait, None)
            if name is None:
                reading.add(Rule.ONE_OUTCOME, f"event {at} ends wait {event.wait}, which is not open")
            else:
                reading.waits_by_name[name].pop(event.wait, None)
        case ev.EventReceived():
            same = reading.waits_by_name.get(event.name)
            if not same:
                reading.add(Rule.ONE_OUTCOME, f"event {at}: no wait was open for an event {event.name!r}")
            else:
                first = next(iter(same))
                del same[first]
                waits.pop(first, None)
                reading.given = (at, first, event.name)


def _read_set_aside(reading: HistoryReading, at: int, event: ev.EventSetAside) -> None:
    """G6: the wait that the previous event ended is open again, in its former place."""
    if reading.given == (at - 1, event.wait, event.name):
        reading.waits[event.wait] = event.name
        reading.waits_by_name[event.name] = {event.wait: None, **reading.waits_by_name[event.name]}
    elif reading.is_complete:
        reading.add(Rule.ONE_OUTCOME, f"event {at} sets an event aside that did not reach wait {event.wait}")


def _read_activity(reading: HistoryReading, at: int, event: ev.ActivityScheduled | ev.ActivityAbandoned) -> None:
    if isinstance(event, ev.ActivityScheduled):
        if event.activity != len(reading.scheduled) and reading.is_complete:
            reading.add(Rule.ONE_OUTCOME, f"event {at} schedules activity {event.activity} out of order")
        reading.scheduled[event.activity] = event.name
    else:
        if event.activity in reading.abandoned:
            reading.add(Rule.ONE_OUTCOME, f"event {at} abandons activity {event.activity} again")
        reading.abandoned.add(event.activity)


def _read_yield(reading: HistoryReading, at: int, event: ev.ActivityYielded) -> None:
    """L15: the values of an activity are numbered without gaps across its attempts, and precede its outcome."""
    due = reading.yielded.get(event.activity, 0)
    if event.activity not in reading.scheduled and reading.is_complete:
        reading.add(Rule.ONE_OUTCOME, f"event {at} is a value of activity {event.activity}, which was never scheduled")
    if event.number != due and reading.is_complete:
        reading.add(Rule.ONE_OUTCOME, f"event {at} is value {event.number} of activity {event.activity}, not {due}")
    if event.activity in reading.outcomes:
        reading.add(Rule.ONE_OUTCOME, f"event {at} is a value of activity {event.activity} after its outcome")
    reading.yielded[event.activity] = event.numbers.stop


def _read_outcome(reading: HistoryReading, at: int, event: ActivityEnd) -> None:
    if event.activity not in reading.scheduled and reading.is_complete:
        reading.add(Rule.ONE_OUTCOME, f"event {at} answers activity {event.activity}, which was never scheduled")
    if event.activity in reading.outcomes:
        reading.add(Rule.ONE_OUTCOME, f"event {at} is a second outcome of activity {event.activity}")
    reading.outcomes[event.activity] = event


def _read_timer_end(reading: HistoryReading, at: int, event: ev.TimerFired | ev.TimerCancelled) -> None:
    how = "fires" if isinstance(event, ev.TimerFired) else "cancels"
    due = reading.timers.get(event.timer)
    if due is None and reading.is_complete:
        reading.add(Rule.ONE_OUTCOME, f"event {at} {how} timer {event.timer}, which was never started")
    if event.timer in reading.timers_ended:
        before = reading.timers_ended[event.timer]
        reading.add(Rule.ONE_OUTCOME, f"event {at} {how} timer {event.timer}, which {before} already")
    if isinstance(event, ev.TimerFired):
        reading.timers_ended[event.timer] = "fired"
        if due is not None and event.time_ms < due:
            early = due - event.time_ms
            reading.add(Rule.TIMER_NOT_EARLY, f"event {at} fires timer {event.timer} {early} ms before it is due")
    else:
        reading.timers_ended[event.timer] = "was cancelled"


def shortened(numbers: Sequence[int]) -> str:
    """A list of numbers in words: the first ten of them."""
    most = 10
    shown = ", ".join(str(number) for number in numbers[:most])
    return shown if len(numbers) <= most else f"{shown}, ... ({len(numbers)} of them)"


_READERS: Final[dict[type[Any], Callable[[HistoryReading, int, Any], None]]] = {
    ev.Started: _read_start,
    ev.CancelRequested: _read_cancel,
    ev.EventAwaited: _read_wait,
    ev.EventReceived: _read_wait,
    ev.EventWaitEnded: _read_wait,
    ev.EventSetAside: _read_set_aside,
    ev.ActivityScheduled: _read_activity,
    ev.ActivityAbandoned: _read_activity,
    ev.ActivityCompleted: _read_outcome,
    ev.ActivityFailed: _read_outcome,
    ev.ActivityYielded: _read_yield,
    ev.TimerStarted: _read_timer,
    ev.TimerFired: _read_timer_end,
    ev.TimerCancelled: _read_timer_end,
    ev.ChildScheduled: _read_child,
    ev.ChildStarted: _read_child,
    **dict.fromkeys(ev.CHILD_ENDS, _read_child),
    **dict.fromkeys(TERMINAL, _read_end),
}
"""The reader of each kind of event that is checked here."""
