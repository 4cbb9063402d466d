"""The option `metrics`: the counts of a client and its worker through the metrics API of OpenTelemetry (M6)."""

from typing import TYPE_CHECKING, TypeAlias

from holdfast._version import __version__
from holdfast.client.embedded_worker import EmbeddedWorker
from holdfast.core.deadlines import MILLISECONDS
from holdfast.errors import UsageError
from holdfast.runtime.observing import joined
from holdfast.runtime.platform import precise_seconds
from holdfast.runtime.session import StoreSession

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

Metrics: TypeAlias = "bool | MeterProvider | None"
"""True: the meter provider that the program has set. None: nothing is counted."""


def meter(session: StoreSession, local: EmbeddedWorker, metrics: object) -> None:
    """Count what a session commits, if `metrics` asks for it."""
    if metrics is None or metrics is False:
        return
    try:
        from opentelemetry.metrics import MeterProvider, get_meter_provider  # noqa: PLC0415 - an extra

        from holdfast.runtime.meters import MeteredCounts  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(f"metrics needs opentelemetry-api: pip install 'holdfast[otel]' ({error})") from error
    provider = get_meter_provider() if metrics is True else metrics
    if not isinstance(provider, MeterProvider):
        raise UsageError(f"metrics takes True or an OpenTelemetry MeterProvider, not {metrics!r}")
    counts = MeteredCounts(provider.get_meter("holdfast", __version__), precise_seconds, session.store.now_ms)
    session.observer = joined(session.observer, counts)

    def cache_size() -> list[tuple[float, dict[str, str]]]:
        worker = local.running
        return [] if worker is None else [(len(worker.instances.live), {})]

    def slots() -> list[tuple[float, dict[str, str]]]:
        worker = local.running
        if worker is None:
            return []
        free = worker.slots.free
        return [(free, {"state": "free"}), (worker.slots.count - free, {"state": "taken"})]

    def lease_seconds() -> list[tuple[float, dict[str, str]]]:
        worker = local.running
        if worker is None or not worker.lease.is_valid:
            return []
        return [(max(0.0, worker.lease.remaining_ms(worker.lease.key) / MILLISECONDS), {})]

    counts.gauge("holdfast_cache_size", "Instances in memory.", cache_size)
    counts.gauge("holdfast_worker_slots", "Slots for activities.", slots)
    counts.gauge("holdfast_worker_lease_seconds", "Time left of the lease.", lease_seconds)
