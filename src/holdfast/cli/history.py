"""``holdfast history ID``: what happened to an instance, event by event, or its export to be replayed by tests.

``holdfast watch ID``: the changes of an instance as they are committed, until it is closed.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import click
import msgspec
from rich.console import Console
from rich.text import Text

from holdfast.authoring.registry import Registry
from holdfast.authoring.validation import checked_integer, checked_name
from holdfast.cli.console import (
    STATE_STYLES,
    arguments_text,
    json_text,
    moment_text,
    print_aligned,
    print_line,
    safe,
    value_text,
)
from holdfast.cli.exits import EXIT_BAD_NEWS
from holdfast.cli.explain import LONGEST_KEY, digits_text
from holdfast.cli.store_option import StoreName, connected, existing_store, open_read_only
from holdfast.client.client import Client
from holdfast.client.views.history import Change
from holdfast.client.views.instances import short_failure
from holdfast.client.views.report import Details, read_details, read_story, repaired
from holdfast.core import history as ev
from holdfast.core.collation import MEANING, PADDING, Digit
from holdfast.core.history import ActivityScheduled, HistoryEvent, Payload, encode_event, payloads_of
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import InstanceNotFound, UsageError
from holdfast.payloads.failures import Failure
from holdfast.runtime.platform import Platform
from holdfast.runtime.session import StoreSession
from holdfast.storage.large_payloads import inline
from holdfast.storage.records import InstanceId

LONGEST_NOTE: Final = 200


@dataclass(frozen=True, slots=True)
class Shown:
    """What the command tells about the history of an instance."""

    events: Sequence[HistoryEvent]
    inputs: Mapping[int, Any]
    """The arguments of activities, which are stored with their attempts."""
    details: Details
    damage: Sequence[str]


def history(  # noqa: PLR0917 - the options of the command
    instance_id: str,
    limit: int | None = None,
    export: str | None = None,
    whole: bool = False,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Show the history of an instance, or export it so that tests can replay it."""
    checked_name(instance_id, "an instance")
    if export is None and not as_json:
        newest = sys.maxsize if limit is None else checked_integer(limit, "--limit", least=1)
        _print(asyncio.run(_read(InstanceId(instance_id), store, is_whole=whole)), newest)
        return
    if limit is not None:
        raise UsageError("--export and --json have the whole history; leave out --limit")
    text = asyncio.run(_export(instance_id, store))
    if export is not None:
        try:
            Path(export).write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"{export[:LONGEST_NOTE]!r} cannot be written: {error}") from error
    if as_json:
        click.echo(text, nl=False)


async def _export(instance_id: str, store: str | None) -> str:
    opened = open_read_only(store)
    session = StoreSession(opened, Platform())
    session.use_open_store()
    try:
        return await Client(session, Registry()).get(instance_id).export_history()
    finally:
        await opened.close()


async def _read(instance_id: InstanceId, store: str | None, *, is_whole: bool) -> Shown:
    """As far as it can be read."""
    opened = open_read_only(store)
    try:
        found = await opened.find_instance(instance_id)
        if found is None:
            raise InstanceNotFound(f"no instance has the id {instance_id!r}")
        record, damage = repaired(found)
        story = await read_story(opened, record)
        attempts = [repaired(each)[0] for each in await opened.read_attempts(record.number, record.execution)]
        details = await read_details(opened, record, story, attempts, is_whole=is_whole)
        inputs = {attempt.key.activity: details.values.of_input(attempt.input) for attempt in attempts}
        named = {payload.reference for event in story.events for payload in payloads_of(event)} - {""}
        payloads = await opened.read_payloads(record.number, named) if is_whole else {}
        events = [inline(event, payloads) for event in story.events]
        return Shown(events, inputs, details, [*damage, *story.damage])
    finally:
        await opened.close()


