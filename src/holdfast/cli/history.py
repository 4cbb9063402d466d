"""``holdfast history ID``: what happened to an instance, event by event, or its export to be replayed by tests."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import click
import msgspec
from rich.console import Console
from rich.text import Text

from holdfast.authoring.names import checked_name
from holdfast.authoring.registry import Registry
from holdfast.cli.steps import short_failure
from holdfast.cli.stores import look_into
from holdfast.cli.texts import moment_text, print_aligned, safe
from holdfast.client.client import Client
from holdfast.client.histories import parse
from holdfast.core.collation.digits import MEANING, Digit
from holdfast.core.events import HistoryEvent, encode_event
from holdfast.core.flow import events as fe
from holdfast.errors import UsageError
from holdfast.payloads.failures import Failure
from holdfast.runtime.surroundings import Surroundings

LONGEST_NOTE: Final = 200


def history(instance_id: str, export: str | None = None, store: str | None = None, as_json: bool = False) -> None:
    """Show the history of an instance, or export it so that tests can replay it."""
    text = asyncio.run(_read(instance_id, store))
    if export is not None:
        try:
            Path(export).write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"{export[:LONGEST_NOTE]!r} cannot be written: {error}") from error
    if as_json:
        click.echo(text, nl=False)
    elif export is None:
        _show(text)


async def _read(instance_id: str, store: str | None) -> str:
    checked_name(instance_id, "an instance")
    opened = look_into(store)
    client = Client(opened, Registry(), Surroundings())
    client.use_open_store()
    try:
        return await client.get(instance_id).export_history()
    finally:
        await opened.close()


def _show(text: str) -> None:
    _, events = parse(text)
    rows = [[Text(name) for name in ("step", "time (UTC)", "event", "")]]
    for number, event in enumerate(events):
        fields: dict[str, Any] = msgspec.json.decode(encode_event(event))
        kind, time_ms = fields.pop("event"), fields.pop("time_ms", None)
        said = _SAID.get(type(event))
        notes = _fields(fields) if said is None else said(event)
        rows.append(
            [
                Text(str(number)),
                Text("" if time_ms is None else moment_text(time_ms), "dim"),
                Text(safe(kind), "cyan"),
                Text(safe(notes, LONGEST_NOTE)),
            ]
        )
    print_aligned(Console(highlight=False), rows, right=(0,))


def _fields(fields: dict[str, Any]) -> str:
    if (due_at_ms := fields.pop("due_at_ms", None)) is not None:
        fields["due"] = f"{moment_text(due_at_ms)} UTC"
    return "  ".join(f"{name}={_short(name, value)}" for name, value in fields.items() if value != "")


def _short(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        value = fields.get("data") if fields.keys() <= {"data", "reference"} else fields
    if name == "failure":
        with suppress(msgspec.ValidationError):
            return short_failure(msgspec.convert(value, Failure))
    return msgspec.json.encode(value).decode()


# ---------------------------------------------------------------- what flows record, in words


def _advanced(event: fe.FlowAdvanced) -> str:
    """The digits that moved. The numbers of edges say nothing without the graph."""
    said = [f"{node} {MEANING[Digit(int(digit))]}" for node, digit in event.digits.items()]
    said += [f"the failure of {node} was caught" for node in event.caught]
    said += [f"{node} will fail: {why}" for node, why in event.unclear.items()]
    return ", ".join(said or ["edges were decided"])


def _failed(event: fe.NodeFailed) -> str:
    return f"{event.node}: {_short('failure', msgspec.json.decode(event.failure.data))}"


def _completed(event: fe.NodeCompleted) -> str:
    return f"{event.node}: {_short('output', msgspec.json.decode(event.output.data))}"


def _began(event: fe.FanOutBegan) -> str:
    count = "1 item" if event.count == 1 else f"{event.count} items"
    return f"{event.node}: {count}{'' if event.items is None else ', not all at once'}"


def _restarted(event: fe.CycleRestarted) -> str:
    return f"{event.node}: {event.target}, and what is behind it, runs again; round {event.round}"


_SAID: Final[dict[type[HistoryEvent], Callable[[Any], str]]] = {
    fe.FlowAdvanced: _advanced,
    fe.NodeFailed: _failed,
    fe.NodeCompleted: _completed,
    fe.FanOutBegan: _began,
    fe.CycleRestarted: _restarted,
}
