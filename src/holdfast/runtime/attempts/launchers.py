"""Launches external activities: claims them for the launchers of a worker, and starts a program for each (C4).

QUEUED, in the name of the worker and with a random claim, is on disk before the launcher is called. A worker that is
lost before or after the call releases the attempt under a new exec id, so that another worker launches it again and
reports of a program that was launched under the old id are refused (W6). From the first report of the program on, the
attempt has no owner: it outlives the worker.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, cast

from holdfast.authoring.launcher import Launcher, LaunchTask
from holdfast.core.activity_options import DEFAULT_CLAIM_TIMEOUT_MS, decode_options
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.leases import WorkerKey
from holdfast.core.lifecycle import AttemptEvent
from holdfast.errors import HoldfastError, UsageError
from holdfast.payloads.failures import failure_of, qualified_name
from holdfast.runtime.signals import PollSignal, log_failed_attempt
from holdfast.runtime.worker_context import WorkerContext
from holdfast.storage.attempt_endings import end_by_failure
from holdfast.storage.contract import OPEN_CONTRACT, OpenContractStore
from holdfast.storage.members.outcomes import QueuedAttempts
from holdfast.storage.members.row_handling import QueueAttempts
from holdfast.storage.records import AttemptKey, AttemptRecord, OfferRecord

logger = logging.getLogger("holdfast")

POLL_SECONDS: Final = 1.0
"""The poll interval, for attempts whose notification was lost, and for retries."""
MOST_AT_ONCE: Final = 16
"""Calls of one launcher that run at once."""


class Launches:
    """The launches of one worker."""

    def __init__(self, context: WorkerContext, launchers: Mapping[str, Launcher]) -> None:
        if launchers and OPEN_CONTRACT not in getattr(context.session.store, "capabilities", ()):
            raise UsageError("launchers= needs a store with external activities, and this one has none")
        self._context = context
        self._store = cast("OpenContractStore", context.session.store)
        self._launchers = launchers
        activities = context.registry.activities.values()
        self._names = tuple(each.name for each in activities if each.options.external is not None)
        self._signal = PollSignal()
        self._is_closed = False
        self._calls: dict[str, set[asyncio.Task[None]]] = {queue: set() for queue in launchers}
        """The calls of each launcher that run."""
        self._held: dict[AttemptKey, WorkerKey] = {}
        """Attempts that are QUEUED in the name of this worker, as far as it is known here."""
        self._reported = asyncio.Event()
        """Set when `_held` may have become empty."""

    def poll(self) -> None:
        """Something may have become claimable."""
        if self._launchers:
            self._signal.set()

    def close(self) -> None:
        """Claim nothing more. `run` returns when the calls that run have ended."""
        self._is_closed = True
        self._signal.set()

    def evict_all(self) -> None:
        """W7: the lease is lost. The attempts are released by other workers, and the calls that run are cancelled."""
        self.forget(list(self._held))
        for calls in self._calls.values():
            for call in calls:
                call.cancel()

    def known(self, owner: WorkerKey | None = None) -> set[AttemptKey]:
        """Attempts that were claimed here and not reported since; with `owner`, only those under this key."""
        return {key for key, held_by in self._held.items() if owner is None or held_by == owner}

    def forget(self, keys: Iterable[AttemptKey]) -> None:
        """The store does not have these attempts in the name of this worker any more: their programs have reported."""
        for key in keys:
            self._held.pop(key, None)
        self._reported.set()

    async def wait_for_reports(self) -> None:
        """W10: wait until each launched program has reported, or its claim was released by its timeout."""
        while self._held:
            self._reported.clear()
            await self._reported.wait()

    async def run(self) -> None:
        """Claim and launch, until closed."""
        if not self._launchers:
            return
        if not self._names:
            logger.warning("launchers= is given, and no external activity is registered here: nothing is launched")
            return
        async with asyncio.TaskGroup() as group:
            while not self._is_closed:
                self._signal.clear()
                try:
                    for queue in self._launchers:
                        await self._claim(queue, group)
                except Exception as error:  # noqa: BLE001 - the next poll repeats it
                    self._context.session.trouble.log("a worker could not claim for a launcher, and tries again", error)
                await self._signal.wait_within(POLL_SECONDS)

    async def _claim(self, queue: str, group: asyncio.TaskGroup) -> None:
        room = self._room(queue)
        if room <= 0 or not await self._store.open_activities(limit=1, queues=[queue], names=self._names):
            return
        unique = self._context.session.platform.providers.unique_text
        claims = tuple(unique() + unique() for _ in range(room))
        owner = self._context.lease.key
        member = QueueAttempts(owner=owner, queue=queue, names=self._names, claims=claims)
        outcome = await self._context.committer.commit(member)
        if not isinstance(outcome, QueuedAttempts):
            return
        calls = self._calls[queue]
        for offer, claim in zip(outcome.offers, claims, strict=False):
            self._held[offer.attempt.key] = owner
            call = group.create_task(self._launch(self._launchers[queue], offer, claim))
            calls.add(call)
            call.add_done_callback(partial(self._ended, queue))

    def _room(self, queue: str) -> int:
        """How many attempts may be claimed for a launcher now."""
        room = MOST_AT_ONCE - len(self._calls[queue])
        own: int | None = getattr(self._launchers[queue], "room", None)
        return room if own is None else min(room, own - len(self._calls[queue]))

    def _ended(self, queue: str, call: "asyncio.Task[None]") -> None:
        self._calls[queue].discard(call)
        self._signal.set()

    async def _launch(self, launcher: Launcher, offer: OfferRecord, claim: str) -> None:
        attempt = offer.attempt
        if attempt.owner is None or self._context.lease.remaining_ms(attempt.owner) <= 0:
            return  # W7: another worker may have released it
        external = decode_options(attempt.options).external
        timeout_ms = DEFAULT_CLAIM_TIMEOUT_MS if external is None else external.claim_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / MILLISECONDS):
                await launcher.launch(task_of(offer, claim))
        except asyncio.CancelledError as error:
            this = asyncio.current_task()
            if this is None or this.cancelling():
                self.forget([attempt.key])  # whether it was launched is unknown: the claim is released (W3)
                raise
            self._failed(attempt, HoldfastError(f"the launch cancelled itself: {error}"))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the failure of the attempt
            self._failed(attempt, error)

    def _failed(self, attempt: AttemptRecord, error: Exception) -> None:
        """QUEUED -> FAILED, unless the program was started after all and has reported."""
        failure = failure_of(error)
        now_ms = self._store.now_ms()
        ended = end_by_failure(
            attempt,
            failure,
            tuple(qualified_name(cls) for cls in type(error).__mro__),
            event=AttemptEvent.FAIL,
            now_ms=now_ms,
            random_number=self._context.session.platform.providers.random_number(),
        )
        self._context.commit_then_poll(ended)
        log_failed_attempt(attempt, failure, ended, now_ms=now_ms)


def task_of(offer: OfferRecord, claim: str) -> LaunchTask:
    """The task of an offer for a launcher."""
    attempt = offer.attempt
    key = attempt.key
    return LaunchTask(
        activity_exec_id=offer.exec_id,
        activity_name=attempt.name,
        workflow_exec_id=attempt.instance_id,
        workflow_name=attempt.workflow,
        queue=attempt.queue,
        attempt=key.attempt,
        idempotency_key=f"{attempt.instance_id}/{key.number}/{key.execution}/{key.activity}",
        input=attempt.input.decode(),
        claim=claim,
    )
