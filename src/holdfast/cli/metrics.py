"""``holdfast worker --metrics``: counters, gauges and probes over HTTP (M1-M3).

The server has a thread, an event loop and a connection to the store of its own, so that neither a scrape nor a slow
client delays the worker, and a blocked worker is seen from outside. The text is written by prometheus_client.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from holdfast.background import BackgroundThread, Duty
from holdfast.cli.http_responder import HttpResponder, Request, Response
from holdfast.cli.store_option import StoreName
from holdfast.client.metrics import WorkerGauges
from holdfast.compose import open_store
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.leases import WorkerState
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import HoldfastError, UsageError
from holdfast.runtime.metrics import Histogram, WorkerMetrics, sorted_items
from holdfast.runtime.platform import Platform
from holdfast.storage.records import OpenCount, QueueRow

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

logger = logging.getLogger("holdfast")

LOOPBACK: Final = "127.0.0.1"
MOST_PORT: Final = 65_535
MOST_SERIES: Final = 1_000
"""Pairs of workflow and state, and queues, that are shown: a client can create instances of any name."""
CACHED_MS: Final = 1_000
IDLE_PARTS: Final = 20
"""A read of the store is followed by a pause of so many times its duration: it takes at most a part of the time."""
READ_SECONDS: Final = 5.0
"""How long a scrape waits for the store, and a probe for the worker."""
START_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where the server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def parse_address(text: str) -> ListenAddress:
    """``[HOST:]PORT``: without a host, only programs of this machine can connect. 0 is any free port."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isascii() or not port.isdigit() or int(port) > MOST_PORT or (":" in text and not host):
        raise UsageError(f"--metrics {text!r} is not [HOST:]PORT, such as 9464 or 0.0.0.0:9464")
    return ListenAddress(host or LOOPBACK, int(port))


def require_prometheus() -> None:
    """Raise `UsageError` unless the extra for metrics is installed."""
    try:
        import_module("prometheus_client")
    except ImportError as error:
        raise UsageError(f"--metrics needs prometheus-client: pip install 'holdfast[metrics]' ({error})") from error


@dataclass(frozen=True, slots=True)
class StoreValues:
    """The values that were read from the store last."""

    open: list[OpenCount]
    queues: list[QueueRow]
    now_ms: int


