"""``holdfast show ID``: one instance, its timeline, and what it waits for or how it ended."""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any, Final

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
    state_text,
    value_text,
)
from holdfast.cli.explain import digits_text
from holdfast.cli.show_flow import RIGHT, NodeReport, node_fields, node_rows, read_nodes
from holdfast.cli.steps import (
    InstanceSteps,
    StepReport,
    StepState,
    attempt_fields,
    attempt_seconds,
    failure_of_attempt,
    read_steps_of,
    step_notes,
)
from holdfast.cli.store_option import open_read_only
from holdfast.client.views.flows import node_waits, read_composite
from holdfast.client.views.instances import (
    NEWEST,
    WHOLE,
    MessageView,
    SetAsideEvent,
    UpdateView,
    Values,
    moment,
    read_key,
    short_failure,
)
from holdfast.client.views.obstacles import read_obstacles, unrecorded_waits
from holdfast.client.views.report import Details, Story, read_details
from holdfast.core.collation import MEANING, PADDING, Digit
from holdfast.core.flow.snapshot import version_of
from holdfast.core.history import ExecutionCancelled, InstanceCancelled, InstanceTerminated, Payload
from holdfast.core.ledger import DIGITS
from holdfast.core.lifecycle import InstanceState
from holdfast.core.updates import UpdateState
from holdfast.errors import InstanceNotFound, StoreError
from holdfast.payloads.failures import Failure
from holdfast.storage.contract import Store
from holdfast.storage.records import InstanceId, InstanceNumber, InstanceRecord, ParentAndChildren

LONGEST_NOTE: Final = 200
LONGEST_RESULT: Final = 10_000
MOST_LINES: Final = 10
"""Unread messages, and updates, that are shown for people."""
INDENT: Final = " " * 8
OPEN_UPDATES: Final = (UpdateState.ASKED, UpdateState.ACCEPTED)
_payload = msgspec.json.Decoder(Payload)
_failure = msgspec.json.Decoder(Failure)


@dataclass(frozen=True, slots=True)
class InstanceReport:
    """Everything the command tells about an instance."""

    picture: InstanceSteps
    details: Details
    key: str
    waiting_for: list[str]
    outcome: bytes | None
    now_ms: int
    earlier: int
    """How many instances had the id before."""
    damage: list[str]
    deadline_at_ms: int | None
    family: ParentAndChildren
    nodes: NodeReport | None
    """Of a flow."""
    composite: str | None
    obstacles: Sequence[str]
    """Why nothing moves."""

    @property
    def failure(self) -> Failure | None:
        """How the workflow failed, if it did."""
        if self.picture.record.state is not InstanceState.FAILED or self.outcome is None:
            return None
        try:
            return _failure.decode(self.outcome)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Failure(type="unreadable", message="the stored failure cannot be decoded")

    @property
    def reason(self) -> str | None:
        """Why it was terminated or cancelled, if that was said."""
        for event in reversed(self.picture.events):
            if isinstance(event, InstanceTerminated | ExecutionCancelled | InstanceCancelled):
                return event.reason or None
        return None


