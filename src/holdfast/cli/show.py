"""``holdfast show ID``: one instance with its steps, its messages, and the reason why it waits or how it ended."""

import datetime as dt
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import indent
from typing import Any, Final, TypeVar

import click
import msgspec
from rich.console import Console
from rich.text import Text

from holdfast.authoring.validation import checked_name
from holdfast.cli.console import (
    arguments_text,
    clipped,
    count_text,
    json_text,
    line_width,
    moment_text,
    print_aligned,
    print_line,
    safe,
    safe_lines,
    seconds_text,
    standard_output,
    state_text,
    status_text,
    value_text,
)
from holdfast.cli.explain import digits_text
from holdfast.cli.show_flow import RIGHT, NodeTable
from holdfast.cli.steps import LONGEST_NOTE, STEP_COLUMNS, Cells, step_fields, step_notes, step_rows
from holdfast.cli.store_option import read_store, require_instance
from holdfast.client.views.instances import (
    NEWEST,
    WHOLE,
    MessageView,
    SetAsideEvent,
    UpdateView,
    moment,
    short_failure,
)
from holdfast.client.views.obstacles import unrecorded_waits
from holdfast.client.views.report import InstanceReport, read_report
from holdfast.core.collation import MEANING, PADDING, Digit
from holdfast.core.flow.snapshot import version_of
from holdfast.core.lifecycle import InstanceState
from holdfast.core.updates import UpdateState
from holdfast.errors import InstanceNotFound
from holdfast.payloads.failures import RecordedFailure
from holdfast.storage.contract import Store
from holdfast.storage.records import InstanceNumber, InstanceRecord

LONGEST_RESULT: Final = 10_000
MOST_LINES: Final = 10
"""Unread messages, updates, and events set aside that are printed for people."""
INDENT: Final = " " * 8
OPEN_UPDATES: Final = (UpdateState.ASKED, UpdateState.ACCEPTED)
STEP_TABLE: Final = ("at", "step", *STEP_COLUMNS)
ENDED_EARLY: Final = (InstanceState.TERMINATED, InstanceState.CANCELLED)
T = TypeVar("T")


