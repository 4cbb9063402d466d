"""Looking for work: messages for the instances that are live here, instances to claim, attempts to run.

Whoever knows that there may be something rings (`look`). What no wake-up told of is found by looking now and then, and
what becomes due by itself (a timer, a retry) at its time.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.authoring.registry import Registry
from holdfast.core.leases import SUSPECT_AFTER, WorkerKey
from holdfast.core.run import ScheduledActivity
from holdfast.runtime.attempts.runner import AttemptRunner
from holdfast.runtime.committer import Committer
from holdfast.runtime.duties.expiry import Deadlines
from holdfast.runtime.turns.turn_taker import TurnTaker
from holdfast.storage.contract import Store
from holdfast.storage.members.attempts import ClaimAttempts
from holdfast.storage.members.instances import ClaimInstances
from holdfast.storage.members.outcomes import ClaimedAttempts, ClaimedInstances
from holdfast.storage.records import AttemptRecord, InstanceNumber, InstanceRecord

logger = logging.getLogger("holdfast")

POLL_SECONDS: Final = 1.0
"""How often a worker looks by itself for what no wake-up told it."""
CLAIM_BATCH: Final = 200
OF_AN_ATTEMPT: Final = b'"event":"activity_'
"""Stands in a message that is the answer of an attempt (or, rarely, in another one's data)."""


class Claimer:
    """Takes what there is to take for one worker."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        committer: Committer,
        runner: AttemptRunner,
        key: Callable[[], WorkerKey],
        *,
        queues: tuple[str, ...],
        deadlines: Deadlines,
    ) -> None:
        self._store = store
        self._registry = registry
        self._committer = committer
        self._runner = runner
        self._key = key
        self._deadlines = deadlines
        self._queues = queues
        self._names = tuple(registry.activities)
        self._workflows = tuple(registry.workflows)
        self._missed: set[str] = set()
        self._wake = asyncio.Event()
        self._is_closed = False
        self._taking = asyncio.Lock()
        self._last_row = self.looked_at_ms = 0
        self.has_backlog = False
        """Attempts wait that had no free slot at the last look: nobody who comes later overtakes them."""

    def poll(self) -> None:
        """There may be something to claim."""
        self._wake.set()

    def close(self) -> None:
        """Claim nothing more. What is being claimed is taken."""
        self._is_closed = True
        self.poll()

    async def run(self, instances: TurnTaker) -> None:
        """Claim and wait, until it is closed."""
        while not self._is_closed:
            self._wake.clear()
            try:
                claimed = await self._claim(instances)
                if not claimed:
                    await self._wait()
            except Exception as error:  # noqa: BLE001 - whatever it is, work goes on
                self._committer.trouble.log("a worker could not look for work, and tries again", error)
                await asyncio.sleep(POLL_SECONDS)

    async def _wait(self) -> None:
        """Until something becomes due. What was due at the last look and was not taken is not for us, or not now."""
        due_ms = await self.next_due_ms(self.looked_at_ms)
        wait = POLL_SECONDS
        if due_ms is not None:
            wait = min(wait, max(0.0, (due_ms - self._store.now_ms()) / 1000))
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._wake.wait()

    async def next_due_ms(self, after_ms: int = -1) -> int | None:
        return await self._store.next_due_ms(
            workflows=self._workflows, queues=self._queues, names=self._names, after_ms=after_ms
        )

    async def _claim(self, instances: TurnTaker) -> bool:
        """Take what there is to take. Whether anything was taken."""
        if instances.live.continued:
            await self.wake_continued(instances)
        await self.read_messages(instances)
        self.looked_at_ms = self._store.now_ms()
        due_ms = await self.next_due_ms()
        if due_ms is None or due_ms > self.looked_at_ms:
            self.has_backlog = False
            return False
        has_deadlines = await self._deadlines.expire_instances()
        has_instances = await self._claim_instances(instances)
        has_attempts = await self._claim_attempts()
        return has_deadlines or has_instances or has_attempts

    async def wake_continued(self, instances: TurnTaker) -> None:
        """Begin the executions that follow those which ended here (G4), unless somebody else has them by now."""
        live = instances.live
        while live.continued:
            number = next(iter(live.continued))
            try:
                record = await self._store.read_instance(number)
                if record is not None and record.owner == self._key() and number not in live:
                    await instances.wake(record)
            finally:
                live.continued.discard(number)

    async def read_messages(self, instances: TurnTaker) -> None:
        """Hand over what others left for instances that are live here. One look at a time: rows stay in order."""
        if not len(instances):
            return
        async with self._taking:
            rows = await self._store.read_inbox_of(self._key(), self._last_row)
            if not rows:
                return
            # A row of an instance that is about to become live here is read again; rows taken in before are known.
            waiting = [row.row for row in rows if row.number not in instances.live]
            seen = waiting[0] - 1 if waiting else max(self._last_row, rows[-1].row)
            self._last_row = 0  # if anything fails below, the next look is at everything
            attempts: dict[InstanceNumber, list[AttemptRecord]] = {}
            for row in rows:
                if row.number not in attempts and OF_AN_ATTEMPT in row.event:
                    attempts[row.number] = await self._store.read_attempts(row.number, row.execution)
            await instances.take_in(rows, attempts)
            self._last_row = seen

    async def _claim_instances(self, instances: TurnTaker, *, blocked: bool = False, build: str = "") -> bool:
        limit = min(instances.live.room(), CLAIM_BATCH) if self._workflows else 0
        if limit <= 0:
            return False
        failed_here = instances.first_failures
        outcome = await self._committer.commit(
            ClaimInstances(owner=self._key(), workflows=self._workflows, limit=limit, blocked=blocked, build=build)
        )
        if not isinstance(outcome, ClaimedInstances):
            return False
        waking = instances.live.waking
        waking.update(numbers := [record.number for record in outcome.instances])
        try:
            for record in outcome.instances:
                self._deadlines.record_deadline(record, self._key())
                await instances.wake(record)
                waking.discard(record.number)
                if record.losses >= SUSPECT_AFTER:
                    await self._try_alone(instances, record)
        finally:
            waking.difference_update(numbers)  # what one that cannot be read leaves behind it is given back by the net
        if not blocked and len(outcome.instances) < limit:  # all that could be claimed was
            instances.claimed_elsewhere(failed_here)
        return bool(outcome.instances)

    async def _try_alone(self, instances: TurnTaker, record: InstanceRecord) -> None:
        """G12: a turn on disk clears a suspect. One that takes none is let go of: who is not here is not accused."""
        await self._committer.drain()
        live = instances.live.get(record.number)
        if live is not None and live.turn == record.turn and not live.has_uncommitted_turn:
            instances.let_go(live)

    async def try_blocked(self, instances: TurnTaker, build: str) -> None:
        """G12: go on with what other builds could not; an empty `build` tries everything that is blocked."""
        if self._workflows and await self._store.has_blocked(self._workflows, build):
            await self._claim_instances(instances, blocked=True, build=build)

    async def _claim_attempts(self) -> bool:
        limit = min(self._runner.free, CLAIM_BATCH)
        if limit <= 0 or not self._names:
            self.has_backlog = bool(self._names)  # something waits, and the next free slot has to look for it
            return False
        for _ in range(limit):
            self._runner.reserve()
        taken: list[AttemptRecord] = []
        try:
            outcome = await self._committer.commit(
                ClaimAttempts(owner=self._key(), queues=self._queues, names=self._names, limit=limit)
            )
            if isinstance(outcome, ClaimedAttempts):
                taken = outcome.attempts
        finally:  # this task may be cancelled and started again; what it claimed is given up by the net (W3)
            self._runner.release(limit - len(taken))
        self.has_backlog = len(taken) == limit
        for attempt in taken:
            self._runner.start(attempt)
        return bool(taken)

    def serves(self, scheduled: ScheduledActivity) -> bool:
        """Whether a new attempt may start here at once: nobody who waits longer is overtaken."""
        mine = scheduled.options.queue in self._queues and scheduled.name in self._registry.activities
        if mine and self.has_backlog:
            return False
        if mine and self._runner.free <= 0:
            self.has_backlog = True
        if not mine and scheduled.options.queue in self._queues and scheduled.name not in self._missed:
            self._missed.add(scheduled.name)
            logger.warning(
                "no activity %r is registered here, though its queue %r is served: it waits for a worker that has it. "
                "Was it left out of modules= or activities=?",
                scheduled.name,
                scheduled.options.queue,
            )
        return mine
