"""``holdfast queues``: what waits and what runs in each queue, and whether anybody serves it."""

import asyncio
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.text import Text

from holdfast.cli.stores import look_into
from holdfast.cli.texts import json_text, print_aligned, safe, seconds_text
from holdfast.client.overview import QueueView, read_queues

QUEUE_COLUMNS: Final = ("queue", "ready", "later", "running", "oldest waits", "served by")
MOST_SERVERS: Final = 3


def queues(*, store: str | None = None, as_json: bool = False) -> None:
    """List the queues of a store: activities that wait and run, and the workers that serve them."""
    found = asyncio.run(_read_queues(store))
    if as_json:
        click.echo(json_text([_queue_fields(queue) for queue in found]))
    else:
        _show_queues(found)


async def _read_queues(store: str | None) -> list[QueueView]:
    opened = look_into(store)
    try:
        return await read_queues(opened)
    finally:
        await opened.close()


def _show_queues(found: list[QueueView]) -> None:
    console = Console(highlight=False)
    if not found:
        console.print("No queues: nothing waits or runs, and nobody serves any.")
        return
    rows = [[Text(name) for name in QUEUE_COLUMNS]]
    rows += [
        [
            Text(safe(queue.name), "cyan"),
            Text(str(queue.ready)),
            Text(str(queue.later)),
            Text(str(queue.running)),
            Text("" if queue.oldest_wait is None else seconds_text(queue.oldest_wait)),
            _servers(queue),
        ]
        for queue in found
    ]
    print_aligned(console, rows, right=(1, 2, 3, 4))


def _servers(queue: QueueView) -> Text:
    if not queue.served_by:
        return Text("nobody", "bold red")
    more = len(queue.served_by) - MOST_SERVERS
    names = ", ".join(safe(key) for key in queue.served_by[:MOST_SERVERS])
    return Text(f"{names} and {more} more" if more > 0 else names)


def _queue_fields(queue: QueueView) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(queue)
    return {**fields, "is_served": bool(queue.served_by)}
