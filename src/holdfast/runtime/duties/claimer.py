"""Claims instances and attempts, and wakes the instances.

The claimer polls when it is woken (`context.work`), when something becomes due (a timer, a retry), and once a second
for changes whose notification was lost.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from holdfast.core.leases import SUSPECT_AFTER
from holdfast.runtime.attempts.launchers import Launches
from holdfast.runtime.attempts.runner import AttemptRunner
from holdfast.runtime.attempts.slots import ActivitySlots
from holdfast.runtime.duties.expiry import Expiry
from holdfast.runtime.signals import batched
from holdfast.runtime.turns.messages import InboxReader
from holdfast.runtime.turns.owned_instances import OwnedInstances
from holdfast.runtime.turns.turn_taker import TurnTaker
from holdfast.runtime.worker_context import WorkerContext
from holdfast.storage.members.attempts import ClaimAttempts
from holdfast.storage.members.instances import ClaimInstances
from holdfast.storage.members.outcomes import ClaimedAttempts, ClaimedInstances
from holdfast.storage.records import AttemptRecord, InstanceNumber, InstanceRecord, LoadedInstance, NextDue

POLL_SECONDS: Final = 1.0
"""The poll interval, for changes whose notification was lost."""
CLAIM_BATCH: Final = 200
AFTER_OTHERS_SECONDS: Final = 0.02
"""When a worker polls after a wake-up that names another one, which may be busy, full or dead."""
LOAD_BATCH: Final = 50
"""Instances whose rows are read together and are in memory at the same time."""
LONGEST_WAKE_SECONDS: Final = 0.01
"""How long claimed instances are woken before other tasks of the event loop run."""


def is_due(at_ms: int | None, now_ms: int) -> bool:
    return at_ms is not None and at_ms <= now_ms


class Claimer:
    """Claims work for one worker."""

    def __init__(
        self,
        context: WorkerContext,
        instances: OwnedInstances,
        turns: TurnTaker,
        *,
        attempts: AttemptRunner,
        slots: ActivitySlots,
        inbox: InboxReader,
        expiry: Expiry,
        launches: Launches,
        queues: tuple[str, ...],
    ) -> None:
        self._context = context
        self._store = context.session.store
        self._instances = instances
        self._live = instances.live
        self._turns = turns
        self._attempts = attempts
        self._slots = slots
        self._inbox = inbox
        self._expiry = expiry
        self._launches = launches
        self._queues = queues
        self._workflows = tuple(context.registry.workflows)
        self._versions = context.registry.versions
        self._is_closed = False
        self.polled_at_ms = 0

    def close(self) -> None:
        """Claim nothing more. A claim that is being committed is run."""
        self._is_closed = True
        self._context.work.set()

    async def run(self) -> None:
        """Claim and wait, until the claimer is closed."""
        while not self._is_closed:
            self._context.work.begin_poll()
            self._launches.poll()
            try:
                claimed, due = await self._claim()
                if not claimed:
                    was_due = is_due(due.earliest_ms, self.polled_at_ms)
                    await self._wait(await self.next_due_ms() if was_due else due.earliest_ms)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next poll may succeed
                self._context.session.trouble.log("a worker could not poll for work, and tries again", error)
                await asyncio.sleep(POLL_SECONDS)

    async def _wait(self, due_ms: int | None) -> None:
        """Wait for the signal or the next due time. Messages for live instances are read meanwhile."""
        work = self._context.work
        wait = POLL_SECONDS
        if due_ms is not None:
            wait = min(wait, max(0.0, (due_ms - self._store.now_ms()) / 1000))
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + wait
        while (left := ends_at - loop.time()) > 0:
            await work.wait_within(left)
            if not (work.is_set() and work.is_for_messages):
                return
            work.clear()
            await self._inbox.read()

    async def next_due(self, after_ms: int = -1) -> NextDue:
        """When the next rows that this worker could claim are due."""
        return await self._store.next_due(
            workflows=self._workflows,
            versions=self._versions,
            queues=self._queues,
            names=self._context.registry.runnable,
            after_ms=after_ms,
        )

    async def next_due_ms(self) -> int | None:
        """The earliest of these times. Rows that were due at the last poll and not claimed are skipped."""
        return (await self.next_due(self.polled_at_ms)).earliest_ms

    async def _claim(self) -> tuple[bool, NextDue]:
        """Claim what is due. Returns whether there was anything, and the times that were read before."""
        if self._live.continued:
            await self.wake_continued()
        await self._inbox.read()
        now_ms = self.polled_at_ms = self._store.now_ms()
        self._slots.begin_poll()
        due = await self.next_due()
        claimed = False
        if is_due(due.expiry_ms, now_ms):
            claimed |= await self._expiry.expire_instances()
        if is_due(due.instance_ms, now_ms):
            claimed |= await self._claim_instances()
        if is_due(due.attempt_ms, now_ms):
            claimed |= await self._claim_attempts()
        else:
            self._slots.note_backlog(has_backlog=False)
        return claimed, due

    # ------------------------------------------------------------ instances

    async def wake_continued(self) -> None:
        """Wake the executions that follow those which ended here (G4), unless another worker has claimed them."""
        live = self._live
        while live.continued:
            number = next(iter(live.continued))
            try:
                record = await self._store.read_instance(number)
                if record is not None and record.owner == self._context.lease.key and number not in live:
                    await self._wake(record)
            finally:
                live.end_continue(number)

    async def _wake(self, record: InstanceRecord, loaded: LoadedInstance | None = None) -> None:
        live = await self._instances.wake(record, loaded)
        if live is not None:
            self._turns.take(live)

    async def _claim_instances(self, *, blocked: bool = False, build: str = "") -> bool:
        limit = min(self._live.room(), CLAIM_BATCH) if self._workflows else 0
        if limit <= 0:
            return False
        failed_here = self._instances.first_failures
        owner = self._context.lease.key
        outcome = await self._context.committer.commit(
            ClaimInstances(
                owner=owner,
                workflows=self._workflows,
                versions=self._versions,
                limit=limit,
                blocked=blocked,
                build=build,
            )
        )
        if not isinstance(outcome, ClaimedInstances):
            return False
        numbers = [record.number for record in outcome.instances]
        self._live.begin_wake(numbers)
        try:
            for batch in batched(outcome.instances, LOAD_BATCH):
                await self._wake_all(batch)
        finally:
            self._live.end_wake(numbers)  # the reconciler releases the rest after one that cannot be read
        if not blocked and len(outcome.instances) < limit:  # every claimable instance was claimed
            self._instances.claimed_elsewhere(failed_here)
        return bool(outcome.instances)

    async def _wake_all(self, records: Sequence[InstanceRecord]) -> None:
        loop = asyncio.get_running_loop()
        loaded = await self._load(records)
        began = loop.time()
        for record in records:
            self._expiry.record_deadline(record)
            await self._wake(record, loaded.pop(record.number, None))
            self._live.end_wake([record.number])
            if record.losses >= SUSPECT_AFTER:
                await self._try_alone(record)
            if loop.time() - began > LONGEST_WAKE_SECONDS:
                await asyncio.sleep(0)
                began = loop.time()

    async def _load(self, records: Sequence[InstanceRecord]) -> dict[InstanceNumber, LoadedInstance]:
        """The rows of claimed instances, in one read.

        A suspect is loaded alone: its rows may be what its owners were lost by (G12). If a row cannot be read, each
        instance is loaded alone, so that the others are woken.
        """
        together = [(each.number, each.execution) for each in records if each.losses < SUSPECT_AFTER]
        if len(together) <= 1:
            return {}
        try:
            loaded = await self._store.load_many(together)
        except Exception as error:  # noqa: BLE001 - the load of one instance raises it again
            self._context.session.trouble.log("claimed instances could not be loaded together", error)
            return {}
        return {number: each for (number, _), each in zip(together, loaded, strict=True)}

    async def _try_alone(self, record: InstanceRecord) -> None:
        """G12: a committed turn clears a suspect. One that takes no turn is released, so that it is not counted as a
        cause if the worker is lost later.
        """
        await self._context.committer.drain()
        live = self._live.get(record.number)
        if live is not None and live.turn == record.turn and not live.has_uncommitted_turn:
            self._instances.release(live)

    async def try_blocked(self, build: str) -> None:
        """G12: claim instances that other builds blocked; with an empty `build` all that are blocked."""
        if self._is_closed or not self._workflows:
            return
        if await self._store.has_blocked(self._workflows, build, self._versions):
            await self._claim_instances(blocked=True, build=build)

    # ------------------------------------------------------------ attempts

    async def _claim_attempts(self) -> bool:
        slots = self._slots
        limit = slots.reserve(CLAIM_BATCH) if self._context.registry.runnable else 0
        if limit == 0:
            slots.note_backlog(
                has_backlog=bool(self._context.registry.runnable)
            )  # something is due: the next free slot has to poll for it
            return False
        claimed: list[AttemptRecord] = []
        owner = self._context.lease.key
        try:
            outcome = await self._context.committer.commit(
                ClaimAttempts(owner=owner, queues=self._queues, names=self._context.registry.runnable, limit=limit)
            )
            if isinstance(outcome, ClaimedAttempts):
                claimed = outcome.attempts
        finally:  # this task may be cancelled and started again; the reconciler releases its claim then (W3)
            slots.release(limit - len(claimed))
        slots.note_backlog(has_backlog=len(claimed) == limit)
        for attempt in claimed:
            self._attempts.start(attempt)
        return bool(claimed)
