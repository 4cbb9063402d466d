"""The metrics of a client and its worker: counters of their commits, and values of the worker at this moment (M1)."""

import math

import msgspec

from holdfast.client.client import Client
from holdfast.client.worker import Worker
from holdfast.core.deadlines import MILLISECONDS
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.observing import joined
from holdfast.runtime.platform import precise_seconds


class WorkerGauges(msgspec.Struct, frozen=True, kw_only=True):
    """Values of a worker at one moment."""

    key: str | None
    """None while it has no lease."""
    cache_size: int
    """Instances in memory."""
    slots_free: int
    slots_taken: int
    lease_seconds: float
    """How long its lease lasts without another heartbeat; 0 without one."""
    is_beating: bool
    """Whether the thread of its heartbeats runs."""
    is_leaving: bool
    """Whether it drains or stops."""


def observe(client: Client) -> WorkerMetrics:
    """Count what a client and its worker commit from now on."""
    session = client._session  # noqa: SLF001 - metrics are a part of the client
    metrics = WorkerMetrics(precise_seconds, session.store.now_ms)
    session.observer = joined(session.observer, metrics)
    return metrics


def read_gauges(worker: Worker) -> WorkerGauges:
    """The values of a worker that was started. Any thread may call it."""
    runtime = worker._runtime  # noqa: SLF001 - as above
    if runtime is None:
        return WorkerGauges(
            key=None,
            cache_size=0,
            slots_free=0,
            slots_taken=0,
            lease_seconds=0.0,
            is_beating=False,
            is_leaving=True,
        )
    lease = runtime.lease
    left_ms = lease.remaining_ms(lease.key)
    return WorkerGauges(
        key=lease.key if lease.is_valid else None,
        cache_size=len(runtime.instances.live),
        slots_free=runtime.slots.free,
        slots_taken=runtime.slots.count - runtime.slots.free,
        lease_seconds=max(0.0, left_ms / MILLISECONDS) if left_ms < math.inf else 0.0,
        is_beating=lease.is_beating,
        is_leaving=worker._leaving.is_set() or runtime.stopped.is_set(),  # noqa: SLF001
    )
