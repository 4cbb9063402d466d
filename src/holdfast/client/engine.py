"""The engine: a client and a worker on one store, in one process."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Self

from holdfast import compose
from holdfast.authoring.launcher import Launcher
from holdfast.authoring.provided import ContextFactory
from holdfast.authoring.registry import Registry
from holdfast.authoring.retention import Retention
from holdfast.authoring.validation import Duration
from holdfast.authoring.workflow import AnyWorkflow
from holdfast.client.client import Client
from holdfast.client.embedded_worker import DEFAULT_MAX_ACTIVITIES, payload_limit_of, worker_options
from holdfast.client.meters import Metrics, meter
from holdfast.client.tracing import Tracing, trace
from holdfast.core.leases import LOOP_TIMEOUT_MS, WORKER_LEASE_MS
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES
from holdfast.runtime.platform import Platform
from holdfast.runtime.session import ENGINE, StoreSession
from holdfast.runtime.worker import DEFAULT_CACHE_SIZE
from holdfast.storage.contract import Store


class Engine(Client):
    """Runs workflows in this process: ``async with Engine("shop.db", modules=[shop]) as engine: ...``

    `store` is a path, a URL (``postgresql://``), or an object that implements `holdfast.storage.contract.Store`, which
    the engine opens and closes; ``:memory:`` is a private temporary file.
    Without `queues` it serves `default` and the queues of its registered activities. It runs at most `max_activities`
    activities at once, and keeps at most `cache_size` instances in memory.
    Other workers take over its work when its `lease`, in seconds, expires without a heartbeat, or when its event loop
    has not run for `loop_timeout` seconds.
    With `durability="relaxed"`, for a path or a URL, a commit does not wait for the disk: a power cut may lose the
    newest steps, but leaves the store consistent.
    `payload_limit` is the largest argument list, result or event in bytes (default 32 MiB).
    `launchers`, by queue, start programs for external activities (`hf.Launcher`).
    `activities` takes functions, methods and objects: of an object all marked methods are registered (A11).
    `context`, a function that returns an async context manager, makes what `hf.context` returns in the bodies of
    activities (A12). It is entered before the worker takes work, and left when its bodies have ended.
    `build` names the build of the code for `holdfast builds`, such as a commit. The default is the variable
    HOLDFAST_BUILD, and without it a hash of the registered code.
    With `tracing`, True or an OpenTelemetry tracer provider, it writes spans, and with `metrics`, True or a meter
    provider, it counts (extra ``holdfast[otel]``).
    `retention` says how long closed instances of its workflows are kept, unless a workflow has a retention of its own.
    """

    def __init__(
        self,
        store: str | Path | Store,
        *,
        modules: Iterable[ModuleType] = (),
        workflows: Iterable[AnyWorkflow] = (),
        activities: Iterable[object] = (),
        flows: Iterable[AnyWorkflow] = (),
        queues: Iterable[str] | None = None,
        max_activities: int = DEFAULT_MAX_ACTIVITIES,
        cache_size: int = DEFAULT_CACHE_SIZE,
        lease: Duration = WORKER_LEASE_MS / 1000,
        loop_timeout: Duration | None = LOOP_TIMEOUT_MS / 1000,
        durability: str = "full",
        payload_limit: int = PAYLOAD_LIMIT_BYTES,
        launchers: Mapping[str, Launcher] | None = None,
        context: ContextFactory | None = None,
        build: str | None = None,
        tracing: Tracing = None,
        metrics: Metrics = None,
        retention: Retention | None = None,
        _platform: Platform | None = None,
    ) -> None:
        registry = Registry(modules, workflows, activities, flows)
        self._options = worker_options(
            registry,
            queues=queues,
            max_activities=max_activities,
            cache_size=cache_size,
            lease=lease,
            loop_timeout=loop_timeout,
            launchers=launchers,
            context=context,
            build=build,
            retention=retention,
        )
        platform = _platform or Platform()
        limit = payload_limit_of(payload_limit)
        session = StoreSession(compose.open_store(store, durability, platform), platform, limit, ENGINE)
        trace(session, tracing)
        super().__init__(session, registry)
        meter(session, self._local, metrics)

    async def open(self) -> None:
        """Open the store and start the worker, as `async with` does. `close` ends both."""
        await self._session.open()
        try:
            await self._local.start(self._local.make(self._registry, self._options))
        except BaseException:
            await self.close()
            raise

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def _kill(self) -> None:
        """Close the store without committing anything, as a killed process does. For tests."""
        self._local.kill()
        self._calls.queries.stop()
        await self._session.close()

    @property
    def abandoned_threads(self) -> int:
        """The number of activity threads that this engine has abandoned since it was opened (A5).

        A thread cannot be stopped: it is abandoned if it still runs some time after a cancellation or a time-out. A
        growing number indicates bodies that hang. `workers()` has the number of abandoned bodies that still run.
        """
        worker = self._local.worker
        return 0 if worker is None else worker.attempts.abandoned_threads
