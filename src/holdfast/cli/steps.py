"""The steps of an instance, as ``run`` and ``show`` tell them: activities with their attempts, and timers."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec

from holdfast.cli.console import LONGEST, arguments_text, seconds_text, value_text
from holdfast.client.views.flows import read_children
from holdfast.client.views.instances import Values, moment, short_failure
from holdfast.client.views.report import read_story, repaired
from holdfast.core import history as ev
from holdfast.core.collation import shown_place
from holdfast.core.flow.snapshot import FlowSnapshot
from holdfast.core.history import HistoryEvent, Payload
from holdfast.core.ledger import DIGITS
from holdfast.core.lifecycle import AttemptState
from holdfast.core.steps import RecordedStep, read_steps
from holdfast.payloads.failures import Failure
from holdfast.storage.contract import Store
from holdfast.storage.records import AttemptRecord, InstanceRecord

_failure = msgspec.json.Decoder(Failure)


class StepState(StrEnum):
    """Where a step is."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


LONGEST_CALL: Final = 60
"""Characters of arguments and a result that share a line."""
DONE_WORDS: Final = {"timer": "fired", "event": "received"}
WORDS: Final = {StepState.OPEN: "waiting", StepState.FAILED: "failed", StepState.CANCELLED: "cancelled"}


@dataclass(slots=True)
class StepReport:
    """One activity, timer, wait for an event, or child."""

    kind: str
    number: int
    name: str
    state: StepState = StepState.OPEN
    due_at_ms: int | None = None
    ended_at_ms: int | None = None
    attempts: list[AttemptRecord] = field(default_factory=list[AttemptRecord])
    outcome: Payload | None = None
    """What it ended with: a result, the value of an event, or a failure."""
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
        where = shown_place(self.node, self.dimension)
        if self.kind == "timer":
            return f"{where} (timer)"
        return where if self.name == self.node else f"{where} ({self.name})"

    @property
    def status_text(self) -> str:
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
class InstanceSteps:
    """An instance at one moment."""

    record: InstanceRecord
    events: list[HistoryEvent]
    steps: list[StepReport]
    flow: FlowSnapshot | None = None
    damage: Sequence[str] = ()
    """What of it cannot be read."""


async def read_steps_of(store: Store, record: InstanceRecord) -> InstanceSteps:
    """Read the steps of the current execution."""
    record, damage = repaired(record)
    attempts = [repaired(each)[0] for each in await store.read_attempts(record.number, record.execution)]
    story = await read_story(store, record)
    events = story.events
    flow = story.flow
    recorded = read_steps(events) if flow is None else flow.steps
    steps = steps_of(recorded, attempts)
    children = await read_children(store, record.number, recorded)
    for step in steps:
        if step.kind == "child":
            step.child = children.get(step.number)
            if step.child is None and step.state is StepState.OPEN and record.closed_at_ms is not None:
                step.state = StepState.CANCELLED  # it was never there: nobody read that its id was taken
    return InstanceSteps(record, events, steps, flow, [*damage, *story.damage])


def steps_of(recorded: Iterable[RecordedStep], attempts: list[AttemptRecord]) -> list[StepReport]:
    """In the order in which they were first scheduled (K9), with their attempts."""
    steps: dict[tuple[str, int], StepReport] = {}
    for each in recorded:
        step = StepReport(each.kind, each.number, each.name, _state(each), each.due_at_ms, each.ended_at_ms, id=each.id)
        step.node, step.item, step.dimension = each.node, each.item, each.dimension
        step.outcome = each.outcome
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Failure(type="unreadable", message="the stored failure cannot be decoded")


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


def step_notes(step: StepReport, values: Values, now_ms: int, *, with_result: bool = True) -> Iterator[str]:
    """What a step was given and gave, its last heartbeat and its lost workers, a line each."""
    longest = sys.maxsize if values.is_whole else LONGEST
    last = step.attempts[-1] if step.attempts else None
    given = "" if last is None else arguments_text(values.of_input(last.input), longest)
    came = ""
    if with_result and step.state is StepState.DONE and step.outcome is not None:
        came = value_text(values.of_payload(step.outcome), longest)
    if given and came and len(given) + len(came) > LONGEST_CALL:
        yield given
        yield f"-> {came}"
    elif given not in ("", "null") or came not in ("", "null"):
        yield f"{given} -> {came}".lstrip() if came else given
    if last is None:
        return
    has_beaten = last.details is not None or (last.heartbeat_at_ms or 0) > (last.started_at_ms or 0)
    if has_beaten and last.heartbeat_at_ms is not None and last.closed_at_ms is None:
        ago = seconds_text(max(0, now_ms - last.heartbeat_at_ms) / 1000)
        said = "" if last.details is None else f": {value_text(values.of(last.details), longest)}"
        yield f"heartbeat {ago} ago{said}"
    if last.losses:
        yield f"{last.losses} {'worker was' if last.losses == 1 else 'workers were'} lost while running it"


def attempt_fields(attempt: AttemptRecord, values: Values) -> dict[str, Any]:
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
        "input": values.of_input(attempt.input),
        "heartbeat_at": moment(attempt.heartbeat_at_ms),
        "details": None if attempt.details is None else values.of(attempt.details),
        "losses": attempt.losses,
    }
