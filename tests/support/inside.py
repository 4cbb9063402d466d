"""Access to the parts of a running worker. Tests reach inside through these functions only."""

from collections.abc import Awaitable, Callable
from typing import Any

import holdfast as hf
from holdfast.core.leases import WorkerKey
from holdfast.runtime.attempts.runner import AttemptRunner
from holdfast.runtime.committer import Committer
from holdfast.runtime.duties.claimer import Claimer
from holdfast.runtime.duties.maintenance import Maintenance
from holdfast.runtime.duties.reconciler import Reconciler
from holdfast.runtime.queries import Queries
from holdfast.runtime.turns.messages import InboxReader
from holdfast.runtime.turns.owned_instances import LiveInstances, OwnedInstances
from holdfast.runtime.turns.turn_taker import TurnTaker
from holdfast.runtime.worker import WorkerRuntime
from holdfast.runtime.worker_lease import LeaseThread


def worker_of(client: hf.Client) -> WorkerRuntime:
    """The running worker of a client or an engine."""
    worker = client._local.running
    assert worker is not None
    return worker


def key_of(worker: WorkerRuntime) -> WorkerKey:
    return worker.lease.key


def committer_of(worker: WorkerRuntime) -> Committer:
    return worker.committer


def attempts_of(worker: WorkerRuntime) -> AttemptRunner:
    return worker.attempts


def free_slots(worker: WorkerRuntime) -> int:
    return worker.slots.free


def slot_count(worker: WorkerRuntime) -> int:
    return worker.slots.count


def live_instances(worker: WorkerRuntime) -> LiveInstances:
    return worker.instances.live


def instances_of(worker: WorkerRuntime) -> OwnedInstances:
    return worker.instances


def inbox_of(worker: WorkerRuntime) -> InboxReader:
    return worker.inbox


def turns_of(worker: WorkerRuntime) -> TurnTaker:
    return worker.turns


def claimer_of(worker: WorkerRuntime) -> Claimer:
    return worker.claimer


def queries_of(worker: WorkerRuntime) -> Queries:
    return worker.query_service.queries


def maintenance_of(worker: WorkerRuntime) -> Maintenance:
    return worker.maintenance


def reconciler_of(worker: WorkerRuntime) -> Reconciler:
    return worker.reconciler


# ------------------------------------------------------------ actions


def poll(worker: WorkerRuntime) -> None:
    """Wake the claimer."""
    worker.poll()


async def read_inbox(worker: WorkerRuntime) -> None:
    """Hand new inbox rows to the live instances."""
    await worker.inbox.read()


async def try_blocked(worker: WorkerRuntime, build: str | None = None) -> None:
    """Claim the instances that other builds blocked. `build`: the name of the worker's build, if it has one."""
    await worker.claimer.try_blocked(build or worker.registry.build)


async def maintain(worker: WorkerRuntime) -> None:
    """One round of maintenance."""
    await worker.maintenance.round()


async def mark_lost(worker: WorkerRuntime, key: WorkerKey) -> None:
    """Move everything that another worker owns."""
    await worker.lost_workers.mark_lost(key, at_deadline=False)


async def take_over(worker: WorkerRuntime, key: WorkerKey) -> None:
    """`mark_lost`, after which the worker polls at once."""
    await worker.take_over(key)


def lose_lease(worker: WorkerRuntime) -> None:
    """The worker finds its lease expired and replaces its key."""
    worker.lease.expired()


def end_lease(worker: WorkerRuntime) -> None:
    """Let the lease be over by the worker's own clock. The worker has not noticed it yet."""
    holder = worker.lease._holder
    assert isinstance(holder, LeaseThread)
    holder._is_over = True


def notices_expired_lease(worker: WorkerRuntime) -> bool:
    """Compare the lease with the clock; True if it has expired, after which the worker replaces its key."""
    worker.lease.check()
    return worker.lease.fenced_at_ms <= worker.lease._elapsed_ms()


def replace_registration(
    worker: WorkerRuntime, register: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]], monkeypatch: Any
) -> None:
    """Call `register` with the original registration whenever the worker registers a key."""
    original = worker.lease._register
    monkeypatch.setattr(worker.lease, "_register", lambda: register(original))
