"""``holdfast event ID NAME``: raise an event to an instance."""

import asyncio
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.text import Text

from holdfast.cli.inputs import checked_json
from holdfast.cli.stores import StoreName, connected, existing_store
from holdfast.cli.texts import json_text, print_line, safe


def event(  # noqa: PLR0917 - the options of the command
    instance_id: str,
    name: str,
    value: str = "null",
    message_id: str | None = None,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Raise an event to an instance. It is on disk when this returns, and reaches the code once."""
    given: Any = msgspec.json.decode(checked_json(value))
    is_taken = asyncio.run(_raise(existing_store(store), instance_id, name, given, message_id))
    if as_json:
        click.echo(json_text({"id": instance_id, "event": name, "taken": is_taken}))
    else:
        said = " was raised to " if is_taken else " was dropped: nobody waits for it in "
        line = Text.assemble(("event ", ""), (safe(name), "bold"), said, (safe(instance_id), "bold cyan"))
        print_line(Console(highlight=False), line)


async def _raise(path: StoreName, instance_id: str, name: str, value: Any, message_id: str | None) -> bool:
    async with connected(path) as client:
        return await client.get(instance_id).raise_event(name, value, id=message_id)