def _print(shown: Shown, newest: int) -> None:
    is_whole = shown.details.values.is_whole
    console = Console(highlight=False, width=sys.maxsize if is_whole else None)
    longest = sys.maxsize if is_whole else LONGEST_NOTE
    rows = [[Text(name) for name in ("step", "time (UTC)", "event", "")]]
    left_out = max(0, len(shown.events) - newest)
    for number, event in enumerate(shown.events[left_out:], left_out):
        fields: dict[str, Any] = msgspec.json.decode(encode_event(event))
        kind, time_ms = fields.pop("event"), fields.pop("time_ms", None)
        said = _SAID.get(type(event))
        notes = _fields(fields) if said is None else said(event)
        if isinstance(event, ActivityScheduled) and (given := shown.inputs.get(event.activity)):
            notes = f"{notes}  input=({arguments_text(given, longest)})"
        rows.append(
            [
                Text(str(number)),
                Text("" if time_ms is None else moment_text(time_ms), "dim"),
                Text(safe(kind), "cyan"),
                Text(safe(notes, longest)),
            ]
        )
    print_aligned(console, rows, right=(0,))
    if left_out:
        print_line(console, Text(f"the newest {newest} of {len(shown.events):,}: --limit", "dim"))
    for message in shown.details.mailbox:
        line = Text.assemble(("unread ", "yellow"), f"{message.kind} {safe(message.name)}: ")
        print_line(console, line.append(value_text(message.value, longest)))
    for damage in shown.damage:
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
            return short_failure(msgspec.convert(value, Failure))
    return msgspec.json.encode(value).decode()


# ---------------------------------------------------------------- what flows record, in words


def _advanced(event: ev.FlowAdvanced) -> str:
    """The digits that moved. The numbers of edges say nothing without the graph."""
    said = [f"{node} {MEANING[Digit(int(digit))]}" for node, digit in event.digits.items()]
    said += [f"the failure of {node} was caught" for node in event.caught]
    said += [f"{node} will fail: {why}" for node, why in event.unclear.items()]
    return ", ".join(said or ["edges were decided"])


def _fields_of(payload: Payload) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(payload))
    return fields or {"data": None}


def _failed(event: ev.NodeFailed) -> str:
    return f"{event.node}: {_short('failure', _fields_of(event.failure))}"


def _completed(event: ev.NodeCompleted) -> str:
    return f"{event.node}: {_short('output', _fields_of(event.output))}"


def _began(event: ev.FanOutStarted) -> str:
    count = "1 item" if event.count == 1 else f"{event.count} items"
    return f"{event.node}: {count}{'' if event.items is None else ', not all at once'}"


def _restarted(event: ev.CycleRestarted) -> str:
    return f"{event.node}: {event.target}, and what is behind it, runs again; round {event.round}"


_SAID: Final[dict[type[HistoryEvent], Callable[[Any], str]]] = {
    ev.FlowAdvanced: _advanced,
    ev.NodeFailed: _failed,
    ev.NodeCompleted: _completed,
    ev.FanOutStarted: _began,
    ev.CycleRestarted: _restarted,
}

ADVANCED: Final = "flow_advanced"
"""What the key says already."""


def watch(instance_id: str, store: str | None = None, as_json: bool = False) -> None:
    """Show an instance and every change of it until it ends; as JSON a line for each."""
    console = Console(highlight=False)

    def show(change: Change) -> None:
        if as_json:
            click.echo(json_text(change, indented=False))
        else:
            print_line(console, _line(change))

    last = asyncio.run(_watch(existing_store(store), instance_id, show))
    if last is not InstanceState.COMPLETED:
        click.echo(f"holdfast: {safe(instance_id)} is {last}", err=True)
        raise SystemExit(EXIT_BAD_NEWS)


async def _watch(path: StoreName, instance_id: str, show: Callable[[Change], None]) -> InstanceState | None:
    last: InstanceState | None = None
    async with connected(path) as client:
        async for change in client.get(instance_id).watch():
            show(change)
            last = change.state
    return last


def _line(change: Change) -> Text:
    line = Text(f"{change.at:%H:%M:%S.%f}"[:-3], "dim")
    line.append("  ").append(change.state, STATE_STYLES.get(change.state, ""))
    if change.execution > 1:
        line.append(f"  execution {change.execution}")
    line.append(f"  turn {change.turn}", "dim")
    if change.collation_key is not None:
        line.append("  ").append_text(digits_text(change.collation_key.rstrip(PADDING), LONGEST_KEY))
    if change.last_event is not None and not (change.collation_key and change.last_event == ADVANCED):
        line.append(f"  {change.last_event.replace('_', ' ')}")
    if change.custom_status is not None:
        said = change.custom_status
        line.append(f"  {safe(said if isinstance(said, str) else msgspec.json.encode(said).decode())}", "cyan")
    if change.blocked is not None:
        line.append(f"  {safe(change.blocked)}", "red")
    return line
