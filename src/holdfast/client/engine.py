"""The engine: a client and a worker in one process, around one store."""

from collections.abc import Coroutine, Generator, Iterable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

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
from holdfast.runtime.session import ENGINE, StoreSession
from holdfast.runtime.worker import DEFAULT_CACHE_SIZE
from holdfast.storage.contract import Store


class Engine(Client):
    """Runs workflows in this process: ``async with Engine("shop.db", modules=[shop]) as engine: ...``

    `store` is a path, a URL (``postgresql://``), or an object that implements `holdfast.storage.contract.Store`, which
    the engine opens and closes; ``:memory:`` keeps everything in a private temporary file.
    It serves `queues`, else `default` and those of the activities that it has.
    It gives up its lease when its event loop has not run for `loop_timeout` seconds.
    `durability="relaxed"`, for a path or a URL, does not wait for the disk: after a power cut the newest steps may be
    gone, though never inconsistent. `payload_limit` is the largest argument list, result or event in bytes (32 MiB).
    """

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
        platform = _platform or Platform()
        limit = payload_limit_of(payload_limit)
        super().__init__(
            StoreSession(compose.open_store(store, durability, platform), platform, limit, ENGINE), registry
        )

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
        self._local.detach()
        self._calls.queries.stop()
        await self._session.close()

    @property
    def abandoned_threads(self) -> int:
        """How many threads of activities this engine has abandoned since it was opened: nothing stops a thread (A5).

        They were cancelled or beyond a time-out, and went on after a grace. A number that grows is a sign of bodies
        that hang. `workers()` has the number of abandoned bodies of every kind that still run.
        """
        worker = self._local.worker
        return 0 if worker is None else worker.attempts.abandoned_threads


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
        platform = _platform or Platform()
        limit = payload_limit_of(payload_limit)
        session = StoreSession(compose.open_store(store, durability, platform), platform, limit)
        client = Client(session, Registry(modules, workflows, (), flows))
        try:
            await session.open()
        except BaseException:
            await client.close()  # ends the threads of the store
            raise
        return client

    opened.__qualname__ = "holdfast.connect"  # Python's warning names it if it is never awaited
    return Connecting(opened(), store)