def show(  # noqa: PLR0917 - the options of the command
    instance_id: str,
    number: int | None = None,
    execution: int | None = None,
    whole: bool = False,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Show one instance: its steps with their attempts and ledgers, and what it waits for or how it ended."""
    checked_name(instance_id, "an instance")

    async def read(opened: Store) -> InstanceReport:
        record = await _find(opened, instance_id, number)
        return await read_report(opened, record, is_whole=whole, with_outputs=as_json, number=execution)

    report = read_store(store, read)
    if as_json:
        click.echo(json_text(_fields(report)))
    else:
        _Printer(report, standard_output(is_whole=whole)).print()


async def _find(store: Store, instance_id: str, number: int | None) -> InstanceRecord:
    if number is None:
        return await require_instance(store, instance_id)
    checked = number if 0 <= number < NEWEST else 0  # the first instance has number 1
    record = await store.read_instance(InstanceNumber(checked))
    if record is None or record.id != instance_id:
        raise InstanceNotFound(f"no instance has the id {instance_id!r} and the number {number}")
    return record


def _fields(report: InstanceReport) -> dict[str, Any]:
    """The JSON of the command: the description, the steps, and the outcome."""
    record = report.record
    described = report.described
    fields: dict[str, Any] = {
        "id": record.id,
        "number": record.number,
        "earlier": report.earlier,
        "superseded_at": moment(record.superseded_at_ms),
        **{
            name: value
            for name, value in msgspec.structs.asdict(described).items()
            if name not in ("attempts", "steps")
        },
        "status": described.state,  # deprecated name of `state`
        "steps": [step_fields(step, report.values) for step in report.execution.steps],
    }
    if report.execution.flow is not None:
        fields["flow"] = version_of(report.execution.events)
        fields["nodes"] = NodeTable(report, report.execution.flow).fields()
    if (failure := report.failure) is not None:
        fields["failure"] = msgspec.to_builtins(failure)
    elif record.state in ENDED_EARLY and report.execution.is_newest:
        fields["reason"] = report.reason
    elif report.outcome is not None:
        fields["result"] = WHOLE.of(report.outcome)
    return fields


class _Printer:
    """Prints a report for people, section by section."""

    def __init__(self, report: InstanceReport, console: Console) -> None:
        self._report = report
        self._described = report.described
        self._record = report.record
        self._console = console
        self._longest = sys.maxsize if report.values.is_whole else LONGEST_NOTE

    def print(self) -> None:
        record = self._record
        version = f" version {safe(record.version)}" if record.version else ""
        head = Text.assemble((safe(record.id), "bold cyan"), f"  {safe(record.workflow)}{version}  ")
        print_line(self._console, head + state_text(record.state))
        for line in (self._times(), *self._relations()):
            print_line(self._console, Text(line, "dim"))
        self._print_values()
        self._print_key()
        self._print_steps()
        self._print_messages()
        self._print_obstacles()
        self._print_end()

    def _line(self, label: str, style: str, text: str) -> None:
        """Prints a label and a value, cut at the width of the terminal."""
        console = self._console
        console.print(clipped(Text.assemble((f"{label} ", style), text), line_width(console)), soft_wrap=True)

    def _folded(self, label: str, style: str, text: str) -> None:
        """Prints a label and a sentence, folded at the width of the terminal."""
        print_line(self._console, Text.assemble((f"{label} ", style), text))

    def _note(self, text: str) -> None:
        print_line(self._console, Text(text, "dim"))

    # -------------------------------------------------------- the instance

    def _times(self) -> str:
        record = self._record
        turns = count_text(record.turn, "turn")
        if not self._report.execution.is_newest:
            return f"execution {record.execution} of {self._described.executions}, {turns}, continued as new"
        if record.execution > 1:
            turns = f"execution {record.execution}, {turns}"
        start = f"started {moment_text(record.created_at_ms)} UTC"
        if record.start_at_ms is not None and record.turn == 0 and record.execution == 1:
            start = (
                f"requested {moment_text(record.created_at_ms)} UTC, starts at {moment_text(record.start_at_ms)} UTC"
            )
        if record.closed_at_ms is not None:
            return f"{start}, took {seconds_text((record.closed_at_ms - record.created_at_ms) / 1000)}, {turns}"
        owner = "held by no worker" if record.owner is None else f"held by worker {safe(record.owner)}"
        deadline = self._described.deadline
        due = "" if deadline is None else f", deadline {deadline:%Y-%m-%d %H:%M:%S} UTC"
        lost = f", {count_text(record.losses, 'worker')} lost since its last turn" if record.losses else ""
        return f"{start}, {turns}, {owner}{due}{lost}"

    def _relations(self) -> Iterator[str]:
        """Other instances with the same id (G3), the parent, and the number of children."""
        record = self._record
        if record.superseded_at_ms is not None:
            when = moment_text(record.superseded_at_ms)
            yield f"an earlier instance, number {record.number}; a newer one has the id since {when} UTC"
        elif self._report.earlier:
            earlier = count_text(self._report.earlier, "earlier instance")
            yield f"{earlier} with this id: holdfast list has their numbers for show --number N"
        if (parent := self._report.relatives.parent) is not None:
            yield f"a child of {safe(parent.id)}, number {parent.child} of its execution {parent.execution}"
        if children := self._described.children:
            total = sum(children.values())
            counts = ", ".join(f"{count} {state}" for state, count in sorted(children.items()))
            yield f"{total} {'child' if total == 1 else 'children'}: {counts}"

    def _print_values(self) -> None:
        described = self._described
        if given := arguments_text(described.input, self._longest):
            self._line("input", "cyan", given)
        if described.custom_status is not None:
            self._line("status", "cyan", status_text(described.custom_status, self._longest))
        for name, value in sorted(described.attributes.items()):
            shown = value.isoformat() if isinstance(value, dt.datetime) else value
            self._line("attribute", "cyan", f"{safe(name)} = {value_text(shown, self._longest)}")
        for name, value in sorted(described.state_values.items()):
            self._line("state", "cyan", f"{safe(name)} = {value_text(value, self._longest)}")

    # -------------------------------------------------------- steps

    def _print_key(self) -> None:
        key = self._described.collation_key
        is_flow = self._report.execution.flow is not None
        if key:
            digits = digits_text(key) if is_flow else Text(key)
            print_line(self._console, Text.assemble(("key ", "dim"), digits, (f"  {_key_summary(key)}", "dim")))
        composite = self._described.composite_key
        if composite != key.rstrip(PADDING):
            shown = "has more children than this command reads" if composite is None else composite
            self._folded("with children", "dim", shown)

    def _print_steps(self) -> None:
        execution = self._report.execution
        if execution.flow is not None:
            rows, notes = NodeTable(self._report, execution.flow).rows()
            print_aligned(self._console, rows, right=RIGHT, below=self._below(notes))
        elif execution.steps:
            rows, notes = self._timeline()
            print_aligned(self._console, rows, right=(0, 2, 5), below=self._below(notes))

    def _timeline(self) -> tuple[list[Cells], dict[int, list[str]]]:
        """A row for each attempt and each other step, in the order in which they were scheduled; notes by row."""
        rows = [[Text(name) for name in STEP_TABLE]]
        notes: dict[int, list[str]] = {}
        for step in self._report.execution.steps:
            title = safe(step.title, LONGEST_NOTE)
            for at_ms, cells in step_rows(step, self._report.now_ms):
                rows.append([Text(self._offset(at_ms)), Text(title), *cells])
            notes[len(rows) - 1] = [*step_notes(step, self._report.values, self._report.now_ms)]
        return rows, notes

    def _offset(self, at_ms: int | None) -> str:
        """The time since the start of the instance."""
        return "" if at_ms is None else f"+{seconds_text(max(0, at_ms - self._record.created_at_ms) / 1000)}"

    def _below(self, notes: Mapping[int, Sequence[str]]) -> dict[int, list[Text]]:
        width = line_width(self._console)
        return {
            row: [clipped(Text(f"{INDENT}{note}", "dim"), width) for note in several] for row, several in notes.items()
        }

    # -------------------------------------------------------- messages and obstacles

    def _print_messages(self) -> None:
        """Open waits, events set aside, unread messages, and updates."""
        described = self._described
        waits = described.waiting_for
        if not waits and self._report.execution.is_newest:
            waits = unrecorded_waits(described.state, described.turn, described.obstacles)
        for wait in waits:
            self._folded("waits for", "yellow", safe(wait))
        set_aside = described.set_aside
        for event in set_aside[-MOST_LINES:]:
            self._folded("set aside", "bold red", self._set_aside_text(event))
        if len(set_aside) > MOST_LINES:
            self._note(f"and {len(set_aside) - MOST_LINES} older events were set aside: --json has them")
        mailbox = [message for message in described.mailbox if message.kind != "answer"]
        self._print_first(mailbox, "unread", "yellow", self._message_text)
        open_first = sorted(described.updates, key=lambda update: update.state not in OPEN_UPDATES)
        self._print_first(open_first, "update", "cyan", self._update_text)

    def _print_first(self, items: Sequence[T], label: str, style: str, text: Callable[[T], str]) -> None:
        for item in items[:MOST_LINES]:
            self._line(label, style, text(item))
        if len(items) > MOST_LINES:
            self._note(f"and {len(items) - MOST_LINES} more ({label}): --json has them")

    def _set_aside_text(self, event: SetAsideEvent) -> str:
        value = value_text(event.value, self._longest)
        to = "" if event.execution == self._record.execution else f" to execution {event.execution}"
        sent = f"sent{to} {event.received_at:%Y-%m-%d %H:%M:%S} UTC"
        return f"event {safe(event.name)}: {value}, {sent}; {safe(event.reason)}"

    def _message_text(self, message: MessageView) -> str:
        sent = "" if message.sent_at is None else f", sent {message.sent_at:%Y-%m-%d %H:%M:%S} UTC"
        subject = f"{message.kind} {safe(message.name)}"
        if message.kind == "event" and not message.is_awaited:
            subject = f"{subject} (no wait is open for it)"
        if message.kind == "cancel":
            subject = "request to cancel"
        return f"{subject}: {value_text(message.value, self._longest)}{sent}"

    def _update_text(self, update: UpdateView) -> str:
        call = safe(update.id)  # the name of a rejected update is not recorded
        if update.name:
            call = f"{safe(update.name)}({arguments_text(update.input, self._longest)})"
        call = f"{call} {safe(update.state)}"
        if update.failure is not None:
            return f"{call}: {safe(update.failure, self._longest)}"
        return call if update.result is None else f"{call} -> {value_text(update.result, self._longest)}"

    def _print_obstacles(self) -> None:
        described = self._described
        for obstacle in described.obstacles:
            self._folded("stuck", "bold red", safe(obstacle))
        if described.blocked is not None and described.state is InstanceState.BLOCKED:
            reason, _, trace = described.blocked.partition("\n")
            self._folded("blocked", "bold red", safe(reason))
            for line in safe_lines(trace, len(trace)).splitlines():
                self._console.print(clipped(Text(line, "dim"), line_width(self._console)), soft_wrap=True)
        for damage in described.damage:
            self._folded("damaged", "bold red", safe(damage))
        if described.damage:
            self._note("holdfast verify checks the whole store")

    # -------------------------------------------------------- the outcome

    def _print_end(self) -> None:
        report = self._report
        if (failure := report.failure) is not None:
            self._print_failure(failure)
        elif self._record.state in ENDED_EARLY and report.execution.is_newest:
            self._folded(self._record.state.lower(), "bold magenta", safe(report.reason or "without a reason"))
        elif report.outcome is not None:
            longest = len(report.outcome) if report.values.is_whole else LONGEST_RESULT
            result = safe(report.outcome.decode(errors="replace"), longest)
            self._console.print(Text.assemble(("result ", "bold green"), result), soft_wrap=True)

    def _print_failure(self, failure: RecordedFailure) -> None:
        """Prints the failure and its causes, outermost first, then the traceback of the innermost."""
        current: RecordedFailure | None = failure
        innermost = failure
        label = "failed"
        while current is not None:
            self._folded(label, "bold red", safe_lines(short_failure(current)))
            for note in current.notes:
                self._note(indent(safe_lines(note), "  "))
            for member in current.members:
                print_line(self._console, Text(f"  one of them: {safe(short_failure(member))}"))
            innermost = current
            current = current.cause
            label = "  because of"
        for line in safe_lines(innermost.traceback).splitlines():
            self._console.print(clipped(Text(line, "dim"), line_width(self._console)), soft_wrap=True)


def _key_summary(key: str) -> str:
    """The number of steps at each digit, in words."""
    counts = {digit: key.count(digit.character) for digit in Digit if digit is not Digit.NOT_USED}
    return ", ".join(f"{count} {MEANING[digit]}" for digit, count in counts.items() if count)
