"""``holdfast workers``: who works on a store, how much each has to do, and how long its lease still runs."""

import asyncio
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.text import Text

from holdfast.cli.stores import look_into
from holdfast.cli.texts import json_text, moment_text, print_aligned, safe, seconds_text
from holdfast.client.overview import WorkerView, read_workers
from holdfast.core.liveness import WorkerState

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
    opened = look_into(store)
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
