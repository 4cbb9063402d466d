"""``holdfast terminate ID``: end an instance now, without asking its code."""

import asyncio
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from holdfast.cli.stores import JsonOption, Place, StoreOption, connected, existing_store
from holdfast.cli.texts import json_text, safe
from holdfast.core.lifecycle import InstanceState


def terminate(
    instance_id: Annotated[str, typer.Argument(metavar="ID", help="The instance; the newest one of this id.")],
    reason: Annotated[
        str | None, typer.Option("--reason", "-r", metavar="TEXT", help="Why; whoever waits for it is told.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """End an instance now. None of its code is run, so nothing is undone; running activities are told to stop."""
    asyncio.run(_terminate(existing_store(store), instance_id, reason))
    if as_json:
        fields = {"id": instance_id, "status": InstanceState.TERMINATED, "reason": reason}
        typer.echo(json_text(fields))
    else:
        line = Text.assemble((safe(instance_id), "bold cyan"), " was terminated")
        Console(highlight=False).print(line, soft_wrap=True)


async def _terminate(path: Place, instance_id: str, reason: str | None) -> None:
    async with connected(path) as client:
        await client.get(instance_id).terminate(reason)
