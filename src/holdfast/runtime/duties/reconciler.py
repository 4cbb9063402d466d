"""The net under lost replies (W3): rows in this worker's name that it does not know are given up.

A commit can be on disk without anybody being told: the reply was lost, or the one who was told could not take it. Then
an attempt is RUNNING that nobody runs, or an instance is owned that is live nowhere. With each heartbeat the worker
reads what is in its name, compares it with what it knows, and lets go of the rest, so that it is run again (A10).

The other way round: bodies whose attempt was cancelled or ended by another process are asked to stop (A9, A5), and code
that is live here of an instance that is not ours any more is evicted.

A row that is merely on its way is never mistaken: one counts only when it was unknown at a look, the group that was
being written then has been told, and it is still unknown at a later look.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

from holdfast.core.leases import WorkerKey
from holdfast.core.lifecycle import AttemptState
from holdfast.runtime.attempts.runner import AttemptRunner
from holdfast.runtime.committer import Committer
from holdfast.runtime.turns.turn_taker import TurnTaker
from holdfast.storage.contract import Store
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.instances import Block, Release
from holdfast.storage.members.outcomes import Applied
from holdfast.storage.members.turns import Turn
from holdfast.storage.members.workers import ReleaseUnknown
from holdfast.storage.records import AttemptKey, InstanceNumber, OwnedAttempt, OwnedInstance, OwnedRows

logger = logging.getLogger("holdfast")

BATCH: Final = 500
"""What is given up in one commit."""
HURRY_SECONDS: Final = 0.05
HURRIED_LOOKS: Final = 3
"""When a reply is known to be lost, the next looks come at once: as many as the slowest find needs."""

OwnedRow = OwnedAttempt | OwnedInstance


class Reconciler:
    """Compares the store's rows in this worker's name with what the worker knows."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        runner: AttemptRunner,
        instances: TurnTaker,
        key: Callable[[], WorkerKey],
        *,
        pause_seconds: float,
        work_is_waiting: Callable[[], None],
    ) -> None:
        self._store = store
        self._committer = committer
        self._runner = runner
        self._instances = instances
        self._key = key
        self._pause_seconds = pause_seconds
        self._work_is_waiting = work_is_waiting
        self._hurried = 0
        self._unknown: dict[OwnedRow, int] = {}
        """Rows unknown at the last look, with the count of told groups from which on they are nobody's."""
        self._settled = -1
        """The count of told groups at the last look."""
        self._not_ours: set[InstanceNumber] = set()
        """Instances that were live here and not in this worker's name at the last look."""

    def hurry(self) -> None:
        """A reply was lost: look now instead of with the next heartbeat."""
        self._committer.outcome_unknown.set()

    async def run(self) -> None:
        """Look with each heartbeat, until cancelled."""
        while True:
            await self._wait()
            try:
                await self.reconcile()
            except Exception as error:  # noqa: BLE001 - what it did not find, the next look does
                self._committer.trouble.log("looking for rows that were lost failed and is repeated", error)

    async def _wait(self) -> None:
        outcome_unknown = self._committer.outcome_unknown
        if outcome_unknown.is_set():
            outcome_unknown.clear()
            self._hurried = HURRIED_LOOKS
        if self._hurried:
            self._hurried -= 1
            await asyncio.sleep(HURRY_SECONDS)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause_seconds):
                await outcome_unknown.wait()

    async def reconcile(self) -> None:
        """One look. Lets go of what was unknown at the last one, too, if nobody can be about to learn of it."""
        owner = self._key()
        running = self._runner.known(owner)
        told = self._committer.groups_decided
        over = told + 1 if self._committer.is_writing else told  # when what is on disk now has been told
        held = await self._store.rows_owned_by(owner)
        self._stop_what_was_ended(held)
        for key in running.difference(row.key for row in held.attempts):
            self._runner.disown(key)
        attempts, instances = self._known_attempts(), self._known_instances()
        unknown: dict[OwnedRow, int] = {
            row: self._unknown.get(row, over) for row in held.attempts if row.key not in attempts
        }
        unknown |= {row: self._unknown.get(row, over) for row in held.instances if row.number not in instances}
        lost = [row for row, over_at in unknown.items() if row in self._unknown and over_at <= self._settled]
        self._unknown = unknown
        self._settled = told
        if lost:
            await self._let_go(owner, lost)

    def _stop_what_was_ended(self, held: OwnedRows) -> None:
        for row in held.attempts:
            if row.state is AttemptState.CANCELLED_RUNNING:
                self._runner.cancel_attempt(row.key)
        live = self._instances.live
        not_ours = live.keys() - {row.number for row in held.instances}
        for number in not_ours & self._not_ours:  # one that became live during a look is ours at the next
            if not live[number].has_uncommitted_turn:  # else its turn is refused, which lets go of it, too
                self._instances.forget(live[number])
        self._not_ours = not_ours

    async def _let_go(self, owner: WorkerKey, lost: list[OwnedRow]) -> None:
        rows = iter(lost)
        while batch := list(islice(rows, BATCH)):
            disown = ReleaseUnknown(
                owner=owner,
                attempts=tuple(row for row in batch if isinstance(row, OwnedAttempt)),
                instances=tuple(row for row in batch if isinstance(row, OwnedInstance)),
            )
            outcome = await self._committer.commit(disown)
            if isinstance(outcome, Applied) and outcome.changed:
                logger.warning(
                    "worker %s gave up %d rows in its name that it did not know; replies were lost",
                    owner,
                    outcome.changed,
                )
                self._work_is_waiting()

    # ------------------------------------------------------------ what is known

    def _known_attempts(self) -> set[AttemptKey]:
        """Attempts that run here, or whose end is on its way to disk."""
        return {*self._runner.known(), *self._ends_queued(), *self._ends_undecided()}

    def _known_instances(self) -> set[InstanceNumber]:
        """Instances that are live here or about to be, or about which a member is on its way."""
        members, live = self._committer.undecided(), self._instances.live
        on_their_way = (each.number for each in members if isinstance(each, Turn | Release | Block))
        return {*live, *live.waking, *live.continued, *on_their_way}

    def _ends_queued(self) -> Iterator[AttemptKey]:
        for live in self._instances.live.values():
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
                    continue
