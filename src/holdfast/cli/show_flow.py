"""The nodes of a flow as ``holdfast show`` tells them: a row for each, in the order of the graph, with its digit."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from rich.text import Text

from holdfast.cli.console import moment_text, safe, seconds_text, state_text
from holdfast.cli.explain import STYLES
from holdfast.cli.steps import (
    InstanceSteps,
    StepReport,
    StepState,
    attempt_fields,
    attempt_seconds,
    failure_of_attempt,
    step_notes,
)
from holdfast.client.views.instances import Values, moment, short_failure
from holdfast.core.collation import MEANING, OPEN, Digit, shown_place
from holdfast.core.flow.definition import CycleAction, RunAction
from holdfast.core.flow.snapshot import FlowSnapshot, NodeSnapshot, is_in
from holdfast.core.history import Payload
from holdfast.core.ledger import DIGITS, SEED
from holdfast.core.lifecycle import AttemptState
from holdfast.flows.labels import detail_of, kind_of
from holdfast.payloads.failures import Failure
from holdfast.storage.contract import Store
from holdfast.storage.records import AttemptRecord

HEADER: Final = ("key", "", "node", "does", "round", "attempt", "state", "ledger", "took", "")
RIGHT: Final = (0, 5, 8)
LONGEST_VALUE: Final = 60
LONGEST_FAILURE: Final = 160
LONGEST_DETAIL: Final = 40
MOST_ROWS: Final = 10
"""Of one node: of more attempts, waits and children those that are open or failed go first."""
MOST_NOTES: Final = 4
"""Lines below one node: arguments, heartbeats, lost workers."""
ROUND: Final = 4

_failure = msgspec.json.Decoder(Failure)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The nodes of one instance, with what belongs to them."""

    reading: FlowSnapshot
    picture: InstanceSteps
    payloads: Mapping[str, bytes]
    now_ms: int
    values: Values

    @property
    def is_open(self) -> bool:
        return self.picture.record.closed_at_ms is None

    def steps(self, node: NodeSnapshot) -> list[StepReport]:
        """What a node did in the round in which it is."""
        return [step for step in self.all_steps(node) if is_in(step.dimension, node.dimension)]

    def all_steps(self, node: NodeSnapshot) -> list[StepReport]:
        """What a node did in all rounds."""
        return [step for step in self.picture.steps if step.node == node.node.id]

    def data_of(self, payload: Payload) -> bytes | None:
        """What a payload holds; None if it is kept aside, and was not asked for."""
        return self.payloads.get(payload.reference) if payload.reference else bytes(payload.data)

    def failure_of(self, node: NodeSnapshot) -> Failure | None:
        data = None if node.failure is None else self.data_of(node.failure)
        if data is None:
            return None
        try:
            return _failure.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Failure(type="unreadable", message="the stored failure cannot be decoded")


async def read_nodes(store: Store, picture: InstanceSteps, values: Values, *, with_outputs: bool) -> NodeReport | None:
    """The nodes, if it is a flow. Large outputs only where they are asked for."""
    reading = picture.flow
    if reading is None:
        return None
    payloads = [node.failure for node in reading.nodes.values()]
    if with_outputs:
        payloads += [node.output for node in reading.nodes.values()]
    named = {payload.reference for payload in payloads if payload is not None} - {""}
    found = await store.read_payloads(picture.record.number, named) if named else {}
    return NodeReport(reading, picture, found, store.now_ms(), values)


# ---------------------------------------------------------------- for people


def node_rows(nodes: NodeReport) -> tuple[list[list[Text]], dict[int, list[str]]]:
    """A row for each node; further rows for its further attempts, waits and children. And notes, by row."""
    rows = [[Text(name) for name in HEADER]]
    notes: dict[int, list[str]] = {}
    for node in nodes.reading.in_order():
        rows += _rows_of(node, nodes)
        said = [
            note
            for step in nodes.steps(node)
            for note in step_notes(step, nodes.values, nodes.now_ms, with_result=False)
        ]
        if len(said) > MOST_NOTES:
            said[MOST_NOTES:] = [f"and {len(said) - MOST_NOTES} more: --json has all"]
        notes[len(rows) - 1] = said
    if all(not row[ROUND] for row in rows[1:]):
        rows[0][ROUND] = Text()
    return rows, notes


def _rows_of(node: NodeSnapshot, nodes: NodeReport) -> Iterator[list[Text]]:
    style = STYLES[node.digit]
    beginning = [
        Text(node.digit.character, style),
        Text(f"{MEANING[node.digit]}{', caught' if node.caught else ''}", style),
        Text(safe(node.node.id), "bold"),
        Text(safe(detail_of(node.node.action), LONGEST_DETAIL), "dim"),
    ]
    details = _details(node, nodes)
    free, note = next((row for row in reversed(details) if not row[-1]), None), _note(node, nodes)
    if free is not None:
        free[-1] = note
    elif note and note.plain not in [row[-1].plain for row in details]:  # an attempt has said it
        details[-1][-1] = Text.assemble(details[-1][-1], "  ", note)
    yield [*beginning, *details.pop(0)]
    for detail in details:
        yield [Text(), Text(), Text(), Text(), *detail]


