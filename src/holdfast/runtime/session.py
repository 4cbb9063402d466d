"""One process and one store, from open to close.

A session holds what the client and the worker of one process share: the store, the platform, the waiters for results,
the change signal, the notifier and the log of store errors. It belongs to the event loop that opened it, and refuses
calls from any other.

The runtime publishes every commit here and never calls the client. The worker of the process, if one runs, is reached
by the protocol `LocalWorker`.
"""

import asyncio
from asyncio import _get_running_loop
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.core.leases import WorkerKey
from holdfast.errors import (
    ClientClosed,
    HoldfastError,
    NotInWorkflow,
    StoreError,
    StoreReplaced,
    UsageError,
    WrongEventLoop,
)
from holdfast.fork import generation
from holdfast.payloads.limits import PayloadLimit
from holdfast.replay.run import current_run
from holdfast.runtime.claimants import Claimants
from holdfast.runtime.importing import refuse_while_importing
from holdfast.runtime.observing import Untraced
from holdfast.runtime.platform import Platform
from holdfast.runtime.signals import ChangeSignal, ResultWaiters, trouble_of
from holdfast.storage.contract import Notifier, OpenableStore
from holdfast.storage.records import AttemptKey, InstanceId, InstanceNumber
from holdfast.storage.wakeups import Wakeup, Wakeups

if TYPE_CHECKING:
    from holdfast.runtime.observing import CommitObserver, Spans


class LocalWorker(Protocol):
    """The worker of this process, as commits and notifications reach it."""

    def poll(self) -> None:
        """Poll for work: something may have become claimable."""
        ...

    @property
    def key(self) -> WorkerKey | None:
        """The key under which it owns instances; None while it is not registered."""
        ...

    def woken(self, wakeup: Wakeup) -> None:
        """Poll for what another process has made claimable, if this worker can claim it."""
        ...

    def poll_contract_rows(self, name: str | None) -> None:
        """Poll for rows that clients of the open contract inserted: `requests:` and the name of a workflow,
        `activity_events:` and the name of an activity, or None for any rows."""
        ...

    def instance_closed(self, number: InstanceNumber) -> None:
        """An instance was closed by a commit other than its own turn, so it is no longer live."""
        ...

    def activity_cancelled(self, key: AttemptKey, *, is_running: bool) -> None:
        """A commit of a client cancelled an attempt: its body, if it runs here, has to stop."""
        ...

    def halt(self, error: StoreReplaced) -> None:
        """The files of the store are gone: claim and run nothing more. A second call does nothing."""
        ...


@dataclass(frozen=True, slots=True)
class SessionOwner:
    """The public object that opens a session, for messages."""

    name: str
    usage: str
    """How such an object is made and opened."""


CLIENT: Final = SessionOwner("this client", "`async with hf.connect(...) as client:`")
ENGINE: Final = SessionOwner("this engine", "`async with hf.Engine(...) as engine:`")


