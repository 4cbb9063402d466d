"""``holdfast cancel ID``: ask an instance to end; its code may clean up."""

import asyncio
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from holdfast.cli.stores import JsonOption, Place, StoreOption, connected, existing_store
from holdfast.cli.texts import json_text, safe


def cancel(
    instance_id: Annotated[str, typer.Argument(metavar="ID", help="The instance; the newest one of this id.")],
    reason: Annotated[
        str | None, typer.Option("--reason", "-r", metavar="TEXT", help="Why; its code and whoever waits are told.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask an instance to end. Its code gets an asyncio.CancelledError and may clean up, or go on all the same."""
    state = asyncio.run(_cancel(existing_store(store), instance_id, reason))
    if as_json:
        fields = {"id": instance_id, "status": state, "reason": reason}
        typer.echo(json_text(fields))
    else:
        line = Text.assemble((safe(instance_id), "bold cyan"), f" is {state}")
        Console(highlight=False).print(line, soft_wrap=True)


async def _cancel(path: Place, instance_id: str, reason: str | None) -> str:
    async with connected(path) as client:
        handle = client.get(instance_id)
        await handle.cancel(reason)
        return (await handle.describe()).status
