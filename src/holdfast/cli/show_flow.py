"""The nodes of a flow in the output of ``holdfast show``: a row for each, in the order of the graph, with its digit."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from rich.text import Text

from holdfast.cli.console import count_text, safe, state_text
from holdfast.cli.explain import STYLES
from holdfast.cli.steps import (
    LONGEST_NOTE,
    STEP_COLUMNS,
    Cells,
    attempt_fields,
    child_state,
    ledger_digits,
    ledger_text,
    step_notes,
    step_rows,
)
from holdfast.client.views.instances import moment, short_failure, stored_failure
from holdfast.client.views.report import InstanceReport
from holdfast.client.views.steps import StepReport, StepState
from holdfast.core.collation import MEANING, OPEN, Digit, shown_place
from holdfast.core.flow.definition import CycleAction, RunAction
from holdfast.core.flow.snapshot import FlowSnapshot, NodeSnapshot, is_in
from holdfast.core.ledger import SEED
from holdfast.core.lifecycle import AttemptState
from holdfast.flows.labels import detail_of, hold_label, kind_of
from holdfast.payloads.failures import RecordedFailure

NODE_COLUMNS: Final = ("key", "", "node", "does", "round", *STEP_COLUMNS)
RIGHT: Final = (0, 5, 8)
ROUND: Final = 4
LONGEST_VALUE: Final = 60
LONGEST_DETAIL: Final = 40
MOST_ROWS: Final = 10
"""Rows of one node. Of more attempts, waits and children those that are open or failed come first."""
MOST_NOTES: Final = 4
"""Notes below one node."""


class NodeTable:
    """The nodes of one instance, as rows for people and as JSON."""

    def __init__(self, report: InstanceReport, flow: FlowSnapshot) -> None:
        self._report = report
        self._flow = flow
        self._is_open = report.record.closed_at_ms is None

    def rows(self) -> tuple[list[Cells], dict[int, list[str]]]:
        """A row for each node and one for each further attempt, wait and child; and notes by row."""
        rows = [[Text(name) for name in NODE_COLUMNS]]
        notes: dict[int, list[str]] = {}
        for node in self._flow.in_order():
            rows += self._node_rows(node)
            notes[len(rows) - 1] = self._notes(node)
        if all(not row[ROUND] for row in rows[1:]):
            rows[0][ROUND] = Text()
        return rows, notes

    def fields(self) -> list[dict[str, Any]]:
        """The nodes for programs, in the order of the graph."""
        return [self._fields(node) for node in self._flow.in_order()]

    def _all_steps(self, node: NodeSnapshot) -> list[StepReport]:
        return [step for step in self._report.execution.steps if step.recorded.node == node.node.id]

    def _current_steps(self, node: NodeSnapshot) -> list[StepReport]:
        """The steps of the node in its current round."""
        return [step for step in self._all_steps(node) if is_in(step.recorded.dimension, node.dimension)]

    def _is_requested(self, node: NodeSnapshot) -> bool:
        """A3: an activity that waits for its dependencies has an attempt that is not stored."""
        return self._is_open and node.digit is Digit.PENDING and isinstance(node.node.action, RunAction)

    def _failure(self, node: NodeSnapshot) -> RecordedFailure | None:
        data = None if node.failure is None else self._report.node_values.data(node.failure)
        return None if data is None else stored_failure(data)

    def _notes(self, node: NodeSnapshot) -> list[str]:
        values = self._report.values
        now_ms = self._report.now_ms
        notes = [
            note for step in self._current_steps(node) for note in step_notes(step, values, now_ms, with_result=False)
        ]
        if len(notes) > MOST_NOTES:
            notes[MOST_NOTES:] = [f"and {len(notes) - MOST_NOTES} more: --json has all"]
        return notes

    def _node_rows(self, node: NodeSnapshot) -> Iterator[Cells]:
        style = STYLES[node.digit]
        beginning = [
            Text(node.digit.character, style),
            Text(f"{MEANING[node.digit]}{', caught' if node.caught else ''}", style),
            Text(safe(node.node.id), "bold"),
            Text(safe(_does(node), LONGEST_DETAIL), "dim"),
        ]
        rows = self._step_rows(node)
        note = self._node_note(node)
        without_note = next((row for row in reversed(rows) if not row[-1]), None)
        if without_note is not None:
            without_note[-1] = note
        elif note and note.plain not in [row[-1].plain for row in rows]:
            rows[-1][-1] = Text.assemble(rows[-1][-1], "  ", note)
        yield [*beginning, *rows[0]]
        for row in rows[1:]:
            yield [Text(), Text(), Text(), Text(), *row]

    def _step_rows(self, node: NodeSnapshot) -> list[Cells]:
        """The cells from the column `round` on: at least one row."""
        steps = self._current_steps(node)
        if not steps and self._is_requested(node):
            state = state_text(AttemptState.REQUESTED)
            return [[_round(node.dimension), Text("1"), state, ledger_text(SEED), Text(), Text()]]
        rows: list[tuple[bool, Cells]] = []
        for step in steps:
            comes_last = step.state not in (StepState.OPEN, StepState.FAILED)
            place = _round(step.recorded.dimension)
            rows += [(comes_last, [place, *cells]) for _, cells in step_rows(step, self._report.now_ms, with_kind=True)]
        if len(rows) > MOST_ROWS:
            rows.sort(key=lambda row: row[0])
            rest = Text(f"and {len(rows) - MOST_ROWS} more: {_counts(steps)}; --json has all", "dim")
            rows[MOST_ROWS:] = [(True, [Text(), Text(), Text(), Text(), Text(), rest])]
        return [row for _, row in rows] or [[_round(node.dimension), Text(), Text(), Text(), Text(), Text()]]

    def _node_note(self, node: NodeSnapshot) -> Text:
        """The output or failure of a node, or the nodes that it waits for."""
        if node.digit is Digit.PENDING and self._is_open:
            sources = [after.source for after in node.node.after if self._flow.nodes[after.source].digit in OPEN]
            return Text(f"after {', '.join(map(safe, sources))}", "dim")
        if node.digit is Digit.ERRORED:
            failure = self._failure(node)
            return Text("cancelled" if failure is None else safe(short_failure(failure), LONGEST_NOTE), "red")
        if node.held is not None:
            data = self._report.node_values.data(node.held)
            value = "a large value" if data is None else safe(data.decode(errors="replace"), LONGEST_VALUE)
            return Text("held" if data == b"null" else f"held: {value}", "yellow")
        if isinstance(node.node.action, CycleAction) and node.rounds:
            return Text(f"repeated {count_text(node.rounds, 'time')}", "dim")
        if node.digit not in (Digit.COMPLETED, Digit.RELEASED) or node.output is None:
            return Text()
        data = self._report.node_values.data(node.output)
        if data is None:
            return Text("a large value", "dim")
        return Text("" if data == b"null" else safe(data.decode(errors="replace"), LONGEST_VALUE), "dim")

    def _fields(self, node: NodeSnapshot) -> dict[str, Any]:
        steps = self._all_steps(node)
        output = None if node.output is None else self._report.node_values.data(node.output)
        held = None if node.held is None else self._report.node_values.data(node.held)
        failure = self._failure(node)
        attempts = [
            {
                **attempt_fields(attempt, self._report.values, step.notes.get(attempt.key, ())),
                "dimension": step.recorded.dimension,
            }
            for step in steps
            for attempt in step.attempts
        ]
        if self._is_requested(node):
            requested = {"attempt": 1, "state": AttemptState.REQUESTED, "ledger": ledger_digits(SEED)}
            attempts.append({**requested, "dimension": node.dimension})
        fields: dict[str, Any] = {
            "id": node.node.id,
            "kind": kind_of(node.node.action),
            "does": _does(node),
            "after": [after.source for after in node.node.after],
            "digit": int(node.digit),
            "meaning": MEANING[node.digit],
            "dimension": node.dimension,
            "caught": node.caught,
            "output": None if output is None else msgspec.Raw(output),
            "held": node.held is not None,
            "held_output": None if held is None else msgspec.Raw(held),
            "failure": None if failure is None else short_failure(failure),
            "attempts": attempts,
            "waits": [_wait_fields(step) for step in steps if step.recorded.kind in ("timer", "event")],
            "children": [_child_fields(step) for step in steps if step.recorded.kind == "child"],
        }
        return fields if node.count is None else {**fields, "items": node.count}


def _does(node: NodeSnapshot) -> str:
    """What a node does, in a few words, with its hold."""
    hold = hold_label(node.node.hold)
    detail = detail_of(node.node.action)
    return f"{detail}, {hold}" if hold else detail


def _wait_fields(step: StepReport) -> dict[str, Any]:
    recorded = step.recorded
    return {
        "kind": recorded.kind,
        "name": recorded.name,
        "state": step.state_word,
        "due_at": moment(recorded.due_at_ms),
        "dimension": recorded.dimension,
    }


def _child_fields(step: StepReport) -> dict[str, Any]:
    recorded = step.recorded
    return {
        "id": recorded.id,
        "workflow": recorded.name,
        "state": child_state(step),
        "dimension": recorded.dimension,
    }


def _counts(steps: Iterable[StepReport]) -> str:
    return ", ".join(f"{count} {word}" for word, count in Counter(step.state_word for step in steps).items())


def _round(dimension: str) -> Text:
    """K8: the item of a fan-out, and the round unless it is the first."""
    return Text(shown_place("", dimension).strip(), "dim")
