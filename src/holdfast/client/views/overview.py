"""Views of workers and queues: plain values without a reference to the store."""

import datetime as dt
from typing import Final, cast

import msgspec

from holdfast.compose import capabilities_of, open_contract_of
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.leases import WorkerKey, WorkerState
from holdfast.runtime.crash_detection import HostIdentity, decode_identity
from holdfast.storage.contract import OPEN_CONTRACT, Store
from holdfast.storage.records import QueueRow, WorkerLoad, WorkerRow

_STATES: Final = frozenset(WorkerState)
_decode_names = msgspec.json.Decoder(list[str]).decode
_decode_versions = msgspec.json.Decoder(dict[str, list[str]]).decode


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker. The row of an INACTIVE one is kept for a day."""

    key: str
    state: WorkerState
    lease: float
    """The length of its lease, in seconds."""
    lease_left: float
    """Seconds until other workers take its work, unless it sends a heartbeat; negative if they are about to."""
    queues: list[str]
    attempts: int
    """Attempts of activities that it holds."""
    slots: int
    """The most activities that it runs at a time."""
    instances: int
    """Instances that it holds in memory."""
    abandoned: int
    """Bodies of activities that still run after they were asked to stop, as of its last heartbeat."""
    build: str
    host: str
    pid: int | None
    registered_at: dt.datetime
    workflows: list[str] | None = None
    """The names of its workflows and flows; None for a worker of an older release."""
    activities: list[str] | None = None
    versions: dict[str, list[str]] | None = None
    """The versions of its workflows that are written as code; None as for `workflows`."""

    @property
    def load(self) -> float:
        """The part of its slots that is taken."""
        return self.attempts / self.slots if self.slots else 0.0


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A queue."""

    name: str
    ready: int
    """Activities that wait for a worker."""
    later: int
    """Activities that wait for a later time, mostly retries."""
    running: int
    oldest_wait: float | None
    """How long the oldest activity has waited for a worker, in seconds."""
    served_by: list[str]
    """The keys of the live workers that serve it."""
    external: int = 0
    """The part of `ready` that waits for an executor outside of workers (C4)."""


async def read_workers(store: Store) -> list[WorkerView]:
    """Every registered worker, in the order of registration; those that ended for a day."""
    rows = await store.workers()
    now_ms = store.now_ms()
    loads = {load.key: load for load in await store.worker_loads()}
    return [_worker(row, loads.get(row.key), now_ms) for row in rows]


async def read_queues(store: Store) -> list[QueueView]:
    """Every queue with work or a live worker, by name."""
    rows = {row.queue: row for row in await store.queues()}
    now_ms = store.now_ms()
    servers: dict[str, list[WorkerKey]] = {}
    for worker in await store.workers():
        if worker.state == WorkerState.ACTIVE and worker.deadline_ms > now_ms:
            for queue in registered_names(worker.queues) or ():
                servers.setdefault(queue, []).append(worker.key)
    external: dict[str, int] = {}
    if OPEN_CONTRACT in capabilities_of(store):
        external = await open_contract_of(store).count_open_activities()
    return [
        _queue(name, rows.get(name), servers.get(name, []), now_ms, external.get(name, 0))
        for name in sorted({*rows, *servers})
    ]


def registered_names(names: str | None) -> list[str] | None:
    """The names in a column of a registration; None if they are missing or cannot be decoded."""
    try:
        return None if names is None else _decode_names(names)
    except msgspec.MsgspecError:
        return None


def registered_versions(row: WorkerRow, workflow: str) -> list[str] | None:
    """The versions of a workflow that a worker registered. None: it runs all, as those of a flow, or does not say."""
    return (_versions(row) or {}).get(workflow)


def _versions(row: WorkerRow) -> dict[str, list[str]] | None:
    """The versions in the column of a registration; None if they are missing or cannot be decoded."""
    try:
        return None if row.versions is None else _decode_versions(row.versions)
    except msgspec.MsgspecError:
        return None


def may_run(row: WorkerRow, workflow: str, version: str | None) -> bool:
    """R8: whether a worker has the code of an instance, as far as it registered."""
    names = registered_names(row.workflows)
    if names is not None and workflow not in names:
        return False
    versions = registered_versions(row, workflow)
    return version is None or versions is None or version in versions


def _worker(row: WorkerRow, load: WorkerLoad | None, now_ms: int) -> WorkerView:
    host = decode_identity(row.host) or HostIdentity("", 0, 0, "")
    return WorkerView(
        key=row.key,
        state=WorkerState(row.state) if row.state in _STATES else cast("WorkerState", str(row.state)),
        lease=row.lease_ms / MILLISECONDS,
        lease_left=(row.deadline_ms - now_ms) / MILLISECONDS,
        queues=registered_names(row.queues) or [],
        attempts=load.attempts if load else 0,
        slots=row.slots,
        instances=load.instances if load else 0,
        abandoned=row.abandoned,
        build=row.build,
        host=host.name,
        pid=host.pid or None,
        registered_at=dt.datetime.fromtimestamp(row.registered_at_ms / MILLISECONDS, dt.UTC),
        workflows=registered_names(row.workflows),
        activities=registered_names(row.activities),
        versions=_versions(row),
    )


def _queue(name: str, row: QueueRow | None, servers: list[WorkerKey], now_ms: int, external: int) -> QueueView:
    oldest = row.oldest_at_ms if row else None
    return QueueView(
        name=name,
        ready=row.ready if row else 0,
        later=row.later if row else 0,
        running=row.running if row else 0,
        oldest_wait=None if oldest is None else max(0, now_ms - oldest) / MILLISECONDS,
        served_by=list(servers),
        external=external,
    )
