"""A worker in a process of its own, or beside a client: runs what others start, until it is told to leave (W10)."""

import asyncio
from collections.abc import Iterable
from types import ModuleType, TracebackType
from typing import Any, Self

from holdfast.authoring.activity import AnyActivity
from holdfast.authoring.registry import Registry
from holdfast.authoring.validation import Duration, checked_duration_ms
from holdfast.authoring.workflow import AnyWorkflow
from holdfast.client.client import Client
from holdfast.client.embedded_worker import DEFAULT_MAX_ACTIVITIES, worker_options
from holdfast.core.leases import LOOP_TIMEOUT_MS, WORKER_LEASE_MS
from holdfast.errors import UsageError
from holdfast.runtime.worker import DEFAULT_CACHE_SIZE
from holdfast.runtime.worker import WorkerRuntime as Inner


class Worker:
    """Runs workflows and activities from the store of a client: ``await hf.Worker(client, modules=[shop]).run()``

    It takes activities from the `queues` it serves (else `default` and those of the activities that it has) and runs
    at most `max_activities` of them at once. Others take its work over when its `lease` has run out without a sign of
    it, or its event loop has not run for `loop_timeout`. A client has one worker at most.
    Without `payload_limit` it has that of its client.
    """

    def __init__(
        self,
        client: Client,
        *,
        modules: Iterable[ModuleType] = (),
        workflows: Iterable[AnyWorkflow] = (),
        activities: Iterable[AnyActivity] = (),
        flows: Iterable[AnyWorkflow] = (),
        queues: Iterable[str] | None = None,
        max_activities: int = DEFAULT_MAX_ACTIVITIES,
        cache_size: int = DEFAULT_CACHE_SIZE,
        lease: Duration = WORKER_LEASE_MS / 1000,
        loop_timeout: Duration | None = LOOP_TIMEOUT_MS / 1000,
        payload_limit: int | None = None,
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
        )
        if not self._registry.workflows and not self._registry.activities:
            raise UsageError(
                "a worker needs something to run: modules=[...], workflows=[...], activities=[...] or flows=[...]"
            )
        self._inner: Inner | None = None
        self._told_to_leave = asyncio.Event()
        self._told_to_stop = asyncio.Event()
        self._drain_seconds: float | None = None

    async def run(self) -> None:
        """Work until `drain` or `stop` is called, or until this is cancelled, which is as good as `stop`."""
        async with self as worker:
            await worker.wait()

    def drain(self, timeout: Duration | None = None) -> None:
        """Leave once the activities that run here have ended. Nothing more is claimed; workflows move to other workers.

        After `timeout`, in seconds or as a timedelta, activities that still run are cancelled. Any thread may call it,
        and any signal handler: ``loop.add_signal_handler(signal.SIGTERM, worker.drain)``.
        """
        self._drain_seconds = None if timeout is None else checked_duration_ms(timeout, "timeout") / 1000
        self._session.call_on_loop(self._told_to_leave.set)

    def stop(self) -> None:
        """Leave now: activities are cancelled, and those that do not end at once run again elsewhere.

        Any thread may call it.
        """
        self._session.call_on_loop(self._told_to_stop.set)
        self._session.call_on_loop(self._told_to_leave.set)

    @property
    def key(self) -> str | None:
        """The name that it has in the store now; None if it does not run. It is another one after a lost lease."""
        return self._inner.lease.key if self._inner is not None and self._inner.is_running else None

    @property
    def running(self) -> int:
        """How many activities run here."""
        return 0 if self._inner is None else len(self._inner.attempts.running)

    async def __aenter__(self) -> Self:
        self._session.check_usable()
        if self._inner is not None:
            raise UsageError("this worker runs already, or has run; make another one")
        self._inner = inner = self._local.make(self._registry, self._options)
        await self._local.start(inner)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        inner = self._inner
        if inner is None or inner.stopped.is_set():
            return  # the client was closed
        self._session.check_usable()
        try:
            if error is None and self._told_to_leave.is_set() and not self._told_to_stop.is_set():
                await self._first_of(inner.drain(), self._told_to_stop.wait(), seconds=self._drain_seconds)
        finally:
            await self._local.stop()

    async def wait(self) -> None:
        """Until it is told to leave: ``async with hf.Worker(...) as worker: ...; await worker.wait()``

        Raises `StoreReplaced` when the worker has halted because the files of its store were removed or replaced.
        """
        inner = self._inner
        if inner is not None and not inner.stopped.is_set():
            self._session.check_usable()
            await self._first_of(self._told_to_leave.wait(), inner.stopped.wait(), inner.halted.wait())
            if inner.failure is not None:
                raise inner.failure

    async def _first_of(self, *waits: Any, seconds: float | None = None) -> None:
        """Return when one of these is over, or so much time is; what goes wrong with one is raised."""
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
