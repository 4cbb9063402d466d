"""The steps of an instance, as ``run`` and ``show`` tell them: activities with their attempts, and timers."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec

from holdfast.client.flow_views import read_children, read_events, read_flow
from holdfast.client.views import moment
from holdfast.core import events as ev
from holdfast.core.collation.dimensions import FIRST
from holdfast.core.events import HistoryEvent
from holdfast.core.flow.reading import FlowReading
from holdfast.core.ledger import DIGITS
from holdfast.core.lifecycle import AttemptState
from holdfast.core.steps import Step as RecordedStep
from holdfast.core.steps import read_steps
from holdfast.payloads.failures import Failure
from holdfast.storage.contract import AttemptRecord, InstanceRecord, Store

_failure = msgspec.json.Decoder(Failure)


class StepState(StrEnum):
    """Where a step is."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


DONE_WORDS: Final = {"timer": "fired", "event": "received"}
WORDS: Final = {StepState.OPEN: "waiting", StepState.FAILED: "failed", StepState.CANCELLED: "cancelled"}


@dataclass(slots=True)
class Step:
    """One activity, timer, wait for an event, or child."""

    kind: str
    number: int
    name: str
    state: StepState = StepState.OPEN
    due_at_ms: int | None = None
    ended_at_ms: int | None = None
    attempts: list[AttemptRecord] = field(default_factory=list[AttemptRecord])
    id: str = ""
    """The instance, of a child."""
    child: InstanceRecord | None = None
    node: str = ""
    """Of a flow: whose step it is, for which item, and in which round."""
    item: int = -1
    dimension: str = ""

    @property
    def title(self) -> str:
        """What the step is called in a list of steps."""
        if self.node:
            return self._title_in_flow
        if self.kind == "activity":
            return self.name
        return f"{self.kind} {self.number if self.kind == 'timer' else self.name}"

    @property
    def _title_in_flow(self) -> str:
        """The node with its round and item, and what it does if that is not the same word."""
        where = self.node if self.dimension in ("", FIRST) else f"{self.node} {self.dimension}"
        if self.kind == "timer":
            return f"{where} (timer)"
        return where if self.name == self.node else f"{where} ({self.name})"

    @property
    def said(self) -> str:
        """Where the step is, in the word of its kind."""
        return DONE_WORDS.get(self.kind, "done") if self.state is StepState.DONE else WORDS[self.state]

    @property
    def failure(self) -> Failure | None:
        """Of the newest attempt that failed."""
        for attempt in reversed(self.attempts):
            if (failure := failure_of_attempt(attempt)) is not None:
                return failure
        return None


@dataclass(frozen=True, slots=True)
class Picture:
    """An instance at one moment."""

    record: InstanceRecord
    events: list[HistoryEvent]
    steps: list[Step]
    flow: FlowReading | None = None


async def take_picture(store: Store, record: InstanceRecord) -> Picture:
    """Read the steps of the current execution."""
    attempts = await store.read_attempts(record.number, record.execution)
    events = await read_events(store, record)
    flow = await read_flow(store, record, events)
    recorded = read_steps(events) if flow is None else flow.steps
    steps = steps_of(recorded, attempts)
    children = await read_children(store, record.number, recorded)
    for step in steps:
        if step.kind == "child":
            step.child = children.get(step.number)
            if step.child is None and step.state is StepState.OPEN and record.closed_at_ms is not None:
                step.state = StepState.CANCELLED  # it was never there: nobody read that its id was taken
    return Picture(record, events, steps, flow)


def steps_of(recorded: Iterable[RecordedStep], attempts: list[AttemptRecord]) -> list[Step]:
    """In the order in which they were first scheduled (K9), with their attempts."""
    steps: dict[tuple[str, int], Step] = {}
    for each in recorded:
        step = Step(each.kind, each.number, each.name, _state(each), each.due_at_ms, each.ended_at_ms, id=each.id)
        step.node, step.item, step.dimension = each.node, each.item, each.dimension
        steps[each.kind, each.number] = step
    for attempt in attempts:
        owner = steps.get(("activity", attempt.key.activity))
        if owner is not None:
            owner.attempts.append(attempt)
    return list(steps.values())


def _state(step: RecordedStep) -> StepState:
    if step.is_open:
        return StepState.OPEN
    return StepState.CANCELLED if step.ended_by is None else _STATES.get(step.ended_by, StepState.CANCELLED)


_STATES: dict[type[object], StepState] = {
    ev.ActivityCompleted: StepState.DONE,
    ev.ActivityFailed: StepState.FAILED,
    ev.TimerFired: StepState.DONE,
    ev.EventReceived: StepState.DONE,
    ev.ChildCompleted: StepState.DONE,
    ev.ChildFailed: StepState.FAILED,
    ev.ChildRefused: StepState.FAILED,
}
"""How a step is shown that was ended by this; anything else has cancelled it."""


def failure_of_attempt(attempt: AttemptRecord) -> Failure | None:
    """What an attempt failed with."""
    if attempt.failure is None:
        return None
    try:
        return _failure.decode(attempt.failure)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Failure(type="unreadable", message="the stored failure cannot be decoded")


def short_failure(failure: Failure) -> str:
    """Type and message, in one line."""
    name = failure.type.rpartition(".")[2]
    return f"{name}: {failure.message}" if failure.message else name


def attempt_seconds(attempt: AttemptRecord, now_ms: int) -> float | None:
    """How long an attempt ran, or has been running."""
    if attempt.started_at_ms is None:
        return None
    end_ms = attempt.closed_at_ms
    if end_ms is None:
        if attempt.state not in (AttemptState.RUNNING, AttemptState.CANCELLED_RUNNING):
            return None
        end_ms = now_ms
    return max(0, end_ms - attempt.started_at_ms) / 1000


def attempt_fields(attempt: AttemptRecord) -> dict[str, Any]:
    """An attempt, for programs."""
    failure = failure_of_attempt(attempt)
    return {
        "attempt": attempt.key.attempt,
        "state": attempt.state,
        "ledger": f"{attempt.ledger:0{DIGITS}d}",
        "queue": attempt.queue,
        "worker": attempt.owner,
        "scheduled_at": moment(attempt.scheduled_at_ms),
        "started_at": moment(attempt.started_at_ms),
        "closed_at": moment(attempt.closed_at_ms),
        "failure": None if failure is None else short_failure(failure),
    }
