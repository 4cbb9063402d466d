"""``holdfast workers`` and ``holdfast queues``: the workers of a store, and the work in each queue."""

from typing import Any, Final

import msgspec
from rich.text import Text

from holdfast.cli.console import (
    Column,
    count_text,
    moment_text,
    print_items,
    print_line,
    safe,
    seconds_text,
    standard_output,
)
from holdfast.cli.store_option import read_store
from holdfast.client.requests import unserved_workflows
from holdfast.client.views.overview import QueueView, WorkerView, read_queues, read_workers
from holdfast.compose import open_contract_of
from holdfast.core.leases import WorkerState
from holdfast.storage.contract import OpenableStore

MOST_SERVERS: Final = 3
"""Workers that are named for one queue."""


def workers(*, everyone: bool = False, store: str | None = None, as_json: bool = False) -> None:
    """List the workers of a store: their lease, their load and the queues that they serve."""
    found = read_store(store, read_workers)
    listed = [worker for worker in found if everyone or worker.state is WorkerState.ACTIVE]
    print_items(listed, WORKER_COLUMNS, _worker_fields, as_json=as_json, empty="No workers.")


def _is_overdue(worker: WorkerView) -> bool:
    return worker.state is WorkerState.ACTIVE and worker.lease_left <= 0


def _state(worker: WorkerView) -> Text:
    if _is_overdue(worker):
        return Text("OVERDUE", "bold red")
    return Text(safe(worker.state), "green" if worker.state is WorkerState.ACTIVE else "dim")


def _lease_left(worker: WorkerView) -> str:
    if worker.state is WorkerState.INACTIVE:
        return ""
    return f"{'-' if worker.lease_left < 0 else ''}{seconds_text(abs(worker.lease_left))}"


def _abandoned(worker: WorkerView) -> Text:
    return Text(str(worker.abandoned), "bold red" if worker.abandoned else "")


def _host(worker: WorkerView) -> str:
    return worker.host if worker.pid is None else f"{worker.host}:{worker.pid}"


WORKER_COLUMNS: Final[tuple[Column[WorkerView], ...]] = (
    Column("worker", lambda worker: worker.key, "cyan"),
    Column("state", _state),
    Column("lease left", _lease_left, is_right=True),
    Column("activities", lambda worker: f"{worker.attempts}/{worker.slots}", is_right=True),
    Column("load", lambda worker: f"{worker.load:.0%}", is_right=True),
    Column("workflows", lambda worker: str(worker.instances), is_right=True),
    Column("abandoned", _abandoned, is_right=True),
    Column("queues", lambda worker: ", ".join(worker.queues)),
    Column("build", lambda worker: worker.build),
    Column("host", _host),
    Column("since (UTC)", lambda worker: moment_text(round(worker.registered_at.timestamp() * 1000))),
)


def _worker_fields(worker: WorkerView) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(worker)
    return {**fields, "load": worker.load, "is_overdue": _is_overdue(worker)}


def queues(*, store: str | None = None, as_json: bool = False) -> None:
    """List the queues of a store: activities that wait and run, and the workers that serve them."""
    found, unserved = read_store(store, _read_queues)
    empty = "No queues: no activity waits or runs, and no worker is alive."
    print_items(found, QUEUE_COLUMNS, _queue_fields, as_json=as_json, empty=empty)
    if not as_json:
        _print_unserved(unserved)


async def _read_queues(store: OpenableStore) -> tuple[list[QueueView], dict[str, int]]:
    """The queues, and the requested workflows that no live worker has."""
    return await read_queues(store), await unserved_workflows(open_contract_of(store))


def _print_unserved(counts: dict[str, int]) -> None:
    """Prints the workflows that were requested and that no live worker has."""
    for workflow, number in counts.items():
        line = Text.assemble(
            (count_text(number, "request"), "bold red"),
            " for ",
            (safe(workflow), "bold"),
            ", which no live worker has: start a worker that has it (holdfast requests --state NEW)",
        )
        print_line(standard_output(), line)


def _servers(queue: QueueView) -> Text:
    if not queue.served_by and queue.external == queue.ready and (queue.ready or queue.running):
        return Text("executors: holdfast activity list" if queue.ready else "executors")
    if not queue.served_by:
        return Text("no worker", "bold red")
    more = len(queue.served_by) - MOST_SERVERS
    names = ", ".join(safe(key) for key in queue.served_by[:MOST_SERVERS])
    return Text(f"{names} and {more} more" if more > 0 else names)


QUEUE_COLUMNS: Final[tuple[Column[QueueView], ...]] = (
    Column("queue", lambda queue: queue.name, "cyan"),
    Column("ready", lambda queue: str(queue.ready), is_right=True),
    Column("external", lambda queue: str(queue.external) if queue.external else "", is_right=True, is_optional=True),
    Column("later", lambda queue: str(queue.later), is_right=True),
    Column("running", lambda queue: str(queue.running), is_right=True),
    Column(
        "oldest waits",
        lambda queue: "" if queue.oldest_wait is None else seconds_text(queue.oldest_wait),
        is_right=True,
    ),
    Column("served by", _servers),
)


def _queue_fields(queue: QueueView) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(queue)
    return {**fields, "is_served": bool(queue.served_by)}
