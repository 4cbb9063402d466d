"""``holdfast history``: the events of an instance, printed or exported. ``holdfast watch``: its changes."""

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import click
import msgspec
from rich.text import Text

from holdfast.authoring.registry import Registry
from holdfast.authoring.validation import checked_integer, checked_name
from holdfast.cli.console import (
    STATE_STYLES,
    arguments_text,
    count_text,
    json_text,
    moment_text,
    print_aligned,
    print_line,
    print_message,
    safe,
    standard_output,
    status_text,
    value_text,
)
from holdfast.cli.exits import EXIT_NEGATIVE
from holdfast.cli.explain import LONGEST_KEY, digits_text
from holdfast.cli.store_option import read_store, require_instance, use_client
from holdfast.client.client import Client
from holdfast.client.views.history import Change
from holdfast.client.views.instances import event_fields, short_failure
from holdfast.client.views.report import InstanceReport, read_report
from holdfast.core import history as ev
from holdfast.core.collation import MEANING, PADDING, Digit
from holdfast.core.history import ActivityScheduled, HistoryEvent, Payload
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import UsageError
from holdfast.payloads.failures import RecordedFailure
from holdfast.runtime.platform import Platform
from holdfast.runtime.session import StoreSession
from holdfast.storage.contract import OpenableStore, Store
from holdfast.storage.large_payloads import inline

LONGEST_NOTE: Final = 200


