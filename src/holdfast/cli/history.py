"""``holdfast history ID``: what happened to an instance, event by event, or its export to be replayed by tests."""

import asyncio
from pathlib import Path
from typing import Annotated, Any, Final, cast

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from holdfast.authoring.names import checked_name
from holdfast.authoring.registry import Registry
from holdfast.cli.stores import JsonOption, StoreOption, look_into
from holdfast.cli.texts import moment_text, print_aligned, safe
from holdfast.client.client import Client
from holdfast.client.histories import parse
from holdfast.core.events import encode_event
from holdfast.errors import UsageError
from holdfast.runtime.surroundings import Surroundings

LONGEST_NOTE: Final = 200


def history(
    instance_id: Annotated[str, typer.Argument(metavar="ID", help="The instance; the newest one of this id.")],
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write it to a file that Replayer reads.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the history of an instance, or export it so that tests can replay it."""
    text = asyncio.run(_read(instance_id, store))
    if export is not None:
        try:
            export.write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"{str(export)[:LONGEST_NOTE]!r} cannot be written: {error}") from error
    if as_json:
        typer.echo(text, nl=False)
    elif export is None:
        _show(text)


async def _read(instance_id: str, store: str | None) -> str:
    checked_name(instance_id, "an instance")
    opened = look_into(store)
    try:
        return await Client(opened, Registry(), Surroundings()).get(instance_id).export_history()
    finally:
        await opened.close()


def _show(text: str) -> None:
    _, events = parse(text)
    rows = [[Text(name) for name in ("step", "time (UTC)", "event", "")]]
    for number, event in enumerate(events):
        fields: dict[str, Any] = msgspec.json.decode(encode_event(event))
        kind, time_ms = fields.pop("event"), fields.pop("time_ms", None)
        notes = "  ".join(f"{name}={_short(value)}" for name, value in fields.items())
        rows.append(
            [
                Text(str(number)),
                Text("" if time_ms is None else moment_text(time_ms), "dim"),
                Text(safe(kind), "cyan"),
                Text(safe(notes, LONGEST_NOTE)),
            ]
        )
    print_aligned(Console(highlight=False), rows, right=(0,))


def _short(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        value = fields.get("data") if fields.keys() <= {"data", "reference"} else fields
    return msgspec.json.encode(value).decode()
