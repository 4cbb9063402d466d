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
from holdfast.runtime.platform import LeaseLike
from holdfast.runtime.queries import Queries
from holdfast.runtime.turns.live_instance import LiveInstances
from holdfast.runtime.turns.turn_taker import TurnTaker
from holdfast.runtime.worker import WorkerRuntime


def worker_of(client: hf.Client) -> WorkerRuntime:
    """The running worker of a client or an engine."""
    worker = client._local.running
    assert worker is not None
    return worker


def key_of(worker: WorkerRuntime) -> WorkerKey:
    return worker.key


def committer_of(worker: WorkerRuntime) -> Committer:
    return worker.committer


def attempts_of(worker: WorkerRuntime) -> AttemptRunner:
    return worker.attempts


def free_slots(worker: WorkerRuntime) -> int:
    return worker.attempts.free


def slot_count(worker: WorkerRuntime) -> int:
    return worker.attempts.slots


def live_instances(worker: WorkerRuntime) -> LiveInstances:
    return worker.turns.live


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


def lease_of(worker: WorkerRuntime) -> LeaseLike:
    assert worker._lease is not None
    return worker._lease


# ------------------------------------------------------------ actions


def poll(worker: WorkerRuntime) -> None:
    """Wake the claimer."""
    worker.poll()


async def read_inbox(worker: WorkerRuntime) -> None:
    """Hand new inbox rows to the live instances."""
    await worker.claimer.read_messages(worker.turns)


async def try_blocked(worker: WorkerRuntime) -> None:
    """Claim the instances that other builds blocked."""
    await worker.claimer.try_blocked(worker.turns, worker.registry.build)


async def maintain(worker: WorkerRuntime) -> None:
    """One round of maintenance."""
    await worker.maintenance.round(worker.key)


async def mark_lost(worker: WorkerRuntime, key: WorkerKey) -> None:
    """Move everything that another worker owns."""
    await worker.maintenance.mark_lost(key, at_deadline=False)


async def take_over(worker: WorkerRuntime, key: WorkerKey) -> None:
    """`mark_lost`, after which the worker polls at once."""
    await worker.take_over(key)


def lose_lease(worker: WorkerRuntime) -> None:
    """The worker finds its lease expired and replaces its key."""
    worker._replace_key()


def notices_expired_lease(worker: WorkerRuntime) -> bool:
    """Compare the lease with the clock; True if it has expired, after which the worker replaces its key."""
    return not worker._may_act()


def replace_registration(
    worker: WorkerRuntime, register: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]], monkeypatch: Any
) -> None:
    """Call `register` with the original registration whenever the worker registers a key."""
    original = worker._register
    monkeypatch.setattr(worker, "_register", lambda: register(original))
