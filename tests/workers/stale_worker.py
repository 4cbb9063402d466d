"""A worker that does not notice that it was stopped, whose words are ``STORE LEASE``.

Its own clock stands still, so it never fences itself (W7). After it was stopped, its turn, its completion and the
heartbeat of its activity go to the store before it sends a heartbeat of its own and before it reads which attempts it
still has, because both would end the activity. It writes down the outcome of every member that it commits. It leaves
on SIGTERM.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from tests.workers import app

import holdfast as hf
from holdfast.core.leases import Heartbeat, HeartbeatReply, Renewed, WorkerKey
from holdfast.runtime.platform import Platform, SystemClockAndIds
from holdfast.storage.members.attempts import Completion, HeartbeatAttempt
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.members.turns import Turn
from holdfast.storage.members.workers import Registration
from holdfast.storage.records import CommitId, OwnedRows
from holdfast.storage.wakeups import Notify, ignore_wakeups

WATCHED = (Turn, Completion, HeartbeatAttempt)
LONGEST_SECONDS = 20.0


class Blind(SystemClockAndIds):
    """No time passes."""

    def elapsed_ms(self) -> int:
        return 0


class Ghost(app.Here):
    """Stops its process when no commit, heartbeat or read of its rows is under way, and tells what follows."""

    def __init__(self, client: hf.Client) -> None:
        store: Any = client._session.store
        self._commit, self._heartbeat, self._rows_owned_by = store.commit, store.heartbeat, store.rows_owned_by
        store.commit, store.heartbeat, store.rows_owned_by = self.commit, self.heartbeat, self.rows_owned_by
        self._under_way = 0
        self._between_beats = threading.Lock()
        self._is_ghost = False
        self._unheard = {kind.__name__ for kind in WATCHED}
        self._all_heard = threading.Event()

    async def stop(self) -> None:
        while self._under_way:  # noqa: ASYNC110 - a round of the loop at a time
            await asyncio.sleep(0)
        with self._between_beats:
            self._is_ghost = True
            os.kill(os.getpid(), signal.SIGSTOP)

    async def commit(
        self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
    ) -> list[Outcome]:
        self._under_way += 1
        try:
            outcomes: list[Outcome] = await self._commit(commit_id, members, notify)
        finally:
            self._under_way -= 1
        if self._is_ghost:
            for member, outcome in zip(members, outcomes, strict=True):
                self._heard(type(member).__name__, outcome)
        return outcomes

    async def rows_owned_by(self, owner: WorkerKey) -> OwnedRows:
        if self._is_ghost:
            await asyncio.to_thread(self._all_heard.wait, LONGEST_SECONDS)
        self._under_way += 1
        try:
            held: OwnedRows = await self._rows_owned_by(owner)
        finally:
            self._under_way -= 1
        return held

    def _heard(self, kind: str, outcome: Outcome) -> None:
        app.note("store", kind, type(outcome).__name__)
        self._unheard.discard(kind)
        if not self._unheard:
            self._all_heard.set()

    def heartbeat(self, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
        with self._between_beats:
            if self._is_ghost:
                self._all_heard.wait(LONGEST_SECONDS)
            reply: HeartbeatReply = self._heartbeat(beat, registration)
            if self._is_ghost:
                app.note("store", "Heartbeat", type(reply).__name__)
            if isinstance(reply, Renewed) and beat.token is None:
                app.note("key", beat.key)
                self._is_ghost = False
            return reply


async def serve(store: str, lease: str) -> None:
    world = Platform(providers=Blind(), detect_local_deaths=False)
    async with await hf.connect(store, _platform=world) as client:
        app.here = Ghost(client)
        worker = hf.Worker(client, modules=[app], queues=["default", "lent"], lease=float(lease))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.run()


def main() -> None:
    asyncio.run(serve(*sys.argv[1:]))
