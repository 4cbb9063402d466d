"""Which worker claims first what a commit made claimable.

A wake-up for claimable instances reaches every worker that has the workflow. If all of them polled at once, one would
claim what is there and the others nothing. So the sender names one worker after the other in its wake-ups; the others
poll a moment later (`Claimer`), and find what the named worker has not claimed, because it is busy, full or dead.

A process that sends such wake-ups reads the workers of the store, every two seconds at most. Until it has read them,
and while only one worker serves a workflow, it names none, and every worker polls at once.
"""

import json
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from holdfast.background import BackgroundTask, Duty
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.leases import WorkerKey, WorkerState
from holdfast.errors import StoreError
from holdfast.storage.contract import OpenableStore
from holdfast.storage.records import WorkerRow
from holdfast.storage.wakeups import Wakeup

REFRESH_SECONDS: Final = 2.0
"""How long the workers that were read are used."""


class Claimants:
    """Names workers in the wake-ups of one process, in turn."""

    def __init__(self, store: OpenableStore, elapsed_ms: Callable[[], float]) -> None:
        self._store = store
        self._elapsed_ms = elapsed_ms
        self._reading = BackgroundTask(Duty.CLAIMANTS, self._read)
        self._read_at_ms: float | None = None
        self._by_workflow: dict[str, list[WorkerKey]] = {}
        """The workers of each workflow that several workers serve."""
        self._turn = 0

    def named(self, wakeup: Wakeup) -> Wakeup:
        """The wake-up, with a worker for each of its workflows if several serve it."""
        if not wakeup.workflows:
            return wakeup
        if self._read_at_ms is None or self._elapsed_ms() - self._read_at_ms > REFRESH_SECONDS * MILLISECONDS:
            self._reading.start()
        if not self._by_workflow.keys() >= wakeup.workflows:
            return wakeup
        self._turn += 1
        served = [self._by_workflow[workflow] for workflow in wakeup.workflows]
        return msgspec.structs.replace(wakeup, claimants=frozenset(keys[self._turn % len(keys)] for keys in served))

    def stop(self) -> None:
        """Read no more."""
        self._reading.stop()

    async def _read(self) -> None:
        try:
            rows = await self._store.workers()
        except StoreError:
            rows = []  # every worker polls, until they can be read
        self._by_workflow = _by_workflow(rows, self._store.now_ms())
        self._read_at_ms = self._elapsed_ms()


def _by_workflow(rows: Iterable[WorkerRow], now_ms: int) -> dict[str, list[WorkerKey]]:
    found: dict[str, list[WorkerKey]] = {}
    for row in rows:
        if row.state == WorkerState.ACTIVE and row.deadline_ms > now_ms:
            for workflow in json.loads(row.workflows or "[]"):
                found.setdefault(workflow, []).append(row.key)
    return {workflow: sorted(keys) for workflow, keys in found.items() if len(keys) > 1}
