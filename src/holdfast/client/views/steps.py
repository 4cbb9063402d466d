"""The steps of one execution, each with its attempts or its child.

`holdfast run`, `show` and `describe()` show the same steps, from one reading of the history.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from holdfast.client.views.instances import EPOCH, SetAsideEvent, StepView, Values, moment, stored_failure
from holdfast.core import history as ev
from holdfast.core.collation import shown_place
from holdfast.core.history import HistoryEvent, pairs_set_aside
from holdfast.core.lifecycle import AttemptState
from holdfast.core.steps import ERRORED, RecordedStep
from holdfast.payloads.failures import RecordedFailure
from holdfast.storage.records import AttemptKey, AttemptRecord, InstanceRecord, NoteRow


class StepState(StrEnum):
    """Where a step is."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


STATES_BY_END: Final[Mapping[type[object], StepState]] = {
    ev.ActivityCompleted: StepState.DONE,
    ev.ActivityFailed: StepState.FAILED,
    ev.TimerFired: StepState.DONE,
    ev.EventReceived: StepState.DONE,
    ev.ChildCompleted: StepState.DONE,
    ev.ChildFailed: StepState.FAILED,
    ev.ChildRefused: StepState.FAILED,
}
"""The state of a step by the event that ended it; every other event cancels it."""
_DONE_WORDS: Final = {"timer": "fired", "event": "received"}
_WORDS: Final = {StepState.OPEN: "waiting", StepState.FAILED: "failed", StepState.CANCELLED: "cancelled"}


@dataclass(frozen=True, slots=True)
class StepReport:
    """A recorded step with the rows that belong to it."""

    recorded: RecordedStep
    state: StepState
    attempts: Sequence[AttemptRecord] = ()
    """Of an activity, oldest first."""
    child: InstanceRecord | None = None
    notes: Mapping[AttemptKey, Sequence[NoteRow]] = field(default_factory=dict[AttemptKey, Sequence[NoteRow]])
    """Of its attempts that have any (A7)."""

    @property
    def title(self) -> str:
        """The name of the step in a list: in a flow its node with round and item, and its name if that differs."""
        step = self.recorded
        if step.node:
            place = shown_place(step.node, step.dimension)
            if step.kind == "timer":
                return f"{place} (timer)"
            return place if step.name == step.node else f"{place} ({step.name})"
        if step.kind == "activity":
            return step.name
        return f"{step.kind} {step.number if step.kind == 'timer' else step.name}"

    @property
    def state_word(self) -> str:
        """The state in the word for its kind of step: a timer is fired, an event received."""
        return _DONE_WORDS.get(self.recorded.kind, "done") if self.state is StepState.DONE else _WORDS[self.state]

    @property
    def failure(self) -> RecordedFailure | None:
        """The failure of the newest attempt that failed."""
        failures = (failure_of(attempt) for attempt in reversed(self.attempts))
        return next((failure for failure in failures if failure is not None), None)


def join_steps(
    recorded: Iterable[RecordedStep],
    attempts: Iterable[AttemptRecord],
    children: Mapping[int, InstanceRecord] | None = None,
    *,
    is_closed: bool = False,
    notes: Iterable[NoteRow] = (),
) -> list[StepReport]:
    """The steps in their order, each with its attempts or its child (by the number of the step)."""
    by_activity: dict[int, list[AttemptRecord]] = {}
    for attempt in attempts:
        by_activity.setdefault(attempt.key.activity, []).append(attempt)
    by_attempt: dict[AttemptKey, list[NoteRow]] = {}
    for note in notes:
        by_attempt.setdefault(note.key, []).append(note)
    reports: list[StepReport] = []
    for step in recorded:
        state = _state(step)
        if step.kind == "activity":
            tries = by_activity.get(step.number, ())
            noted = {attempt.key: by_attempt[attempt.key] for attempt in tries if attempt.key in by_attempt}
            reports.append(StepReport(step, state, tries, notes=noted))
            continue
        child = (children or {}).get(step.number) if step.kind == "child" else None
        if step.kind == "child" and child is None and state is StepState.OPEN and is_closed:
            state = StepState.CANCELLED  # its id was taken, and the instance ended before it learned that
        reports.append(StepReport(step, state, child=child))
    return reports


def _state(step: RecordedStep) -> StepState:
    if step.is_open:
        return StepState.OPEN
    return StepState.CANCELLED if step.ended_by is None else STATES_BY_END.get(step.ended_by, StepState.CANCELLED)


def failure_of(attempt: AttemptRecord) -> RecordedFailure | None:
    """The failure of an attempt, if it failed."""
    return None if attempt.failure is None else stored_failure(attempt.failure)


def attempt_seconds(attempt: AttemptRecord, now_ms: int) -> float | None:
    """The running time of an attempt up to its end, or up to now."""
    if attempt.started_at_ms is None:
        return None
    end_ms = attempt.closed_at_ms
    if end_ms is None:
        if attempt.state not in (AttemptState.RUNNING, AttemptState.CANCELLED_RUNNING):
            return None
        end_ms = now_ms
    return max(0, end_ms - attempt.started_at_ms) / 1000


def waits_for(step: RecordedStep) -> str:
    """An open step in words."""
    if step.due_at_ms is not None:
        due_at = moment(step.due_at_ms)
        due = f"{step.due_at_ms} ms" if due_at is None else f"{due_at:%Y-%m-%d %H:%M:%S} UTC"
        return f"timer {step.number}, due {due}"
    return f"{step.kind} {step.name} {step.id}".rstrip()


def step_view(step: RecordedStep, values: Values) -> StepView:
    has_failed = step.digit == ERRORED
    return StepView(
        kind=step.kind,
        number=step.number,
        name=step.name,
        is_open=step.is_open,
        result=None if has_failed or step.outcome is None else values.of_payload(step.outcome),
        failure=values.failure_text(step.outcome) if has_failed and step.outcome is not None else None,
        due_at=moment(step.due_at_ms),
        ended_at=moment(step.ended_at_ms),
        id=step.id,
        node=step.node,
        dimension=step.dimension,
    )


def set_aside_views(execution: int, events: list[HistoryEvent], values: Values) -> list[SetAsideEvent]:
    """The events that an execution set aside, oldest first."""
    return [
        SetAsideEvent(
            name=event.name,
            id=received.id,
            execution=execution,
            reason=event.reason,
            received_at=moment(received.time_ms) or EPOCH,
            value=values.of_payload(received.value),
        )
        for received, event in pairs_set_aside(events)
    ]