def history(  # noqa: PLR0917 - the options of the command
    instance_id: str,
    limit: int | None = None,
    export: str | None = None,
    execution: int | None = None,
    whole: bool = False,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Show the history of an instance, or export it so that tests can replay it."""
    checked_name(instance_id, "an instance")
    if export is not None or as_json:
        if limit is not None:
            raise UsageError("--export and --json have the whole history; leave out --limit")
        _export(instance_id, store, export, execution, as_json=as_json)
        return
    newest = sys.maxsize if limit is None else checked_integer(limit, "--limit", least=1)

    async def read(opened: Store) -> InstanceReport:
        record = await require_instance(opened, instance_id)
        return await read_report(opened, record, is_whole=whole, number=execution)

    _print(read_store(store, read), newest)


def _export(instance_id: str, store: str | None, path: str | None, execution: int | None, *, as_json: bool) -> None:
    """Writes the exported history to a file, to standard output, or to both."""

    async def read(opened: OpenableStore) -> str:
        session = StoreSession(opened, Platform())
        session.use_open_store()
        client = Client(session, Registry())
        return await client.get(instance_id).export_history(execution)

    text = read_store(store, read)
    if path is not None:
        try:
            Path(path).write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"{path[:LONGEST_NOTE]!r} cannot be written: {error}") from error
    if as_json:
        click.echo(text, nl=False)


def _print(report: InstanceReport, newest: int) -> None:
    values = report.values
    console = standard_output(is_whole=values.is_whole)
    longest = sys.maxsize if values.is_whole else LONGEST_NOTE
    inputs = {attempt.key.activity: values.of_input(attempt.input) for attempt in report.execution.attempts}
    events = [inline(event, values.payloads) for event in report.execution.events]
    left_out = max(0, len(events) - newest)
    rows = [[Text(name) for name in ("step", "time (UTC)", "event", "")]]
    for number, event in enumerate(events[left_out:], left_out):
        fields = event_fields(event)
        kind = fields.pop("event")
        time_ms = fields.pop("time_ms", None)
        describe = DESCRIBED.get(type(event))
        note = _fields(fields) if describe is None else describe(event)
        if isinstance(event, ActivityScheduled) and (arguments := inputs.get(event.activity)):
            note = f"{note}  input=({arguments_text(arguments, longest)})"
        time = Text("" if time_ms is None else moment_text(time_ms), "dim")
        rows.append([Text(str(number)), time, Text(safe(kind), "cyan"), Text(safe(note, longest))])
    print_aligned(console, rows, right=(0,))
    if left_out:
        print_line(console, Text(f"the newest {newest} of {len(events):,} events; --limit N shows more", "dim"))
    for message in report.described.mailbox:
        line = Text.assemble(("unread ", "yellow"), f"{message.kind} {safe(message.name)}: ")
        print_line(console, line.append(value_text(message.value, longest)))
    for damage in report.described.damage:
        print_line(console, Text.assemble(("damaged ", "bold red"), safe(damage)))


def _fields(fields: dict[str, Any]) -> str:
    if (due_at_ms := fields.pop("due_at_ms", None)) is not None:
        fields["due"] = f"{moment_text(due_at_ms)} UTC"
    return "  ".join(f"{name}={_short(name, value)}" for name, value in fields.items() if value != "")


def _short(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        is_payload = fields.keys() <= {"data", "reference"}
        if is_payload and "reference" in fields:
            return "(large: --whole)"
        value = fields.get("data") if is_payload else fields
    if name == "failure":
        with suppress(msgspec.ValidationError):
            return short_failure(msgspec.convert(value, RecordedFailure))
    return msgspec.json.encode(value).decode()


# ---------------------------------------------------------------- the events of flows, in words


def _advanced(event: ev.FlowAdvanced) -> str:
    """The digits that moved. The numbers of edges are left out: they mean nothing without the graph."""
    changes = [f"{node} {MEANING[Digit(int(digit))]}" for node, digit in event.digits.items()]
    changes += [f"the failure of {node} was caught" for node in event.caught]
    changes += [f"{node} will fail: {why}" for node, why in event.unclear.items()]
    return ", ".join(changes or ["edges were decided"])


def _fields_of(payload: Payload) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(payload))
    return fields or {"data": None}


def _failed(event: ev.NodeFailed) -> str:
    return f"{event.node}: {_short('failure', _fields_of(event.failure))}"


def _completed(event: ev.NodeCompleted) -> str:
    place = event.node if event.item < 0 else f"{event.node}[{event.item}]"
    return f"{place}: {_short('output', _fields_of(event.output))}"


def _released(event: ev.NodeReleased) -> str:
    return event.node if event.output is None else f"{event.node}: {_short('output', _fields_of(event.output))}"


def _began(event: ev.FanOutStarted) -> str:
    if event.stream:
        return f"{event.node}: an item for each response of {event.stream}"
    return f"{event.node}: {count_text(event.count, 'item')}{'' if event.items is None else ', not all at once'}"


def _restarted(event: ev.CycleRestarted) -> str:
    return f"{event.node}: {event.target} and the nodes after it run again; round {event.round}"


DESCRIBED: Final[dict[type[HistoryEvent], Callable[[Any], str]]] = {
    ev.FlowAdvanced: _advanced,
    ev.NodeFailed: _failed,
    ev.NodeCompleted: _completed,
    ev.NodeReleased: _released,
    ev.FanOutStarted: _began,
    ev.CycleRestarted: _restarted,
}

ADVANCED: Final = "flow_advanced"
"""The event that moves digits, which the key of the same line shows."""


def watch(instance_id: str, store: str | None = None, as_json: bool = False) -> None:
    """Show an instance and every change of it until it ends; as JSON a line for each."""
    console = standard_output()

    async def follow(client: Client) -> InstanceState | None:
        state: InstanceState | None = None
        async for change in client.get(instance_id).watch():
            if as_json:
                click.echo(json_text(change, indented=False))
            else:
                print_line(console, _change_line(change))
            state = change.state
        return state

    last = use_client(store, follow)
    if last is not InstanceState.COMPLETED:
        print_message(f"{safe(instance_id)} is {last}")
        raise SystemExit(EXIT_NEGATIVE)


def _change_line(change: Change) -> Text:
    line = Text(f"{change.at:%H:%M:%S.%f}"[:-3], "dim")
    line.append("  ").append(change.state, STATE_STYLES.get(change.state, ""))
    if change.execution > 1:
        line.append(f"  execution {change.execution}")
    line.append(f"  turn {change.turn}", "dim")
    is_flow = change.collation_key is not None
    if change.collation_key is not None:
        line.append("  ").append_text(digits_text(change.collation_key.rstrip(PADDING), LONGEST_KEY))
    if change.last_event is not None and not (is_flow and change.last_event == ADVANCED):
        line.append(f"  {change.last_event.replace('_', ' ')}")
    if change.custom_status is not None:
        line.append(f"  {status_text(change.custom_status)}", "cyan")
    if change.blocked is not None:
        line.append(f"  {safe(change.blocked)}", "red")
    return line
