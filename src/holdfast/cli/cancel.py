"""``holdfast cancel ID``: ask an instance to end; its code may clean up."""

import asyncio

import click
from rich.console import Console
from rich.text import Text

from holdfast.cli.stores import StoreName, connected, existing_store
from holdfast.cli.texts import json_text, print_line, safe


def cancel(instance_id: str, reason: str | None = None, store: str | None = None, as_json: bool = False) -> None:
    """Ask an instance to end. Its code gets an `asyncio.CancelledError`, and may clean up or continue."""
    state = asyncio.run(_cancel(existing_store(store), instance_id, reason))
    if as_json:
        fields = {"id": instance_id, "status": state, "reason": reason}
        click.echo(json_text(fields))
    else:
        line = Text.assemble((safe(instance_id), "bold cyan"), f" is {state}")
        print_line(Console(highlight=False), line)


async def _cancel(path: StoreName, instance_id: str, reason: str | None) -> str:
    async with connected(path) as client:
        handle = client.get(instance_id)
        await handle.cancel(reason)
        return (await handle.describe()).status
