"""The steps of an instance, as ``run`` and ``show`` tell them: activities with their attempts, and timers."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from holdfast.client.pages import LONGEST_PAGE, NEWEST
from holdfast.core import events as ev
from holdfast.core.events import HistoryEvent, decode_events
from holdfast.core.lifecycle import AttemptState
from holdfast.core.steps import Step as RecordedStep
from holdfast.core.steps import read_steps
from holdfast.errors import StoreError
from holdfast.payloads.failures import Failure
from holdfast.storage.contract import AttemptRecord, InstanceId, InstanceRecord, Store

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

    @property
    def title(self) -> str:
        """What the step is called in a list of steps."""
        if self.kind == "activity":
            return self.name
        return f"{self.kind} {self.number if self.kind == 'timer' else self.name}"

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


async def take_picture(store: Store, record: InstanceRecord) -> Picture:
    """Read the steps of the current execution."""
    attempts = await store.read_attempts(record.number, record.execution)
    events: list[HistoryEvent] = []
    for row in await store.read_history(record.number, record.execution):
        try:
            events += decode_events(row.events)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreError(
                f"turn {row.turn} of {record.id!r} cannot be decoded: {error}; run holdfast verify"
            ) from error
    steps = steps_of(events, attempts)
    await _find_children(store, record, [step for step in steps if step.kind == "child"])
    return Picture(record, events, steps)


async def _find_children(store: Store, record: InstanceRecord, steps: list[Step]) -> None:
    """Give the steps their instances. Of more than a page the oldest stay without."""
    if steps:
        found = await store.list_instances(before=NEWEST, limit=LONGEST_PAGE, parent=record.number)
        by_id = {child.id: child for child in reversed(found)}
        for step in steps:
            step.child = by_id.get(InstanceId(step.id))


def steps_of(events: list[HistoryEvent], attempts: list[AttemptRecord]) -> list[Step]:
    """In the order in which they were first scheduled (K9)."""
    steps = {
        (step.kind, step.number): Step(
            step.kind, step.number, step.name, _state(step), step.due_at_ms, step.ended_at_ms, id=step.id
        )
        for step in read_steps(events)
    }
    for attempt in attempts:
        step = steps.get(("activity", attempt.key.activity))
        if step is not None:
            step.attempts.append(attempt)
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
