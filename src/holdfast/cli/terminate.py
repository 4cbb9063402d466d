"""``holdfast terminate ID``: end an instance now, without asking its code."""

import asyncio

import click
from rich.console import Console
from rich.text import Text

from holdfast.cli.stores import StoreName, connected, existing_store
from holdfast.cli.texts import json_text, print_line, safe
from holdfast.core.lifecycle import InstanceState


def terminate(instance_id: str, reason: str | None = None, store: str | None = None, as_json: bool = False) -> None:
    """End an instance now, without running its code."""
    asyncio.run(_terminate(existing_store(store), instance_id, reason))
    if as_json:
        fields = {"id": instance_id, "status": InstanceState.TERMINATED, "reason": reason}
        click.echo(json_text(fields))
    else:
        line = Text.assemble((safe(instance_id), "bold cyan"), " was terminated")
        print_line(Console(highlight=False), line)


async def _terminate(path: StoreName, instance_id: str, reason: str | None) -> None:
    async with connected(path) as client:
        await client.get(instance_id).terminate(reason)