def _details(node: NodeSnapshot, nodes: NodeReport) -> list[list[Text]]:
    """The columns behind the node: one row at least."""
    steps = nodes.steps(node)
    if not steps and nodes.is_open and node.digit is Digit.PENDING and isinstance(node.node.action, RunAction):
        ledger = Text(f"{SEED:0{DIGITS}d}", "dim")
        return [[_round(node.dimension), Text("1"), state_text(AttemptState.REQUESTED), ledger, Text(), Text()]]
    rows: list[tuple[bool, list[Text]]] = []
    for step in steps:
        is_calm = step.state not in (StepState.OPEN, StepState.FAILED)
        rows += [(is_calm, row) for row in _step_rows(step, nodes)]
    if len(rows) > MOST_ROWS:
        rows.sort(key=lambda row: row[0])
        left = len(rows) - MOST_ROWS
        rest = Text(f"and {left} more: {_counts(steps)}; --json has all", "dim")
        rows[MOST_ROWS:] = [(True, [Text(), Text(), Text(), Text(), Text(), rest])]
    return [row for _, row in rows] or [[_round(node.dimension), Text(), Text(), Text(), Text(), Text()]]


def _counts(steps: Iterable[StepReport]) -> str:
    counts: dict[str, int] = {}
    for step in steps:
        counts[step.status_text] = counts.get(step.status_text, 0) + 1
    return ", ".join(f"{count} {said}" for said, count in counts.items())


def _step_rows(step: StepReport, nodes: NodeReport) -> Iterator[list[Text]]:
    where = _round(step.dimension)
    if step.kind == "activity":
        for attempt in step.attempts:
            yield [where, *_attempt_columns(attempt, nodes.now_ms)]
    elif step.child is not None:
        end_ms = nodes.now_ms if step.child.closed_at_ms is None else step.child.closed_at_ms
        took = Text(seconds_text(max(0, end_ms - step.child.created_at_ms) / 1000))
        yield [where, Text(), state_text(step.child.state), Text(), took, Text(safe(step.id), "cyan")]
    else:
        due = "" if step.due_at_ms is None else f"due {moment_text(step.due_at_ms)} UTC"
        state = Text(f"{step.kind} {step.status_text}", "yellow" if step.state is StepState.OPEN else "dim")
        yield [where, Text(), state, Text(), Text(), Text(due or safe(step.id), "dim")]


def _attempt_columns(attempt: AttemptRecord, now_ms: int) -> list[Text]:
    seconds = attempt_seconds(attempt, now_ms)
    failure = failure_of_attempt(attempt)
    note = Text("" if failure is None else safe(short_failure(failure), LONGEST_FAILURE), "red")
    if attempt.started_at_ms is None and attempt.available_at_ms > now_ms:
        note = Text(f"from {moment_text(attempt.available_at_ms)} UTC", "dim")
    return [
        Text(str(attempt.key.attempt)),
        state_text(attempt.state),
        Text(f"{attempt.ledger:0{DIGITS}d}", "dim"),
        Text("" if seconds is None else seconds_text(seconds)),
        note,
    ]


def _round(dimension: str) -> Text:
    """K8: the item of a fan-out, and the round where it is not the first."""
    return Text(shown_place("", dimension).strip(), "dim")


def _note(node: NodeSnapshot, nodes: NodeReport) -> Text:
    """What came of it, or what it waits for."""
    if node.digit is Digit.PENDING and nodes.is_open:
        waited = [after.source for after in node.node.after if nodes.reading.nodes[after.source].digit in OPEN]
        return Text(f"after {', '.join(map(safe, waited))}", "dim")
    if node.digit is Digit.ERRORED:
        failure = nodes.failure_of(node)
        return Text("cancelled" if failure is None else safe(short_failure(failure), LONGEST_FAILURE), "red")
    if isinstance(node.node.action, CycleAction) and node.rounds:
        return Text(f"went round {node.rounds} {'time' if node.rounds == 1 else 'times'}", "dim")
    if node.digit not in (Digit.COMPLETED, Digit.RELEASED) or node.output is None:
        return Text()
    data = nodes.data_of(node.output)
    if data is None:
        return Text("a large value", "dim")
    return Text("" if data == b"null" else safe(data.decode(errors="replace"), LONGEST_VALUE), "dim")


# ---------------------------------------------------------------- for programs


def node_fields(nodes: NodeReport) -> list[dict[str, Any]]:
    """Everything about the nodes, in the order of the graph."""
    return [_fields_of(node, nodes) for node in nodes.reading.in_order()]


def _fields_of(node: NodeSnapshot, nodes: NodeReport) -> dict[str, Any]:
    steps = nodes.all_steps(node)
    output = None if node.output is None else nodes.data_of(node.output)
    failure = nodes.failure_of(node)
    fields: dict[str, Any] = {
        "id": node.node.id,
        "kind": kind_of(node.node.action),
        "does": detail_of(node.node.action),
        "after": [after.source for after in node.node.after],
        "digit": int(node.digit),
        "meaning": MEANING[node.digit],
        "dimension": node.dimension,
        "caught": node.caught,
        "output": None if output is None else msgspec.Raw(output),
        "failure": None if failure is None else short_failure(failure),
        "attempts": [
            {**attempt_fields(attempt, nodes.values), "dimension": step.dimension}
            for step in steps
            for attempt in step.attempts
        ],
        "waits": [
            {
                "kind": step.kind,
                "name": step.name,
                "state": step.status_text,
                "due_at": moment(step.due_at_ms),
                "dimension": step.dimension,
            }
            for step in steps
            if step.kind in ("timer", "event")
        ],
        "children": [
            {
                "id": step.id,
                "workflow": step.name,
                "state": step.status_text if step.child is None else step.child.state,
                "dimension": step.dimension,
            }
            for step in steps
            if step.kind == "child"
        ],
    }
    if node.count is not None:
        fields["items"] = node.count
    if nodes.is_open and node.digit is Digit.PENDING and isinstance(node.node.action, RunAction):
        requested = {"attempt": 1, "state": AttemptState.REQUESTED, "ledger": f"{SEED:0{DIGITS}d}"}
        fields["attempts"].append({**requested, "dimension": node.dimension})
    return fields
