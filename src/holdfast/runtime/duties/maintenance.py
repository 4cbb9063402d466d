"""The maintenance loop of a worker: duties that any worker does, concurrently with others (C1, C5).

Each round checks this worker's lease, lost workers, expired attempts, children of closed executions and blocked
instances, and prunes a piece of what is no longer needed. Every duty ends in conditional updates.
"""

import asyncio
from typing import Final

from holdfast.errors import StoreReplaced
from holdfast.runtime.duties.claimer import Claimer
from holdfast.runtime.duties.expiry import Expiry
from holdfast.runtime.duties.lost_workers import LostWorkers
from holdfast.runtime.worker_context import WorkerContext
from holdfast.storage.members.instances import CloseChildren
from holdfast.storage.members.outcomes import Applied
from holdfast.storage.records import InstanceNumber

POLL_SECONDS: Final = 1.0
"""The longest pause between two rounds."""
CHILDREN: Final = 200
"""Children that one commit closes."""
PARENTS: Final = 100
"""Closed executions with open children that one round works on."""
PRUNE_EVERY_MS: Final = 600_000
"""From the end of one pruning, of which each round does a piece, to the next. The first begins in the first round."""


class Maintenance:
    """Runs the rounds of one worker."""

    def __init__(self, context: WorkerContext, claimer: Claimer, lost_workers: LostWorkers, expiry: Expiry) -> None:
        self._context = context
        self._store = context.session.store
        self._claimer = claimer
        self._lost_workers = lost_workers
        self._expiry = expiry
        self._prune_at_ms = 0

    async def run(self) -> None:
        """Run rounds until cancelled."""
        while True:
            await asyncio.sleep(self._lost_workers.pause_seconds(POLL_SECONDS))
            self._context.lease.check()
            try:
                if await self.round():
                    self._context.work.set()
                await self._claimer.try_blocked(self._context.build)
            except StoreReplaced as error:  # noticed by a heartbeat, or by another engine of this process
                self._context.session.store_replaced(error)
            except Exception as error:  # noqa: BLE001 - the next round repeats it
                self._context.session.trouble.log("a round of maintenance failed and is repeated", error)

    async def round(self) -> bool:
        """One round. Returns whether anything became claimable."""
        found = await self._lost_workers.check()
        found |= await self._expiry.expire_attempts()
        for number, execution in await self._store.open_closings(PARENTS):
            found |= await self._close_children(number, execution)
        await self._prune()
        return found

    async def _close_children(self, number: InstanceNumber, execution: int) -> bool:
        """C1: close the children that the end of their parent left, because one commit may close so many only."""
        closed = False
        while True:
            member = CloseChildren(number=number, execution=execution, limit=CHILDREN)
            outcome = await self._context.committer.commit(member)
            if not isinstance(outcome, Applied) or outcome.changed == 0:
                return closed
            closed = True

    async def _prune(self) -> None:
        """By time and not by the number of writes: short-lived and idle workers prune, too."""
        now_ms = self._store.now_ms()
        if now_ms >= self._prune_at_ms and not await self._store.prune():
            self._prune_at_ms = now_ms + PRUNE_EVERY_MS
