"""``holdfast workers``: who works on a store, how much each has to do, and how long its lease still runs.

``holdfast queues``: what waits and what runs in each queue, and whether anybody serves it.
"""

import asyncio
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.text import Text

from holdfast.cli.console import json_text, moment_text, print_aligned, safe, seconds_text
from holdfast.cli.store_option import open_read_only
from holdfast.client.views.overview import QueueView, WorkerView, read_queues, read_workers
from holdfast.core.leases import WorkerState

WORKER_COLUMNS = (
    "worker",
    "state",
    "lease left",
    "activities",
    "load",
    "workflows",
    "abandoned",
    "queues",
    "build",
    "host",
    "since (UTC)",
)


def workers(*, everyone: bool = False, store: str | None = None, as_json: bool = False) -> None:
    """List the workers of a store: their lease, their load and the queues that they serve."""
    found = asyncio.run(_read_workers(store))
    shown = [worker for worker in found if everyone or worker.state is WorkerState.ACTIVE]
    if as_json:
        click.echo(json_text([_worker_fields(worker) for worker in shown]))
    else:
        _show_workers(shown)


async def _read_workers(store: str | None) -> list[WorkerView]:
    opened = open_read_only(store)
    try:
        return await read_workers(opened)
    finally:
        await opened.close()


def _show_workers(found: list[WorkerView]) -> None:
    console = Console(highlight=False)
    if not found:
        console.print("No workers.")
        return
    rows = [[Text(name) for name in WORKER_COLUMNS]]
    rows += [
        [
            Text(safe(worker.key), "cyan"),
            _state(worker),
            Text(_lease_left(worker)),
            Text(f"{worker.attempts}/{worker.slots}"),
            Text(f"{worker.load:.0%}"),
            Text(str(worker.instances)),
            Text(str(worker.abandoned), "bold red" if worker.abandoned else ""),
            Text(safe(", ".join(worker.queues))),
            Text(safe(worker.build)),
            Text(safe(_place(worker))),
            Text(moment_text(round(worker.registered_at.timestamp() * 1000))),
        ]
        for worker in found
    ]
    print_aligned(console, rows, right=(2, 3, 4, 5, 6))


def _is_overdue(worker: WorkerView) -> bool:
    return worker.state is WorkerState.ACTIVE and worker.lease_left <= 0


def _state(worker: WorkerView) -> Text:
    if _is_overdue(worker):
        return Text("OVERDUE", "bold red")
    return Text(worker.state, "green" if worker.state is WorkerState.ACTIVE else "dim")


def _lease_left(worker: WorkerView) -> str:
    if worker.state is WorkerState.INACTIVE:
        return ""
    return f"{'-' if worker.lease_left < 0 else ''}{seconds_text(abs(worker.lease_left))}"


def _place(worker: WorkerView) -> str:
    return worker.host if worker.pid is None else f"{worker.host}:{worker.pid}"


def _worker_fields(worker: WorkerView) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(worker)
    return {**fields, "load": worker.load, "is_overdue": _is_overdue(worker)}


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
    opened = open_read_only(store)
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
