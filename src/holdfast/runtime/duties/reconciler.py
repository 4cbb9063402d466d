"""Reconciles the rows in this worker's name with what the worker holds in memory (W3).

A commit can be on disk although its outcome is unknown here: the reply was lost, or the receiver of the outcome failed.
Then an attempt is RUNNING whose body runs nowhere, or an instance is owned that is live nowhere. With each heartbeat
the worker reads the rows in its name, compares them with memory, and releases the unknown ones, so that they are run
again (A10).

The other direction: bodies whose attempt was cancelled or ended by another process are asked to stop (A9, A5), and
live instances that another worker owns are evicted.

A row whose commit is still being reported is never released: a row counts as unknown only if two polls did not know
it, and the group that was being written at the first poll had been reported before the second.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

from holdfast.core.leases import WorkerKey
from holdfast.core.lifecycle import AttemptState
from holdfast.runtime.attempts.launchers import Launches
from holdfast.runtime.attempts.runner import AttemptRunner
from holdfast.runtime.turns.owned_instances import OwnedInstances
from holdfast.runtime.worker_context import WorkerContext
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.instances import Block, Release
from holdfast.storage.members.outcomes import Applied
from holdfast.storage.members.turns import Turn
from holdfast.storage.members.workers import ReleaseUnknown
from holdfast.storage.records import AttemptKey, InstanceNumber, OwnedAttempt, OwnedInstance, OwnedRows

logger = logging.getLogger("holdfast")

BATCH: Final = 500
"""Rows that one commit releases."""
FAST_POLL_SECONDS: Final = 0.05
FAST_POLLS: Final = 3
"""After an unknown outcome this many polls follow at once: as many as it takes to release a row."""

OwnedRow = OwnedAttempt | OwnedInstance


class Reconciler:
    """Reconciles the rows of one worker. It waits for `committer.outcome_unknown`, at most `pause_seconds`."""

    def __init__(
        self,
        context: WorkerContext,
        instances: OwnedInstances,
        attempts: AttemptRunner,
        launches: Launches,
        *,
        pause_seconds: float,
    ) -> None:
        self._context = context
        self._committer = context.committer
        self._trouble = context.session.trouble
        self._store = context.session.store
        self._live = instances.live
        self._instances = instances
        self._attempts = attempts
        self._launches = launches
        self._pause_seconds = pause_seconds
        self._fast_polls = 0
        self._unknown: dict[OwnedRow, int] = {}
        """Rows unknown at the last poll, each with the number of reported groups from which on it counts."""
        self._reported = -1
        """The number of reported groups at the last poll."""
        self._not_ours: set[InstanceNumber] = set()
        """Instances that were live here and not in this worker's name at the last poll."""

    async def run(self) -> None:
        """Poll with each heartbeat, until cancelled."""
        while True:
            await self._wait()
            try:
                await self.reconcile()
            except Exception as error:  # noqa: BLE001 - the next poll repeats it
                self._trouble.log("the reconciliation of rows failed and is repeated", error)

    async def _wait(self) -> None:
        outcome_unknown = self._committer.outcome_unknown
        if outcome_unknown.is_set():
            outcome_unknown.clear()
            self._fast_polls = FAST_POLLS
        if self._fast_polls:
            self._fast_polls -= 1
            await asyncio.sleep(FAST_POLL_SECONDS)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause_seconds):
                await outcome_unknown.wait()

    async def reconcile(self) -> None:
        """One poll. Releases the rows that the last poll did not know either."""
        owner = self._context.lease.key
        running = self._attempts.known(owner)
        launched = self._launches.known(owner)
        reported = self._committer.groups_decided
        counts_at = reported + 1 if self._committer.is_writing else reported  # when all that is on disk now is reported
        held = await self._store.rows_owned_by(owner)
        self._stop_what_was_ended(held)
        for key in running.difference(row.key for row in held.attempts):
            self._attempts.disown(key)
        self._launches.forget(launched.difference(row.key for row in held.attempts))
        attempts, instances = self._known_attempts(), self._known_instances()
        unknown: dict[OwnedRow, int] = {
            row: self._unknown.get(row, counts_at) for row in held.attempts if row.key not in attempts
        }
        unknown |= {row: self._unknown.get(row, counts_at) for row in held.instances if row.number not in instances}
        lost = [row for row, at in unknown.items() if row in self._unknown and at <= self._reported]
        self._unknown = unknown
        self._reported = reported
        if lost:
            await self._release(owner, lost)

    def _stop_what_was_ended(self, held: OwnedRows) -> None:
        for row in held.attempts:
            if row.state is AttemptState.CANCELLED_RUNNING:
                self._attempts.cancel_attempt(row.key, is_awaited=row.cancel_requested_at_ms is not None)
        live = self._live
        not_ours = live.keys() - {row.number for row in held.instances}
        for number in not_ours & self._not_ours:  # one that became live during a poll is ours at the next
            if not live[number].has_uncommitted_turn:  # otherwise the store rejects its turn, which releases it
                self._instances.evict(live[number])
        self._not_ours = not_ours

    async def _release(self, owner: WorkerKey, lost: list[OwnedRow]) -> None:
        rows = iter(lost)
        while batch := list(islice(rows, BATCH)):
            member = ReleaseUnknown(
                owner=owner,
                attempts=tuple(row for row in batch if isinstance(row, OwnedAttempt)),
                instances=tuple(row for row in batch if isinstance(row, OwnedInstance)),
            )
            outcome = await self._committer.commit(member)
            if isinstance(outcome, Applied) and outcome.changed:
                logger.warning(
                    "worker %s released %d rows in its name that it did not know; replies were lost",
                    owner,
                    outcome.changed,
                )
                self._context.work.set()

    # ------------------------------------------------------------ what is known

    def _known_attempts(self) -> set[AttemptKey]:
        """Attempts whose bodies run here, that are launched here, or whose end is being committed."""
        return {*self._attempts.known(), *self._launches.known(), *self._ends_queued(), *self._ends_undecided()}

    def _known_instances(self) -> set[InstanceNumber]:
        """Instances that are live here or about to be, or about which a member is being committed."""
        members, live = self._committer.undecided(), self._live
        undecided = (each.number for each in members if isinstance(each, Turn | Release | Block))
        return {*live, *live.waking, *live.continued, *undecided}

    def _ends_queued(self) -> Iterator[AttemptKey]:
        for live in self._live.values():
            for message in live.queue:
                if message.completion is not None:
                    yield message.completion.key

    def _ends_undecided(self) -> Iterator[AttemptKey]:
        for member in self._committer.undecided():
            match member:
                case Completion():
                    yield member.key
                case OpenNextAttempt():
                    yield member.ended.key
                case Turn():
                    yield from (completion.key for completion in member.completions)
                case _:
                    pass
