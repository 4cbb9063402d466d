"""Obstacles: work of an instance that no live worker can take, by workflow, queue and activity.

`Handle.describe`, `holdfast show` and the messages of time-outs name them. Everything is read from the store: a worker
is live while its lease runs, and it registers its queues, workflows and activities.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from holdfast.client.views.instances import Description, is_external, moment
from holdfast.client.views.overview import may_run, registered_names, registered_versions
from holdfast.core.leases import WorkerKey, WorkerState
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.versions import in_order, version_text
from holdfast.storage.contract import Store
from holdfast.storage.records import AttemptRecord, InstanceId, InstanceRecord, WorkerRow

MOST_NAMES: Final = 10
"""Names that one sentence lists."""
MOST_WAITS: Final = 5
"""Open steps that one sentence lists."""
_WITH_A_WORKER: Final = (
    AttemptState.QUEUED,
    AttemptState.PREPARING,
    AttemptState.RUNNING,
    AttemptState.CANCELLED_RUNNING,
)

Overdue = Mapping[WorkerKey, int]
"""The milliseconds since the end of the lease of each worker that is not live."""


async def read_obstacles(store: Store, record: InstanceRecord, attempts: Sequence[AttemptRecord]) -> list[str]:
    """The obstacles of an open instance, a sentence each; empty if live workers can take all its work."""
    if record.state is InstanceState.PAUSED:
        return [pause_sentence(record)]
    if record.closed_at_ms is not None or record.state is InstanceState.BLOCKED:
        return []
    return await _obstacles(store, record, attempts)


def pause_sentence(record: InstanceRecord) -> str:
    """Since when and why an instance is PAUSED, and what ends that."""
    since = moment(record.paused_at_ms)
    shown = "paused" if since is None else f"paused since {since:%Y-%m-%d %H:%M:%S} UTC"
    why = f": {record.pause_reason}" if record.pause_reason else ""
    return f"{shown}{why}; holdfast resume {record.id}"


async def read_unanswered_reasons(store: Store, instance_id: InstanceId) -> list[str]:
    """The reasons why a query or an update gets no answer; workers also answer queries of closed instances."""
    record = await store.find_instance(instance_id)
    if record is None:
        return []
    is_open = record.closed_at_ms is None
    attempts = await store.read_attempts(record.number, record.execution) if is_open else []
    paused = [pause_sentence(record)] if record.state is InstanceState.PAUSED else []
    return paused + await _obstacles(store, record, attempts)


async def _obstacles(store: Store, record: InstanceRecord, attempts: Sequence[AttemptRecord]) -> list[str]:
    now_ms = store.now_ms()
    rows = await store.workers()
    live = [row for row in rows if row.state == WorkerState.ACTIVE and row.deadline_ms > now_ms]
    waiting = [
        attempt for attempt in attempts if attempt.state is AttemptState.READY and attempt.available_at_ms <= now_ms
    ]
    overdue = {row.key: now_ms - row.deadline_ms for row in rows if row not in live}
    found = [*_of_owners(record, attempts, overdue)]
    if not live:
        return [*found, "no worker is alive: start one with holdfast worker"]
    if record.owner is None:
        found += _of_workflow(record, live)
    external = [attempt for attempt in waiting if is_external(attempt)]
    of_workers = [attempt for attempt in waiting if attempt not in external]
    found += _of_reports(external, live)
    found += _of_attempts(of_workers, live)
    if of_workers and not found:
        found += await _of_slots(store, of_workers, live)
    return [*dict.fromkeys(found)]


def waiting_sentence(described: Description) -> str:
    """The state, the open steps and the obstacles of an instance, in one line."""
    parts = [f"{described.id!r} is {described.state}"]
    waits = described.waiting_for or unrecorded_waits(described.state, described.turn, described.obstacles)
    if waits:
        parts.append(f"it waits for {_listed(waits, MOST_WAITS)}")
    if described.blocked is not None and described.state is InstanceState.BLOCKED:
        parts.append(described.blocked)
    return "; ".join([*parts, *described.obstacles])


def unrecorded_waits(state: InstanceState, turn: int, obstacles: Sequence[str]) -> list[str]:
    """A sentence for a running instance without open steps: conditions and tasks are not recorded."""
    if state is not InstanceState.RUNNING or not turn or obstacles:
        return []
    return ["something that is not recorded, such as a condition (hf.wait_until) or a task of its code"]


def _of_owners(record: InstanceRecord, attempts: Iterable[AttemptRecord], overdue: Overdue) -> Iterator[str]:
    """Work of a worker whose lease ended, which a live worker takes over soon."""
    if record.owner is not None and record.owner in overdue:
        yield _lost(record.owner, overdue[record.owner], "which holds the instance")
    for attempt in attempts:
        if attempt.state in _WITH_A_WORKER and attempt.owner is not None and attempt.owner in overdue:
            yield _lost(attempt.owner, overdue[attempt.owner], f"which runs activity {attempt.name!r}")


def _lost(owner: str, since_ms: int, what: str) -> str:
    return f"the lease of worker {owner}, {what}, ended {since_ms / 1000:.1f} s ago"


def _of_workflow(record: InstanceRecord, live: Sequence[WorkerRow]) -> Iterator[str]:
    """R8: no live worker has the workflow, or none has the version on which the instance runs."""
    known = [registered_names(row.workflows) for row in live]
    if not any(names is None or record.workflow in names for names in known):
        yield f"no live worker has workflow {record.workflow!r} (known: {_names(known)})"
        return
    if record.version is None or any(may_run(row, record.workflow, record.version) for row in live):
        return
    versions = in_order({version for row in live for version in registered_versions(row, record.workflow) or ()})
    shown = _listed([version or "none" for version in versions], MOST_NAMES)
    yield f"no live worker has {version_text(record.version)} of {record.workflow!r} (known: {shown})"


def _of_attempts(waiting: Iterable[AttemptRecord], live: Sequence[WorkerRow]) -> Iterator[str]:
    served = {row.key: registered_names(row.queues) for row in live}
    for attempt in waiting:
        serving = [row for row in live if attempt.queue in (served[row.key] or ())]
        if not serving:
            queues = _names(served.values())
            yield f"no live worker serves queue {attempt.queue!r}, where {attempt.name!r} waits (served: {queues})"
            continue
        known = [registered_names(row.activities) for row in serving]
        if not any(names is None or attempt.name in names for names in known):
            yield (
                f"no live worker of queue {attempt.queue!r} has activity {attempt.name!r} (known: {_names(known)}): "
                "is it missing from modules= or activities=?"
            )


def _of_reports(external: Iterable[AttemptRecord], live: Sequence[WorkerRow]) -> Iterator[str]:
    """Activities of executors outside of workers: a worker that has the activity handles their reports (C4)."""
    known = [registered_names(row.activities) for row in live]
    for attempt in external:
        if not any(names is None or attempt.name in names for names in known):
            yield (
                f"no live worker has the external activity {attempt.name!r}, so reports about it are not handled "
                f"(known: {_names(known)})"
            )


async def _of_slots(store: Store, waiting: Iterable[AttemptRecord], live: Sequence[WorkerRow]) -> list[str]:
    """Work for which no live worker has a free slot."""
    loads = {load.key: load.attempts for load in await store.worker_loads()}
    found: list[str] = []
    for attempt in waiting:
        serving = [row for row in live if attempt.queue in (registered_names(row.queues) or ())]
        if all(loads.get(row.key, 0) >= row.slots for row in serving):
            taken = sum(loads.get(row.key, 0) for row in serving)
            slots = sum(row.slots for row in serving)
            found.append(f"no worker of queue {attempt.queue!r} has a free slot ({taken} of {slots} taken)")
    return found


def _names(several: Iterable[list[str] | None]) -> str:
    return _listed(sorted({name for names in several for name in names or ()}), MOST_NAMES)


def _listed(texts: Sequence[str], most: int) -> str:
    if not texts:
        return "none"
    left = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {left} more" if left > 0 else "")
