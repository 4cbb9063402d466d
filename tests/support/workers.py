"""Workers that are built and never started, for tests of their parts."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from holdfast.authoring.registry import Registry
from holdfast.core.leases import WorkerKey
from holdfast.runtime.platform import Platform, SystemClockAndIds
from holdfast.runtime.session import StoreSession
from holdfast.runtime.worker import WorkerRuntime
from holdfast.runtime.worker_context import WorkerOptions
from holdfast.storage.contract import OpenableStore

NEVER_MS = 2**53


class EndlessLease:
    """A lease that never ends and sends no heartbeats."""

    def __init__(self, key: str) -> None:
        self.key = WorkerKey(key)
        self.fenced_at_ms = NEVER_MS

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""

    def stop_beating(self) -> None:
        """Nothing to stop."""


class LoadedDice(SystemClockAndIds):
    """The real clock, with one random number."""

    def __init__(self, chance: float) -> None:
        super().__init__()
        self._chance = chance

    def random_number(self) -> float:
        return self._chance


@contextmanager
def unstarted_worker(
    store: OpenableStore, *definitions: Any, key: str = "anna", chance: float = 0.0, slots: int = 1
) -> Generator[WorkerRuntime]:
    """The worker `key` of a store, whose tasks do not run. It dies on another machine as far as others can see."""
    platform = Platform(providers=LoadedDice(chance), watch_turns=False, detect_local_deaths=False)
    options = WorkerOptions(
        queues=("default",), max_activities=slots, cache_size=10, lease_ms=10_000, loop_timeout_ms=None
    )
    worker = WorkerRuntime(StoreSession(store, platform), Registry((), (), definitions), options)
    use_key(worker, key)
    try:
        yield worker
    finally:
        worker.runs.stop(is_clean=False)


def use_key(worker: WorkerRuntime, key: str) -> None:
    """Let a worker that was not started act under a key."""
    worker.lease._holder = EndlessLease(key)
    worker.lease.key = WorkerKey(key)