class StoreReader:
    """Reads the store through connections of its own, not more often than `CACHED_MS` and `IDLE_PARTS` allow (M2)."""

    def __init__(self, name: StoreName, platform: Platform) -> None:
        self._store: Any = open_store(name, "full", platform)
        self._elapsed_ms = platform.providers.elapsed_precise_ms
        self._is_open = False
        self._values: StoreValues | None = None
        self._next_ms = 0.0
        self._reading = asyncio.Lock()

    async def values(self) -> StoreValues | None:
        """The values of the store; None if they cannot be read."""
        async with self._reading:
            began_ms = self._elapsed_ms()
            if began_ms < self._next_ms:
                return self._values
            try:
                async with asyncio.timeout(READ_SECONDS):
                    self._open()
                    counts = await self._store.count_open(MOST_SERIES)
                    queues = await self._store.queues()
                    self._values = StoreValues(counts, queues[:MOST_SERIES], self._store.now_ms())
            except (HoldfastError, TimeoutError, OSError) as error:
                logger.warning("the metrics of the store could not be read: %s", error)
                self._values = None
            took_ms = self._elapsed_ms() - began_ms
            self._next_ms = self._elapsed_ms() + max(CACHED_MS, took_ms * IDLE_PARTS)
            return self._values

    async def holds_lease(self, key: str | None) -> str | None:
        """Why a worker does not hold its lease, by the row and the clock of the store; None if it does."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                self._open()
                rows = await self._store.workers()
        except (HoldfastError, TimeoutError, OSError) as error:
            return f"the store cannot be read: {type(error).__name__}"
        now_ms = self._store.now_ms()
        held = any(row.key == key and row.state == WorkerState.ACTIVE and row.deadline_ms > now_ms for row in rows)
        return None if held else "the worker has no lease"

    def _open(self) -> None:
        if not self._is_open:
            self._store.open_for_reading()
            self._is_open = True

    async def close(self) -> None:
        with suppress(HoldfastError):
            await self._store.close()


class MetricsServer:
    """Serves ``/metrics``, ``/live`` and ``/ready`` of one worker from a thread of its own."""

    def __init__(
        self, address: ListenAddress, store: StoreName, metrics: WorkerMetrics, gauges: Callable[[], WorkerGauges]
    ) -> None:
        require_prometheus()
        self._address = address
        self._store_name = store
        self._metrics = metrics
        self._gauges = gauges
        self._worker_loop = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop
        self._started = threading.Event()
        self._stopped = threading.Event()
        self._failure: OSError | None = None
        self._responder = HttpResponder(self._respond)
        self._reader: StoreReader
        self._thread = BackgroundThread(
            Duty.METRICS,
            lambda: asyncio.run(self._serve()),
            is_stopped=self._stopped.is_set,
            at_end=self._started.set,
        )

    def start(self) -> str:
        """Listen. Returns the URL; `UsageError` if the address cannot be used."""
        self._thread.start()
        self._started.wait(START_SECONDS)
        if self._failure is not None:
            reason = self._failure.strerror or self._failure
            raise UsageError(f"--metrics cannot listen at {self._address.host}:{self._address.port}: {reason}")
        return self._address.url

    def stop(self) -> None:
        """End the thread, without waiting for clients."""
        self._stopped.set()
        with suppress(RuntimeError):  # its event loop is closed already
            self._loop.call_soon_threadsafe(self._responder.stop)
        self._thread.join(START_SECONDS)

    async def _serve(self) -> None:
        """Serve until `stop`. Called again if it raises."""
        self._loop = asyncio.get_running_loop()
        self._reader = StoreReader(self._store_name, Platform())
        try:
            port = await self._responder.listen(self._address.host, self._address.port)
        except OSError as error:
            self._failure = error
            return
        self._address = ListenAddress(self._address.host, port)
        self._started.set()
        await self._responder.wait()
        await self._reader.close()

    # ------------------------------------------------------------ pages

    async def _respond(self, request: Request) -> Response:
        match request.path:
            case "/metrics":
                return await self._page(request.accept)
            case "/live":
                return _probe(await self._why_not_live())
            case "/ready":
                return _probe(await self._why_not_ready())
            case _:
                return Response(404, "not found: /metrics, /live and /ready are here\n")

    async def _page(self, accept: str) -> Response:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415 - an extra
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415

        values = await self._reader.values()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(lambda: families(self._metrics, self._gauges(), values)))
        encode, content_type = choose_encoder(accept)
        return Response(200, encode(registry), content_type)

    async def _why_not_live(self) -> str | None:
        answered: asyncio.Future[None] = self._loop.create_future()

        def settle() -> None:
            if not answered.done():
                answered.set_result(None)

        def answer() -> None:
            with suppress(RuntimeError):  # the server has stopped meanwhile
                self._loop.call_soon_threadsafe(settle)

        try:
            self._worker_loop.call_soon_threadsafe(answer)
            async with asyncio.timeout(READ_SECONDS):
                await answered
        except (TimeoutError, RuntimeError):
            return "the event loop of the worker does not answer"
        return None if self._gauges().is_beating else "the lease thread does not run"

    async def _why_not_ready(self) -> str | None:
        gauges = self._gauges()
        if gauges.is_leaving:
            return "the worker drains"
        return await self._reader.holds_lease(gauges.key)


def _probe(reason: str | None) -> Response:
    return Response(200, "ok\n") if reason is None else Response(503, f"{reason}\n")


class _Collector:
    """Gives the metrics of one scrape to prometheus_client."""

    def __init__(self, collect: Callable[[], "Iterable[Metric]"]) -> None:
        self.collect = collect


def families(metrics: WorkerMetrics, gauges: WorkerGauges, values: StoreValues | None) -> "Iterator[Metric]":
    """All metrics, by the names of the guide."""
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - an extra

    def counter(name: str, text: str, labels: list[str], counts: dict[Any, int]) -> "Metric":
        family = CounterMetricFamily(name, text, labels=labels)
        for key, count in sorted_items(counts):
            family.add_metric([key] if isinstance(key, str) else list(key), count)
        return family

    def gauge(name: str, text: str, labels: list[str], items: Iterable[tuple[list[str], float]]) -> "Metric":
        family = GaugeMetricFamily(name, text, labels=labels)
        for key, value in items:
            family.add_metric(key, value)
        return family

    yield counter("holdfast_instances_started", "First turns committed.", ["workflow"], metrics.instances_started)
    yield counter("holdfast_instances_closed", "Instances closed.", ["workflow", "outcome"], metrics.instances_closed)
    ended = {
        (name, state): count
        for name, counts in sorted_items(metrics.activities)
        for state, count in sorted_items(counts.ended())
    }
    yield counter("holdfast_activity_attempts", "Attempts with a body that ended.", ["activity", "outcome"], ended)
    yield from _histograms(metrics)
    yield gauge("holdfast_cache_size", "Instances in memory.", [], [([], gauges.cache_size)])
    yield gauge("holdfast_worker_lease_seconds", "Time left of the lease.", [], [([], gauges.lease_seconds)])
    slots = [(["free"], float(gauges.slots_free)), (["taken"], float(gauges.slots_taken))]
    yield gauge("holdfast_worker_slots", "Slots for activities.", ["state"], slots)
    if values is None:
        return
    counts = [([each.workflow, str(each.state)], float(each.instances)) for each in values.open]
    yield gauge("holdfast_instances_open", "Open instances of the store.", ["workflow", "state"], counts)
    blocked = [([name], count) for (name, state), count in counts if state == InstanceState.BLOCKED]
    yield gauge("holdfast_instances_blocked", "BLOCKED instances of the store.", ["workflow"], blocked)
    depth = [([row.queue], float(row.ready)) for row in values.queues]
    yield gauge("holdfast_queue_depth", "Activities that wait for a worker.", ["queue"], depth)
    oldest = [
        ([row.queue], 0.0 if row.oldest_at_ms is None else max(0, values.now_ms - row.oldest_at_ms) / MILLISECONDS)
        for row in values.queues
    ]
    yield gauge("holdfast_queue_oldest_seconds", "How long the oldest of them waits.", ["queue"], oldest)


def _histograms(metrics: WorkerMetrics) -> "Iterator[Metric]":
    from prometheus_client.metrics_core import HistogramMetricFamily  # noqa: PLC0415 - an extra

    def histogram(name: str, text: str, label: str | None, items: Iterable[tuple[str, Histogram]]) -> "Metric":
        family = HistogramMetricFamily(name, text, labels=[] if label is None else [label])
        for key, found in items:
            family.add_metric([] if label is None else [key], *_buckets(found))
        return family

    activities = list(sorted_items(metrics.activities))
    seconds = [(name, counts.seconds) for name, counts in activities]
    waits = [(name, counts.wait_seconds()) for name, counts in activities]
    yield histogram("holdfast_activity_seconds", "From the begin of a body to its end.", "activity", seconds)
    yield histogram("holdfast_activity_wait_seconds", "From available to claimed.", "activity", waits)
    yield histogram("holdfast_turn_seconds", "Code of one turn.", None, [("", metrics.turn_seconds)])
    yield histogram("holdfast_commit_seconds", "One group commit.", None, [("", metrics.commit_seconds)])
    yield histogram("holdfast_commit_members", "Members of a group commit.", None, [("", metrics.commit_members)])
    yield histogram("holdfast_replay_seconds", "Rebuilding of an instance.", None, [("", metrics.replay_seconds)])


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """Cumulative counts by upper bound, as the format has them, and the sum."""
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), list(histogram.counts), strict=True):
        total += count
        buckets.append((bound, total))
    return buckets, histogram.total