class StoreSession:
    """The shared state of the client and the worker of one process. It is opened once and closed once."""

    def __init__(
        self,
        store: OpenableStore,
        platform: Platform,
        payload_limit: PayloadLimit | None = None,
        owner: SessionOwner = CLIENT,
    ) -> None:
        self.store = store
        self.platform = platform
        self.payload_limit = payload_limit or PayloadLimit()
        """The largest payload that the client sends; a worker may have a limit of its own."""
        self.owner = owner
        self.name = platform.providers.unique_text()
        """The name by which other processes wake this one."""
        self.trouble = trouble_of(store.companion_path, platform.providers.elapsed_ms)
        self.results = ResultWaiters(store, self.trouble)
        self.changes = ChangeSignal(store)
        self._claimants = Claimants(store, platform.providers.elapsed_ms)
        self.notifier: Notifier | None = None
        self.worker: LocalWorker | None = None
        """Set while a worker runs in this process."""
        self.observer: CommitObserver | None = None
        """Receives what this process commits, for metrics (M1) and spans (M4)."""
        self.spans: Spans = Untraced()
        self.is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._generation = generation()

    async def open(self) -> None:
        """Open the store and listen for notifications of other processes."""
        refuse_while_importing()
        if self.is_closed:
            raise ClientClosed(
                f"{self.owner.name} was closed and cannot be opened again; make another one: {self.owner.usage}"
            )
        if self._loop is not None:
            raise UsageError(
                f"{self.owner.name} is open already; use it as it is, or make another one: {self.owner.usage}"
            )
        await self.store.open()
        self._loop = asyncio.get_running_loop()
        self.notifier = self.platform.notifier(self.store, self.name, self.notified)
        self.notifier.open()

    def use_open_store(self) -> None:
        """Work on a store that was opened for reading. The caller closes the store."""
        self._loop = asyncio.get_running_loop()

    async def close(self, reason: ClientClosed | None = None) -> None:
        """Close the store. Coroutines that still wait raise `reason`, or are cancelled if it is None.

        A second call does nothing.
        """
        self._loop = None
        self.is_closed = True
        self._stop_waiting(reason)
        if self.notifier is not None:
            self.notifier.close()
            self.notifier = None
        await self.store.close()

    # ------------------------------------------------------------ event loop

    @property
    def is_open(self) -> bool:
        """Whether the session was opened and is not closed."""
        return self._loop is not None

    def check_usable(self) -> None:
        """Refuse a call before `open`, after `close`, and from any event loop but the one that opened the session.

        Committer, waiters and worker are tasks and futures of that loop. Another loop would wait for them without ever
        being woken, and would corrupt their state from its own thread.
        """
        loop = self._loop
        if loop is None or _get_running_loop() is not loop:
            raise self._refusal()

    def call_on_loop(self, call: Callable[[], None]) -> None:
        """Call a function on the loop of this session: at once if that loop runs here, else thread-safely."""
        loop = self._loop
        if loop is None or loop.is_closed() or _get_running_loop() is loop:
            call()
        else:
            loop.call_soon_threadsafe(call)

    def _refusal(self) -> HoldfastError:
        name = self.owner.name
        usage = self.owner.usage
        loop = self._loop
        if current_run() is not None:
            return NotInWorkflow(
                f"workflow code called {name}, which replay cannot repeat; call it in an activity, "
                "or use hf.start for a child and hf.raise_event for an event"
            )
        if self._generation != generation():
            return StoreError(f"{name} was opened before this process was forked; make another one: {usage}")
        if self.is_closed:
            return ClientClosed(f"{name} is closed; make another one: {usage}")
        if loop is None:
            return UsageError(f"{name} is not open; write {usage}")
        if loop.is_closed():
            return WrongEventLoop(
                f"the event loop that opened {name} is closed; open and use it within one asyncio.run(...)"
            )
        return WrongEventLoop(
            f"{name} belongs to another event loop; from other threads call it by "
            "asyncio.run_coroutine_threadsafe(engine.start(...), loop).result(), "
            "where loop is the event loop that opened it"
        )

    # ------------------------------------------------------------ worker and clients

    def set_worker(self, worker: LocalWorker | None) -> None:
        """Set the worker of this process, or None when it ends. Only a worker watches for rows of clients (C2-C4)."""
        self.worker = worker
        watch_rows = getattr(self.notifier, "watch_rows", None)
        if watch_rows is not None:
            watch_rows(None if worker is None else self.rows_inserted)

    def rows_inserted(self, kind_and_name: str | None) -> None:
        """Clients of the open contract inserted rows: let the worker of this process look (see `RowNotifier`)."""
        if self.worker is not None:
            self.worker.poll_contract_rows(kind_and_name)

    def rows_handled(self, table: str, ids: Sequence[str]) -> None:
        """Notify clients of rows that a commit of this process has handled."""
        notify = getattr(self.notifier, "rows_handled", None)
        if notify is not None:
            notify(table, ids)

    def offered(self, queues: Collection[str]) -> None:
        """Notify executors of queues in which a commit of this process has made external attempts READY."""
        notify = getattr(self.notifier, "offered", None)
        if notify is not None:
            notify(queues)

    # ------------------------------------------------------------ changes in the store

    def notified(self, wakeup: Wakeup) -> None:
        """Another process has committed something that concerns this one: poll for that."""
        if wakeup.everything:
            self.results.poll()
        elif wakeup.instances:
            self.results.woken(wakeup.instances)
        if wakeup.everything or wakeup.instances or wakeup.replies or wakeup.queues:
            self.changes.notify()
        if self.worker is not None:
            self.worker.woken(wakeup)

    def wake_others(self, wakeups: Wakeups) -> None:
        """Wake other processes after a commit of this one."""
        if self.notifier is not None:
            others = wakeups.without(self.name, None if self.worker is None else self.worker.key)
            if others.to_all.workflows:
                others = Wakeups(to_all=self._claimants.named(others.to_all), to_each=others.to_each)
            self.notifier.notify(others)

    def poll(self) -> None:
        """Poll for results, changes and work of this process."""
        self.results.poll()
        self.changes.notify()
        self.poll_work()

    def poll_work(self) -> None:
        """Let the worker of this process poll for work, if one runs."""
        if self.worker is not None:
            self.worker.poll()

    def instance_closed(self, instance_id: InstanceId, number: InstanceNumber) -> None:
        """A commit of this process closed an instance other than by its own turn: a waiter has to read the result."""
        if self.worker is not None:
            self.worker.instance_closed(number)
        self.results.ended(instance_id, number)

    def activity_cancelled(self, key: AttemptKey, *, is_running: bool) -> None:
        """A commit of this process cancelled an attempt. If it was not running, the answer is in the inbox."""
        if self.worker is not None:
            self.worker.activity_cancelled(key, is_running=is_running)
        self.poll()

    def store_replaced(self, error: StoreReplaced) -> None:
        """The files of the store are gone: halt the worker; coroutines that wait raise `error`.

        Later calls get the same error from the store.
        """
        if self.worker is not None:
            self.worker.halt(error)
        self._stop_waiting(error)

    def _stop_waiting(self, error: HoldfastError | None) -> None:
        self._claimants.stop()
        self.results.stop(error)
        self.changes.stop(error)
