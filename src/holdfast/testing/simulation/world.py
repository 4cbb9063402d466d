"""Clocks, ids, leases and wake-ups of a simulated world, and a store that delivers things twice and loses replies."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random  # noqa: TID251 - made from the seed of the simulation
from typing import Final, TypeVar

from holdfast.core.liveness import LeaseAction, LeaseState, WorkerKey, may_act, receive, send
from holdfast.errors import StoreError
from holdfast.runtime.loop_watch import LoopRules
from holdfast.runtime.providers import ClockAndIds
from holdfast.runtime.telling import RepeatedTrouble
from holdfast.storage.contract import (
    Applied,
    CommitId,
    Completion,
    Member,
    OpenNextAttempt,
    Outcome,
    Registration,
    Start,
    Store,
    Turn,
)
from holdfast.storage.sqlite.store import SqliteStore

Value = TypeVar("Value")

EPOCH_MS: Final = 1_700_000_000_000
BEATS_PER_LEASE: Final = 4
LOST_WAKE_UPS: Final = 0.2
SLOWEST_WAKE_UP_SECONDS: Final = 0.05
DUPLICATES: Final = 0.2
UNKNOWN: Final = 0.5
DUPLICATE_ID: Final = 2**40


class SimulatedClockAndIds:
    """Everything random grows from one seed; time is the loop's."""

    def __init__(self, random: Random, name: str) -> None:
        self._random = random
        self._name = name
        self._count = 0

    def now_ms(self) -> int:
        return EPOCH_MS + self.elapsed_ms()

    def elapsed_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def elapsed_precise_ms(self) -> float:
        return 0.0

    def random_number(self) -> float:
        return self._random.random()

    def seed(self) -> int:
        return self._random.getrandbits(53)

    def commit_id(self) -> int:
        return self._random.getrandbits(39)

    def unique_text(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"


class TaskLease:
    """Keeps a lease from a task of the simulation instead of a thread."""

    def __init__(
        self,
        store: Store,
        providers: ClockAndIds,
        registration: Callable[[], Registration],
        *,
        lease_ms: int,
        lost: Callable[[], None],
        loop_rules: LoopRules | None = None,
        trouble: RepeatedTrouble | None = None,
    ) -> None:
        del loop_rules, trouble  # it runs on the loop, and stops with it
        self.key = WorkerKey(providers.unique_text())
        self._store = store
        self._providers = providers
        self._registration = registration
        self._client = LeaseState(self.key, lease_ms)
        self._pause = lease_ms / BEATS_PER_LEASE / 1000
        self._lost = lost
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._beat()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def give_up(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def may_act(self) -> bool:
        return may_act(self._client, now_ms=self._providers.elapsed_ms())

    @property
    def fenced_at_ms(self) -> int:
        return self._client.fenced_at_ms or 0

    def _beat(self) -> bool:
        self._client, beat = send(self._client, now_ms=self._providers.elapsed_ms())
        self._client, action = receive(self._client, self._store.heartbeat(beat, self._registration()))
        return action is LeaseAction.GO_ON

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            if not self._beat():
                self._lost()
                return


class SimulatedNotifications:
    """Carries wake-ups between the processes of a simulation: late, and not always."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._listeners: dict[str, Callable[[], None]] = {}

    def bell(self, path: Path, name: str, heard: Callable[[], None]) -> "SimulatedNotifier":
        del path
        return SimulatedNotifier(self, name, heard)

    def listen(self, name: str, heard: Callable[[], None]) -> None:
        self._listeners[name] = heard

    def leave(self, name: str) -> None:
        self._listeners.pop(name, None)

    def ring(self, sender: str) -> None:
        loop = asyncio.get_running_loop()
        for name in list(self._listeners):
            if name != sender and self._random.random() >= LOST_WAKE_UPS:
                loop.call_later(self._random.random() * SLOWEST_WAKE_UP_SECONDS, self._heard, name)

    def _heard(self, name: str) -> None:
        heard = self._listeners.get(name)
        if heard is not None:
            heard()


class SimulatedNotifier:
    """One process's end of the bus."""

    def __init__(self, bus: SimulatedNotifications, name: str, heard: Callable[[], None]) -> None:
        self._bus = bus
        self._name = name
        self._heard = heard

    def open(self) -> None:
        self._bus.listen(self._name, self._heard)

    def close(self) -> None:
        self._bus.leave(self._name)

    def notify(self) -> None:
        self._bus.ring(self._name)


class DuplicatingStore(SqliteStore):
    """Delivers some members twice, as networks and impatient senders do. The second time nothing may change.

    Of its commits, the share `lost_replies` is told as an error although it is on disk; of those, half cannot be looked
    up either.
    """

    def __init__(self, path: Path, *, clock: Callable[[], int], random: Random, lost_replies: float = 0.0) -> None:
        super().__init__(path, clock=clock, durability="none")
        self._random = random
        self._lost_replies = lost_replies
        self.replies_lost = 0
        self._duplicates = 0
        self.violations: list[str] = []

    async def _on_writer_thread(self, work: Callable[[], Value]) -> Value:
        """Real threads have no place in a simulation."""
        return work()

    async def commit(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        outcomes = await super().commit(commit_id, members)
        again = [
            member
            for member in members
            if isinstance(member, Turn | Completion | OpenNextAttempt | Start) and self._random.random() < DUPLICATES
        ]
        if again:
            self._duplicates += 1
            second = await super().commit(CommitId(DUPLICATE_ID + commit_id), again)
            self.violations += [
                f"applied twice: {member!r}"
                for member, outcome in zip(again, second, strict=True)
                if isinstance(outcome, Applied) and not _may_repeat(member)
            ]
        if self._lost_replies and self._random.random() < self._lost_replies:
            self.replies_lost += 1
            raise StoreError("the reply was lost")
        return outcomes

    async def was_committed(self, commit_id: CommitId) -> bool:
        if self._lost_replies and self._random.random() < UNKNOWN:
            raise StoreError("the commit cannot be looked up")
        return await super().was_committed(commit_id)


def _may_repeat(member: Member) -> bool:
    """A turn without events has no number of its own; repeating it repeats nothing."""
    return isinstance(member, Turn) and not member.events