def show(
    instance_id: str,
    number: int | None = None,
    whole: bool = False,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Show one instance: its steps with their attempts and ledgers, and what it waits for or how it ended."""
    shown = asyncio.run(_read(instance_id, number, store, is_whole=whole, with_outputs=as_json))
    if as_json:
        click.echo(json_text(_fields(shown)))
    else:
        _print(shown, Console(highlight=False, width=sys.maxsize if whole else None))


async def _read(
    instance_id: str, number: int | None, store: str | None, *, is_whole: bool, with_outputs: bool
) -> InstanceReport:
    named = InstanceId(checked_name(instance_id, "an instance"))
    opened = open_read_only(store)
    try:
        found = await _find(opened, named, number)
        earlier = 0 if found.superseded_at_ms is not None else await opened.count_earlier(named)
        picture = await read_steps_of(opened, found)
        record = picture.record
        damage = [*picture.damage]
        attempts = [attempt for step in picture.steps for attempt in step.attempts]
        story = Story([(0, event) for event in picture.events], picture.flow, damage)
        details = await read_details(opened, record, story, attempts, is_whole=is_whole)
        nodes = await read_nodes(opened, picture, details.values, with_outputs=with_outputs or is_whole)
        key, waiting_for = read_key(picture.events)
        composite: str | None = key
        stored_key = await opened.read_key(record.number)
        if nodes is not None:
            key, waiting_for = stored_key or "", node_waits(nodes.reading)
            composite = await _composite(opened, record, nodes, key, damage)
        elif stored_key is not None:  # of a flow before its first turn, or one whose history cannot be read
            key, composite = stored_key, stored_key.rstrip(PADDING)
        limit = await opened.read_deadline(record.number)
        return InstanceReport(
            picture=picture,
            details=details,
            key=key,
            waiting_for=waiting_for if record.closed_at_ms is None else [],
            outcome=await _outcome(opened, record, damage),
            now_ms=opened.now_ms(),
            earlier=earlier,
            damage=damage,
            deadline_at_ms=None if limit is None else limit.at_ms,
            family=await opened.read_relatives(record.number),
            nodes=nodes,
            composite=composite,
            obstacles=await read_obstacles(opened, record, attempts),
        )
    finally:
        await opened.close()


async def _composite(
    store: Store, record: InstanceRecord, nodes: NodeReport, key: str, damage: list[str]
) -> str | None:
    try:
        return await read_composite(store, record, nodes.reading, key)
    except StoreError as error:  # of a child
        damage.append(str(error))
        return key.rstrip(PADDING)


async def _outcome(store: Store, record: InstanceRecord, damage: list[str]) -> bytes | None:
    """How the instance ended, as JSON."""
    if record.outcome is None:
        return None
    try:
        payload = _payload.decode(record.outcome)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        damage.append(f"its outcome cannot be decoded: {str(error)[:LONGEST_NOTE]}")
        return None
    if not payload.reference:
        return bytes(payload.data)
    return (await store.read_payloads(record.number, [payload.reference])).get(payload.reference)


async def _find(store: Store, named: InstanceId, number: int | None) -> InstanceRecord:
    if number is None:
        record = await store.find_instance(named)
    else:
        checked = number if 0 <= number < NEWEST else 0  # numbers begin with 1
        record = await store.read_instance(InstanceNumber(checked))
    if record is None or record.id != named:
        which = "" if number is None else f" and the number {number}"
        raise InstanceNotFound(f"no instance has the id {named!r}{which}")
    return record


# ---------------------------------------------------------------- for people


def _print(shown: InstanceReport, console: Console) -> None:
    record = shown.picture.record
    version = f" version {safe(record.version)}" if record.version else ""
    head = Text.assemble((safe(record.id), "bold cyan"), f"  {safe(record.workflow)}{version}  ")
    print_line(console, head + state_text(record.state))
    print_line(console, Text(_times(shown), "dim"))
    if note := _others(shown):
        print_line(console, Text(note, "dim"))
    for relatives in _family_lines(shown.family):
        print_line(console, Text(relatives, "dim"))
    _print_values(shown, console)
    _print_steps(shown, console)
    _print_waits(shown, console)
    _print_end(shown, console)


def _print_values(shown: InstanceReport, console: Console) -> None:
    """What it was given, and what its code says and keeps."""
    values = shown.details.values
    given = arguments_text(values.of_input(shown.picture.record.input), _longest(shown))
    if given:
        _line(console, ("input ", "cyan"), given)
    if shown.details.custom_status is not None:
        status = shown.details.custom_status
        said = safe(status, _longest(shown)) if isinstance(status, str) else value_text(status, _longest(shown))
        _line(console, ("says ", "cyan"), said)
    for key, value in sorted(shown.details.state_values.items()):
        _line(console, ("state ", "cyan"), f"{safe(key)} = {value_text(value, _longest(shown))}")


def _print_waits(shown: InstanceReport, console: Console) -> None:
    """What it waits for, what waits for it, and why nothing moves."""
    record = shown.picture.record
    for waiting in shown.waiting_for or unrecorded_waits(record.state, record.turn, shown.obstacles):
        print_line(console, Text.assemble(("waits for ", "yellow"), safe(waiting)))
    for aside in shown.details.set_aside[-MOST_LINES:]:
        print_line(console, Text.assemble(("set aside ", "bold red"), _aside_text(aside, shown)))
    if len(shown.details.set_aside) > MOST_LINES:
        older = f"and {len(shown.details.set_aside) - MOST_LINES} older events were set aside: --json has them"
        print_line(console, Text(older, "dim"))
    mailbox = [message for message in shown.details.mailbox if message.kind != "answer"]
    for message in mailbox[:MOST_LINES]:
        _line(console, ("unread ", "yellow"), _message_text(message, shown))
    if len(mailbox) > MOST_LINES:
        print_line(console, Text(f"and {len(mailbox) - MOST_LINES} unread more: --json has them", "dim"))
    open_first = sorted(shown.details.updates, key=lambda update: update.state not in OPEN_UPDATES)
    for update in open_first[:MOST_LINES]:
        _line(console, ("update ", "cyan"), _update_text(update, shown))
    if len(open_first) > MOST_LINES:
        print_line(console, Text(f"and {len(open_first) - MOST_LINES} updates more: --json has them", "dim"))
    for obstacle in shown.obstacles:
        print_line(console, Text.assemble(("stuck ", "bold red"), safe(obstacle)))
    if record.blocked is not None and record.state is InstanceState.BLOCKED:
        print_line(console, Text.assemble(("blocked ", "bold red"), safe(record.blocked)))
    for damage in shown.damage:
        print_line(console, Text.assemble(("damaged ", "bold red"), safe(damage)))
    if shown.damage:
        print_line(console, Text("holdfast verify checks the whole store", "dim"))


def _print_end(shown: InstanceReport, console: Console) -> None:
    """How it ended."""
    record = shown.picture.record
    if (failure := shown.failure) is not None:
        for line in _failure_lines(failure):
            print_line(console, line)
        for code in safe_lines(_innermost(failure).traceback).splitlines():
            _line(console, (code, "dim"))
    elif record.state in (InstanceState.TERMINATED, InstanceState.CANCELLED):
        said = f"{record.state.lower()} "
        print_line(console, Text.assemble((said, "bold magenta"), safe(shown.reason or "without a reason")))
    elif shown.outcome is not None:
        longest = len(shown.outcome) if shown.details.values.is_whole else LONGEST_RESULT
        text = safe(shown.outcome.decode(errors="replace"), longest)
        console.print(Text.assemble(("result ", "bold green"), text), soft_wrap=True)


def _longest(shown: InstanceReport) -> int:
    return sys.maxsize if shown.details.values.is_whole else LONGEST_NOTE


def _line(console: Console, label: tuple[str, str], text: str = "") -> None:
    """A label and a value in one line of the terminal."""
    console.print(clipped(Text.assemble(label, text), line_width(console)), soft_wrap=True)


def _message_text(message: MessageView, shown: InstanceReport) -> str:
    sent = "" if message.sent_at is None else f", sent {message.sent_at:%Y-%m-%d %H:%M:%S} UTC"
    value = value_text(message.value, _longest(shown))
    match message.kind:
        case "event":
            lost = "" if message.is_awaited else " (no wait is open for it)"
            return f"event {safe(message.name)}{lost}: {value}{sent}"
        case "cancel":
            return f"request to cancel: {value}{sent}"
        case _:
            return f"{message.kind} {safe(message.name)}: {value}{sent}"


def _aside_text(aside: SetAsideEvent, shown: InstanceReport) -> str:
    value = value_text(aside.value, _longest(shown))
    where = "" if aside.execution == shown.picture.record.execution else f" to execution {aside.execution}"
    sent = f"sent{where} {aside.received_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"event {safe(aside.name)}: {value}, {sent}; {safe(aside.reason)}"


def _update_text(update: UpdateView, shown: InstanceReport) -> str:
    given = arguments_text(update.input, _longest(shown)) if update.name else ""
    called = f"{safe(update.name or update.id)}({given}) {safe(update.state)}"
    if update.failure is not None:
        return f"{called}: {safe(update.failure, _longest(shown))}"
    return called if update.result is None else f"{called} -> {value_text(update.result, _longest(shown))}"


def _print_steps(shown: InstanceReport, console: Console) -> None:
    """The key, and what its digits stand for: the nodes of a flow, or the steps of code."""
    nodes = shown.nodes
    if shown.key:
        key = Text(shown.key) if nodes is None else digits_text(shown.key)
        console.print(Text.assemble(("key ", "dim"), key, (f"  {_key_words(shown.key)}", "dim")), soft_wrap=True)
    if nodes is not None:
        if shown.composite != shown.key.rstrip(PADDING):
            composite = "of more children than are read here" if shown.composite is None else shown.composite
            console.print(Text.assemble(("with children ", "dim"), composite), soft_wrap=True)
        rows, notes = node_rows(nodes)
        print_aligned(console, rows, right=RIGHT, below=_below(notes, console))
    elif shown.picture.steps:
        rows, notes = _timeline(shown)
        print_aligned(console, rows, right=(0, 2, 5), below=_below(notes, console))


def _below(notes: Mapping[int, Sequence[str]], console: Console) -> dict[int, list[Text]]:
    """Notes as lines under their rows."""
    width = line_width(console)
    return {row: [clipped(Text(f"{INDENT}{note}", "dim"), width) for note in said] for row, said in notes.items()}


def _times(shown: InstanceReport) -> str:
    record = shown.picture.record
    turns = count_text(record.turn, "turn")
    if record.execution > 1:
        turns = f"execution {record.execution}, {turns}"
    began = f"started {moment_text(record.created_at_ms)} UTC"
    if record.closed_at_ms is None:
        owner = "nobody has it in memory" if record.owner is None else f"worker {safe(record.owner)} has it"
        due = "" if shown.deadline_at_ms is None else f", deadline {moment_text(shown.deadline_at_ms)} UTC"
        lost = f", {count_text(record.losses, 'worker')} lost since its last turn" if record.losses else ""
        return f"{began}, {turns}, {owner}{due}{lost}"
    return f"{began}, took {seconds_text((record.closed_at_ms - record.created_at_ms) / 1000)}, {turns}"


def _others(shown: InstanceReport) -> str:
    """G3: that the id had other instances before, or has a newer one."""
    record = shown.picture.record
    if record.superseded_at_ms is not None:
        when = moment_text(record.superseded_at_ms)
        return f"an earlier instance, number {record.number}; the id was given to a new one at {when} UTC"
    if not shown.earlier:
        return ""
    had = "one earlier instance" if shown.earlier == 1 else f"{shown.earlier} earlier instances"
    return f"the id had {had}; holdfast list has their numbers, show --number N tells of one"


def _family_lines(family: ParentAndChildren) -> Iterator[str]:
    """Whose child it is, and how many it has, of all its executions."""
    if (parent := family.parent) is not None:
        yield f"a child of {safe(parent.id)}, number {parent.child} of its execution {parent.execution}"
    if family.children:
        counts = ", ".join(f"{count} {state}" for state, count in sorted(family.children.items()))
        total = sum(family.children.values())
        yield f"{total} {'child' if total == 1 else 'children'}: {counts}"


def _key_words(key: str) -> str:
    """The key in words: how many steps are at which digit."""
    counts = {digit: key.count(digit.character) for digit in Digit if digit is not Digit.NOT_USED}
    return ", ".join(f"{count} {MEANING[digit]}" for digit, count in counts.items() if count)


def _timeline(shown: InstanceReport) -> tuple[list[list[Text]], dict[int, list[str]]]:
    """A row for every attempt and every other step, in the order in which the steps were scheduled. Notes by row."""
    rows = [[Text(name) for name in ("at", "step", "attempt", "state", "ledger", "took", "")]]
    notes: dict[int, list[str]] = {}
    for step in shown.picture.steps:
        rows += _attempt_rows(step, shown) if step.kind == "activity" else [_step_row(step, shown)]
        notes[len(rows) - 1] = [*step_notes(step, shown.details.values, shown.now_ms)]
    return rows, notes


def _step_row(step: StepReport, shown: InstanceReport) -> list[Text]:
    began_ms = shown.picture.record.created_at_ms
    if step.child is not None:
        return _child_row(step, step.child, shown)
    due = "" if step.due_at_ms is None else f"due {moment_text(step.due_at_ms)} UTC"
    at = "" if step.ended_at_ms is None else _offset(step.ended_at_ms - began_ms)
    state = Text(step.status_text, "yellow" if step.state is StepState.OPEN else "dim")
    return [Text(at), Text(safe(step.title, LONGEST_NOTE)), Text(), state, Text(), Text(), Text(due, "dim")]


def _child_row(step: StepReport, child: InstanceRecord, shown: InstanceReport) -> list[Text]:
    at = Text(_offset(child.created_at_ms - shown.picture.record.created_at_ms))
    end_ms = shown.now_ms if child.closed_at_ms is None else child.closed_at_ms
    took = Text(seconds_text(max(0, end_ms - child.created_at_ms) / 1000))
    title, state = Text(safe(step.title, LONGEST_NOTE)), state_text(child.state)
    return [at, title, Text(), state, Text(), took, Text(safe(child.id), "cyan")]


def _attempt_rows(step: StepReport, shown: InstanceReport) -> list[list[Text]]:
    began_ms = shown.picture.record.created_at_ms
    rows: list[list[Text]] = []
    for attempt in step.attempts:
        seconds = attempt_seconds(attempt, shown.now_ms)
        failure = failure_of_attempt(attempt)
        note = "" if failure is None else safe(short_failure(failure), LONGEST_NOTE)
        if attempt.started_at_ms is None and attempt.available_at_ms > shown.now_ms:
            note = f"from {moment_text(attempt.available_at_ms)} UTC"
        start_ms = attempt.scheduled_at_ms if attempt.started_at_ms is None else attempt.started_at_ms
        rows.append(
            [
                Text(_offset(start_ms - began_ms)),
                Text(safe(step.name)),
                Text(str(attempt.key.attempt)),
                state_text(attempt.state),
                Text(f"{attempt.ledger:0{DIGITS}d}", "dim"),
                Text("" if seconds is None else seconds_text(seconds)),
                Text(note, "red" if failure is not None else "dim"),
            ]
        )
    return rows


def _offset(milliseconds: int) -> str:
    return f"+{seconds_text(max(0, milliseconds) / 1000)}"


def _innermost(failure: Failure) -> Failure:
    while failure.cause is not None:
        failure = failure.cause
    return failure


def _failure_lines(failure: Failure) -> Iterator[Text]:
    """The failure and its causes, outermost first."""
    current: Failure | None = failure
    label = "failed "
    while current is not None:
        yield Text.assemble((label, "bold red"), safe_lines(short_failure(current)))
        for note in current.notes:
            yield Text(indent(safe_lines(note), "  "), "dim")
        for member in current.members:
            yield Text(f"  one of them: {safe(short_failure(member))}")
        current = current.cause
        label = "  because of "


# ---------------------------------------------------------------- for programs


def _fields(shown: InstanceReport) -> dict[str, Any]:
    record = shown.picture.record
    fields: dict[str, Any] = {
        "id": record.id,
        "number": record.number,
        "earlier": shown.earlier,
        "superseded_at": moment(record.superseded_at_ms),
        "workflow": record.workflow,
        "version": record.version,
        "state": record.state,
        "status": record.state,  # its former name, in this release only
        "execution": record.execution,
        "turn": record.turn,
        "collation_key": shown.key,
        "composite_key": shown.composite,
        "created_at": moment(record.created_at_ms),
        "closed_at": moment(record.closed_at_ms),
        "deadline": moment(shown.deadline_at_ms),
        "waiting_for": shown.waiting_for,
        "obstacles": [*shown.obstacles],
        "set_aside": shown.details.set_aside,
        "blocked": record.blocked,
        "custom_status": shown.details.custom_status,
        "input": shown.details.values.of_input(record.input),
        "state_values": shown.details.state_values,
        "mailbox": shown.details.mailbox,
        "updates": shown.details.updates,
        "losses": record.losses,
        "damage": shown.damage,
        "parent": None if shown.family.parent is None else shown.family.parent.id,
        "children": dict(shown.family.children),
        "steps": [_step_fields(step, shown.details.values) for step in shown.picture.steps],
    }
    if shown.nodes is not None:
        fields["flow"] = version_of(shown.picture.events)
        fields["nodes"] = node_fields(shown.nodes)
    if (failure := shown.failure) is not None:
        fields["failure"] = msgspec.to_builtins(failure)
    elif record.state in (InstanceState.TERMINATED, InstanceState.CANCELLED):
        fields["reason"] = shown.reason
    elif shown.outcome is not None:
        fields["result"] = WHOLE.of(shown.outcome)
    return fields


def _step_fields(step: StepReport, values: Values) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": step.kind, "number": step.number}
    if step.node:
        fields |= {"node": step.node, "dimension": step.dimension}
    if step.state is StepState.DONE and step.outcome is not None:
        fields["result"] = values.of_payload(step.outcome)
    if step.kind == "timer":
        return {**fields, "state": step.status_text, "due_at": moment(step.due_at_ms)}
    if step.kind == "child":
        state = step.status_text if step.child is None else step.child.state
        return {**fields, "name": step.name, "id": step.id, "state": state, "ended_at": moment(step.ended_at_ms)}
    if step.kind != "activity":
        return {**fields, "name": step.name, "state": step.status_text, "ended_at": moment(step.ended_at_ms)}
    return {
        **fields,
        "name": step.name,
        "state": step.state,
        "attempts": [attempt_fields(attempt, values) for attempt in step.attempts],
    }
