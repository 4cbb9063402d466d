"""``holdfast watch ID``: the changes of an instance as they are committed, until it is closed."""

import asyncio
from collections.abc import Callable
from typing import Final

import click
import msgspec
from rich.console import Console
from rich.text import Text

from holdfast.cli.exits import EXIT_BAD_NEWS
from holdfast.cli.explanations import LONGEST_KEY, digits_text
from holdfast.cli.stores import StoreName, connected, existing_store
from holdfast.cli.texts import STATE_STYLES, json_text, print_line, safe
from holdfast.client.watching import Change
from holdfast.core.collation.composite import PADDING
from holdfast.core.lifecycle import InstanceState

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
            last = change.status
    return last


def _line(change: Change) -> Text:
    line = Text(f"{change.at:%H:%M:%S.%f}"[:-3], "dim")
    line.append("  ").append(change.status, STATE_STYLES.get(change.status, ""))
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
