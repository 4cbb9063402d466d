"""The public worker: runs instances and activities from the store of a client until it is drained or stopped (W10)."""

import asyncio
from collections.abc import Iterable, Mapping
from types import ModuleType, TracebackType
from typing import Any, Self

from holdfast.authoring.launcher import Launcher
from holdfast.authoring.provided import ContextFactory
from holdfast.authoring.registry import Registry
from holdfast.authoring.retention import Retention
from holdfast.authoring.validation import Duration, checked_duration_ms
from holdfast.authoring.workflow import AnyWorkflow
from holdfast.client.client import Client
from holdfast.client.embedded_worker import DEFAULT_MAX_ACTIVITIES, worker_options
from holdfast.client.meters import Metrics, meter
from holdfast.client.tracing import Tracing, trace
from holdfast.core.leases import LOOP_TIMEOUT_MS, WORKER_LEASE_MS
from holdfast.errors import UsageError
from holdfast.runtime.worker import DEFAULT_CACHE_SIZE, WorkerRuntime


class Worker:
    """Runs workflows and activities from the store of a client: ``await hf.Worker(client, modules=[shop]).run()``

    Without `queues` it serves `default` and the queues of its registered activities. It runs at most `max_activities`
    activities at once, and keeps at most `cache_size` instances in memory. Other workers take over its work when its
    `lease`, in seconds, expires without a heartbeat, or when its event loop has not run for `loop_timeout` seconds.
    The default of `payload_limit` is that of the client. A client has at most one worker at a time.
    `launchers`, by queue, start programs for external activities (`hf.Launcher`). `build` names the build of the code,
    as for `hf.Engine`.
    `tracing` and `metrics` are as for `Engine`, and apply to the client as well.
    `retention` says how long closed instances of its workflows are kept, unless a workflow has a retention of its own.
    `activities` takes functions, methods and objects: of an object all marked methods are registered (A11).
    `context`, a function that returns an async context manager, makes what `hf.context` returns in the bodies of
    activities (A12). It is entered before the worker takes work, and left when its bodies have ended.
    """

    def __init__(
        self,
        client: Client,
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
        payload_limit: int | None = None,
        launchers: Mapping[str, Launcher] | None = None,
        context: ContextFactory | None = None,
        build: str | None = None,
        tracing: Tracing = None,
        metrics: Metrics = None,
        retention: Retention | None = None,
    ) -> None:
        if not _is_client(client):
            raise UsageError(f"a worker needs a client: await hf.connect(...), not {client!r}")
        self._session = client._session  # noqa: SLF001 - a worker is a part of its client
        self._local = client._local  # noqa: SLF001
        self._registry = Registry(modules, workflows, activities, flows)
        self._options = worker_options(
            self._registry,
            queues=queues,
            max_activities=max_activities,
            cache_size=cache_size,
            lease=lease,
            loop_timeout=loop_timeout,
            payload_limit=payload_limit,
            launchers=launchers,
            context=context,
            build=build,
            retention=retention,
        )
        if not self._registry.workflows and not self._registry.activities:
            raise UsageError(
                "a worker needs something to run: modules=[...], workflows=[...], activities=[...] or flows=[...]"
            )
        trace(self._session, tracing)
        meter(self._session, self._local, metrics)
        self._runtime: WorkerRuntime | None = None
        self._leaving = asyncio.Event()
        self._stopping = asyncio.Event()
        self._drain_seconds: float | None = None

    async def run(self) -> None:
        """Work until `drain` or `stop` is called. Cancelling this coroutine stops the worker."""
        async with self as worker:
            await worker.wait()

    def drain(self, timeout: Duration | None = None) -> None:
        """Stop when the running activities have ended. Nothing more is claimed, and instances move to other workers.

        Activities that still run after `timeout`, in seconds or as a timedelta, are cancelled. Any thread or signal
        handler may call this: ``loop.add_signal_handler(signal.SIGTERM, worker.drain)``.
        """
        self._drain_seconds = None if timeout is None else checked_duration_ms(timeout, "timeout") / 1000
        self._session.call_on_loop(self._leaving.set)

    def stop(self) -> None:
        """Stop now: activities are cancelled, and those that do not end at once run again on other workers.

        Any thread may call this.
        """
        self._session.call_on_loop(self._stopping.set)
        self._session.call_on_loop(self._leaving.set)

    @property
    def key(self) -> str | None:
        """The key of the worker in the store; None while it does not run. It changes when a lease is lost."""
        return self._runtime.lease.key if self._runtime is not None and self._runtime.is_running else None

    @property
    def running(self) -> int:
        """The number of activities that run in this worker."""
        return 0 if self._runtime is None else len(self._runtime.attempts.running)

    async def __aenter__(self) -> Self:
        self._session.check_usable()
        if self._runtime is not None:
            raise UsageError("this worker runs already, or has run; make another one")
        self._runtime = runtime = self._local.make(self._registry, self._options)
        await self._local.start(runtime)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        runtime = self._runtime
        if runtime is None or runtime.stopped.is_set():
            return  # `start` failed, or the client was closed
        self._session.check_usable()
        try:
            if error is None and self._leaving.is_set() and not self._stopping.is_set():
                await self._first_of(runtime.drain(), self._stopping.wait(), seconds=self._drain_seconds)
        finally:
            await self._local.stop()

    async def wait(self) -> None:
        """Wait for `drain` or `stop`: ``async with hf.Worker(...) as worker: ...; await worker.wait()``

        Raises `StoreReplaced` if the worker halts because a file of its store was removed or replaced.
        """
        runtime = self._runtime
        if runtime is not None and not runtime.stopped.is_set():
            self._session.check_usable()
            await self._first_of(self._leaving.wait(), runtime.stopped.wait(), runtime.halted.wait())
            if runtime.failure is not None:
                raise runtime.failure

    async def _first_of(self, *waits: Any, seconds: float | None = None) -> None:
        """Wait for the first of several coroutines, at most `seconds`. Raises its error, and cancels the others."""
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _is_client(client: object) -> bool:
    return isinstance(client, Client)
