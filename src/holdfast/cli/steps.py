"""The steps of an instance in the output of ``holdfast show``: table cells, notes below a row, and JSON."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from rich.text import Text

from holdfast.cli.console import (
    LONGEST,
    arguments_text,
    count_text,
    moment_text,
    safe,
    seconds_text,
    state_text,
    value_text,
)
from holdfast.client.views.instances import Values, attempt_view, is_external, moment, note_view, short_failure
from holdfast.client.views.steps import StepReport, StepState, attempt_seconds, failure_of
from holdfast.core.ledger import DIGITS
from holdfast.core.lifecycle import AttemptState
from holdfast.core.pauses import WITHHELD_MS
from holdfast.storage.records import AttemptRecord, InstanceRecord, NoteRow

STEP_COLUMNS: Final = ("attempt", "state", "ledger", "took", "")
LONGEST_NOTE: Final = 200
LONGEST_CALL: Final = 60
"""Characters of arguments and a result that share a line."""
MOST_NOTES: Final = 3
"""Notes of executors that are printed below a step."""
_OF_VIEW_ONLY: Final = ("activity", "number", "node", "dimension")
"""Fields of an `AttemptView` that the JSON of its step has already."""

Cells = list[Text]


def step_rows(step: StepReport, now_ms: int, *, with_kind: bool = False) -> Iterator[tuple[int | None, Cells]]:
    """The cells of `STEP_COLUMNS`, a row for each attempt of an activity or for the step, and the time of each row."""
    recorded = step.recorded
    if recorded.kind == "activity":
        for attempt in step.attempts:
            yield _attempt_row(attempt, now_ms)
    elif step.child is not None:
        took = Text(seconds_text(_age_seconds(step.child, now_ms)))
        yield (
            step.child.created_at_ms,
            [Text(), state_text(step.child.state), Text(), took, Text(safe(step.child.id), "cyan")],
        )
    else:
        word = f"{recorded.kind} {step.state_word}" if with_kind else step.state_word
        state = Text(word, "yellow" if step.state is StepState.OPEN else "dim")
        due = "" if recorded.due_at_ms is None else f"due {moment_text(recorded.due_at_ms)} UTC"
        yield recorded.ended_at_ms, [Text(), state, Text(), Text(), Text(due or safe(recorded.id), "dim")]


def _attempt_row(attempt: AttemptRecord, now_ms: int) -> tuple[int, Cells]:
    seconds = attempt_seconds(attempt, now_ms)
    failure = failure_of(attempt)
    note = Text("" if failure is None else safe(short_failure(failure), LONGEST_NOTE), "red")
    if attempt.is_withheld:
        note = Text("held by the pause", "dim") if failure is None else note
    elif attempt.started_at_ms is None and now_ms < attempt.available_at_ms < WITHHELD_MS:
        note = Text(f"from {moment_text(attempt.available_at_ms)} UTC", "dim")
    elif attempt.state is AttemptState.READY and is_external(attempt):
        note = Text(f"for an executor of queue {safe(attempt.queue)}", "dim")
    cells = [
        Text(str(attempt.key.attempt)),
        state_text(attempt.state),
        ledger_text(attempt.ledger),
        Text("" if seconds is None else seconds_text(seconds)),
        note,
    ]
    return attempt.scheduled_at_ms if attempt.started_at_ms is None else attempt.started_at_ms, cells


def ledger_text(ledger: int) -> Text:
    return Text(ledger_digits(ledger), "dim")


def ledger_digits(ledger: int) -> str:
    return f"{ledger:0{DIGITS}d}"


def _age_seconds(child: InstanceRecord, now_ms: int) -> float:
    end_ms = now_ms if child.closed_at_ms is None else child.closed_at_ms
    return max(0, end_ms - child.created_at_ms) / 1000


def step_notes(step: StepReport, values: Values, now_ms: int, *, with_result: bool = True) -> Iterator[str]:
    """The lines below a step: its arguments and result, the last heartbeat, lost workers, and notes of executors."""
    longest = sys.maxsize if values.is_whole else LONGEST
    last = step.attempts[-1] if step.attempts else None
    arguments = "" if last is None else arguments_text(values.of_input(last.input), longest)
    result = ""
    if with_result and step.state is StepState.DONE and step.recorded.outcome is not None:
        result = value_text(values.of_payload(step.recorded.outcome), longest)
    if arguments and result and len(arguments) + len(result) > LONGEST_CALL:
        yield arguments
        yield f"-> {result}"
    elif arguments not in ("", "null") or result not in ("", "null"):
        yield f"{arguments} -> {result}".lstrip() if result else arguments
    if last is None:
        return
    has_heartbeat = last.details is not None or (last.heartbeat_at_ms or 0) > (last.started_at_ms or 0)
    if has_heartbeat and last.heartbeat_at_ms is not None and last.closed_at_ms is None:
        ago = seconds_text(max(0, now_ms - last.heartbeat_at_ms) / 1000)
        details = "" if last.details is None else f": {value_text(values.of(last.details), longest)}"
        yield f"heartbeat {ago} ago{details}"
    if last.losses:
        yield f"{count_text(last.losses, 'worker')} lost while running it"
    if last.cancel_requested_at_ms is not None and last.closed_at_ms is None:
        yield f"its cancel was requested {seconds_text(max(0, now_ms - last.cancel_requested_at_ms) / 1000)} ago"
    yield from _notes_of(step, values, longest)


def _notes_of(step: StepReport, values: Values, longest: int) -> Iterator[str]:
    """The newest notes of executors, and the number of those before them."""
    notes = [(attempt.key.attempt, note) for attempt in step.attempts for note in step.notes.get(attempt.key, ())]
    shown = notes if values.is_whole else notes[-MOST_NOTES:]
    if len(shown) < len(notes):
        yield f"{count_text(len(notes) - len(shown), 'older note')}: --json has them"
    for number, note in shown:
        view = note_view(note, values)
        source = "" if view.source is None else f" by {safe(view.source, LONGEST_CALL)}"
        when = moment_text(note.inserted_at_ms)
        yield f"note on attempt {number}{source} {when} UTC: {value_text(view.value, longest)}"


# ---------------------------------------------------------------- JSON


def step_fields(step: StepReport, values: Values) -> dict[str, Any]:
    recorded = step.recorded
    fields: dict[str, Any] = {"kind": recorded.kind, "number": recorded.number}
    if recorded.node:
        fields |= {"node": recorded.node, "dimension": recorded.dimension}
    if step.state is StepState.DONE and recorded.outcome is not None:
        fields["result"] = values.of_payload(recorded.outcome)
    match recorded.kind:
        case "timer":
            return {**fields, "state": step.state_word, "due_at": moment(recorded.due_at_ms)}
        case "activity":
            attempts = [attempt_fields(attempt, values, step.notes.get(attempt.key, ())) for attempt in step.attempts]
            return {**fields, "name": recorded.name, "state": step.state, "attempts": attempts}
        case "child":
            fields |= {"name": recorded.name, "id": recorded.id, "state": child_state(step)}
        case _:
            fields |= {"name": recorded.name, "state": step.state_word}
    return {**fields, "ended_at": moment(recorded.ended_at_ms)}


def child_state(step: StepReport) -> str:
    """The state of the child's instance, or that of the step if there is none."""
    return step.state_word if step.child is None else step.child.state


def attempt_fields(attempt: AttemptRecord, values: Values, notes: Iterable[NoteRow] = ()) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(attempt_view(attempt, values, notes))
    fields["notes"] = [msgspec.structs.asdict(note) for note in fields["notes"]]
    for name in _OF_VIEW_ONLY:
        del fields[name]
    return {**fields, "ledger": ledger_digits(attempt.ledger)}
