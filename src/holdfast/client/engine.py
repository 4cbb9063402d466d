"""The engine: a client and a worker in one process, around one store."""

import logging
from collections.abc import Coroutine, Generator, Iterable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, ClassVar, Self

from holdfast import compose
from holdfast.authoring.activity import AnyActivity
from holdfast.authoring.registry import Registry
from holdfast.authoring.validation import Duration
from holdfast.authoring.workflow import AnyWorkflow
from holdfast.client.client import Client
from holdfast.client.embedded_worker import DEFAULT_MAX_ACTIVITIES, payload_limit_of, worker_options
from holdfast.core.leases import LOOP_TIMEOUT_MS, WORKER_LEASE_MS
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES
from holdfast.runtime.platform import Platform
from holdfast.runtime.session import ENGINE, SessionOwner
from holdfast.runtime.worker import DEFAULT_CACHE_SIZE, WorkerRuntime
from holdfast.storage.contract import Store

logger = logging.getLogger("holdfast")


class Engine(Client):
    """Runs workflows in this process: ``async with Engine("shop.db", modules=[shop]) as engine: ...``

    `store` is a path, a URL (``postgresql://``), or an object that implements `holdfast.storage.contract.Store`, which
    the engine opens and closes; ``:memory:`` keeps everything in a private temporary file.
    It serves `queues`, else `default` and those of the activities that it has.
    It gives up its lease when its event loop has not run for `loop_timeout` seconds.
    `durability="relaxed"`, for a path or a URL, does not wait for the disk: after a power cut the newest steps may be
    gone, though never inconsistent. `payload_limit` is the largest argument list, result or event in bytes (32 MiB).
    """

    _owner: ClassVar[SessionOwner] = ENGINE

    def __init__(
        self,
        store: str | Path | Store,
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
        durability: str = "full",
        payload_limit: int = PAYLOAD_LIMIT_BYTES,
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
        )
        world = _platform or Platform()
        limit = payload_limit_of(payload_limit)
        super().__init__(compose.open_store(store, durability, world), registry, world, limit)
        self._missed: set[str] = set()

    async def open(self) -> None:
        """Open the store and start the worker: what `async with` does first. `close` ends both."""
        await super().open()
        try:
            await self.start_worker(self._new_worker())
        except BaseException:
            await self.close()
            raise

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    def _new_worker(self) -> WorkerRuntime:
        return self.make_worker(self._registry, self._options)

    async def _kill(self) -> None:
        """Close the store without committing anything, as a killed process does. For tests."""
        self._worker = None
        self._session.worker = None
        self.asking.stop()
        await self._session.close()

    def _note_unknown(self, workflow: str) -> None:
        """Started for others, or by mistake: nobody knows but who reads the log. Once for each name."""
        if workflow not in self._registry.workflows and workflow not in self._missed:
            self._missed.add(workflow)
            known = ", ".join(sorted(self._registry.workflows)) or "none"
            logger.warning(
                "no workflow %r is registered here (known: %s): its instances wait for a worker that has it",
                workflow,
                known,
            )

    @property
    def abandoned_threads(self) -> int:
        """How many threads of activities this engine has abandoned since it was opened: nothing stops a thread (A5).

        They were cancelled or beyond a time-out, and went on after a grace. A number that grows is a sign of bodies
        that hang. `workers()` has the number of abandoned bodies of every kind that still run.
        """
        return 0 if self._worker is None else self._worker.attempts.abandoned_threads


class Connecting(Coroutine[Any, Any, Client]):
    """A client that is about to open: ``client = await hf.connect(...)``, or ``async with hf.connect(...) as client:``.

    It is a coroutine, so that `asyncio.run`, `create_task` and `wait_for` take it, with the two methods of an
    asynchronous context manager.
    """

    def __init__(self, opening: Coroutine[Any, Any, Client], store: object) -> None:
        self._opening = opening
        self._store = store
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, Any, Client]:
        return self._opening.__await__()

    def send(self, value: Any) -> Any:
        return self._opening.send(value)

    def throw(self, *error: Any) -> Any:
        return self._opening.throw(*error)

    def close(self) -> None:
        self._opening.close()

    async def __aenter__(self) -> Client:
        self._client = await self._opening
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()

    def __repr__(self) -> str:
        return f"<hf.connect({str(self._store)!r}), not awaited>"


def connect(
    store: str | Path | Store,
    *,
    modules: Iterable[ModuleType] = (),
    workflows: Iterable[AnyWorkflow] = (),
    flows: Iterable[AnyWorkflow] = (),
    durability: str = "full",
    payload_limit: int = PAYLOAD_LIMIT_BYTES,
    _platform: Platform | None = None,
) -> Connecting:
    """A client without a worker. Workers may be other processes, now or later. `store` is what `Engine` takes.

    ``async with hf.connect("shop.db") as client:`` closes the client at the end of the block.
    ``client = await hf.connect("shop.db")`` leaves that to ``await client.close()``.
    """

    async def opened() -> Client:
        world, limit = _platform or Platform(), payload_limit_of(payload_limit)
        opened_store = compose.open_store(store, durability, world)
        client = Client(opened_store, Registry(modules, workflows, (), flows), world, limit)
        try:
            await client.open()
        except BaseException:
            await client.close()  # ends the threads of the store
            raise
        return client

    opened.__qualname__ = "holdfast.connect"  # Python's warning names it if it is never awaited
    return Connecting(opened(), store)
