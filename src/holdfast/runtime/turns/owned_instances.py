"""The instances that this worker owns: their code is live here and nowhere else (G1, G2).

The package docstring has the four verbs that end what a worker holds: close, evict, release, block. Each commits the
completions that no turn has applied, so that the next owner finds them in the inbox.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.core.leases import WorkerKey
from holdfast.errors import WorkflowBlocked
from holdfast.runtime.attempts.runner import AttemptRunner
from holdfast.runtime.run_factory import RunFactory
from holdfast.runtime.turns.live_instance import LiveInstance
from holdfast.runtime.worker_context import WorkerContext
from holdfast.storage.contract import Store
from holdfast.storage.large_payloads import REFERENCE, references_in
from holdfast.storage.members.instances import Block, Release
from holdfast.storage.members.outcomes import Applied, Outcome
from holdfast.storage.records import (
    AttemptKey,
    AttemptRecord,
    InboxRow,
    InstanceId,
    InstanceNumber,
    InstanceRecord,
    LoadedInstance,
)

logger = logging.getLogger("holdfast")

MAX_FIRST_FAILURES: Final = 1_000
SLOW_TEARDOWN_SECONDS: Final = 0.05
SLOW_TEARDOWNS_SECONDS: Final = 1.0
"""How long all slow teardowns of one `release_all` may take together. Code of later instances is left suspended."""


class LiveInstances(OrderedDict[InstanceNumber, LiveInstance]):
    """The live instances by number, the longest idle first, and how many there may be."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.waking: set[InstanceNumber] = set()
        """Claimed, and not live yet: the replay of a long history takes time."""
        self.continued: set[InstanceNumber] = set()
        """G4: owned here, and their next execution is not live yet."""
        self.room_wanted = False
        """A claim found no room."""
        self._numbers: dict[InstanceId, InstanceNumber] = {}

    def add(self, live: LiveInstance) -> None:
        self[live.number] = live
        self._numbers[live.id] = live.number

    def remove(self, live: LiveInstance) -> None:
        if self.get(live.number) is not live:
            return  # it was paused, resumed and claimed again: the newer one stays
        del self[live.number]
        if self._numbers.get(live.id) == live.number:  # the id may belong to a later instance by now (G3)
            del self._numbers[live.id]

    def will_continue(self, number: InstanceNumber) -> None:
        """The next execution of an instance that ended here is to be woken here."""
        self.continued.add(number)

    def end_continue(self, number: InstanceNumber) -> None:
        """The next execution is live here, or does not run here."""
        self.continued.discard(number)

    def begin_wake(self, numbers: Iterable[InstanceNumber]) -> None:
        """These instances were claimed and are about to become live."""
        self.waking.update(numbers)

    def end_wake(self, numbers: Iterable[InstanceNumber]) -> None:
        """These instances are live, or do not become live."""
        self.waking.difference_update(numbers)

    def find(self, instance_id: InstanceId, number: InstanceNumber | None) -> LiveInstance | None:
        """The live instance with this number; the newest live one of the id if `number` is None."""
        number = self._numbers.get(instance_id) if number is None else number
        return None if number is None else self.get(number)

    @property
    def has_room(self) -> bool:
        """Whether one more instance may become live. Called at every start, so it stops at the first idle one."""
        return len(self) < max(self.size, 1) or self.longest_idle() is not None

    def room(self) -> int:
        """How many instances may be claimed now: idle ones make room for others."""
        room = max(self.size, 1) - len(self) + sum(live.is_idle for live in self.values())
        self.room_wanted = room <= 0
        return room

    def ready_for(self, key: AttemptKey, values: int | None) -> LiveInstance | None:
        """The live instance of an attempt, if it has received the values that precede this response (L15).

        `values`: how many those are; None if the activity yields none.
        """
        live = self.get(key.number)
        if live is None or live.execution != key.execution:
            return None
        return live if values is None or live.run.values_received(key.activity) == values else None

    async def fetch_payloads(self, store: Store, rows: Sequence[InboxRow]) -> None:
        """Read the large payloads of messages for live instances."""
        for number in {row.number for row in rows if REFERENCE in row.event}:
            named = references_in(row.event for row in rows if row.number == number)
            payloads = await store.read_payloads(number, named)
            if number in self:
                self[number].run.add_payloads(payloads)

    def longest_idle(self) -> LiveInstance | None:
        """The instance to release first."""
        return next((live for live in self.values() if live.is_idle), None)


class OwnedInstances:
    """The instances of one worker, from their claim or start to close, evict, release or block."""

    def __init__(self, context: WorkerContext, attempts: AttemptRunner, runs: RunFactory, *, size: int) -> None:
        self._context = context
        self._store = context.session.store
        self._attempts = attempts
        self._runs = runs
        self.live = LiveInstances(size)
        self._first_failures: dict[InstanceNumber, str] = {}
        """Why first turns failed, of instances that were created without them: this worker does not run them again."""

    # ------------------------------------------------------------ wake

    async def wake(self, record: InstanceRecord, loaded: LoadedInstance | None = None) -> LiveInstance | None:
        """Make a claimed instance live: replay its history, then queue its inbox (G8). The caller takes its turn.

        `loaded`: its rows, if they were read already. None is returned if it was blocked.
        """
        failure = self._first_failures.pop(record.number, None)
        if failure is not None and (record.execution, record.turn) == (1, 0):
            self.block(record, failure)
            return None
        try:
            run, loaded = await self._runs.load(self._store, record, loaded)
        except WorkflowBlocked as blocked:
            self.block(record, str(blocked))
            return None
        if (stale := self.live.get(record.number)) is not None:
            self.evict(stale)  # it was paused and resumed elsewhere (R20); its turns are rejected
        live = LiveInstance.of(record, run)
        self.make_room(max(self.live.size, 1) - 1)
        self.live.add(live)
        observer = self._context.session.observer
        began = 0.0 if observer is None else observer.clock()
        try:
            self._runs.replay(live.number, live.run, loaded.history)
        except Exception as error:  # noqa: BLE001 - whatever it is, this build cannot run the instance
            self.block_for(live, error)
            return None
        if observer is not None and loaded.history:
            observer.replayed(live, loaded.history, observer.clock() - began)
        live.timers = {timer.timer: timer.due_at_ms for timer in loaded.timers}
        return live if self.enqueue(live, loaded.inbox, loaded.attempts) else None

    def enqueue(self, live: LiveInstance, rows: Iterable[InboxRow], attempts: Iterable[AttemptRecord]) -> bool:
        """Queue new inbox rows. A row that cannot be decoded blocks the instance (G12); then False is returned."""
        try:
            live.enqueue(rows, attempts)
        except Exception as error:  # noqa: BLE001 - the row stays in the inbox, and no other instance is affected
            self.block_for(live, error)
            return False
        return True

    @property
    def first_failures(self) -> tuple[InstanceNumber, ...]:
        """The instances whose first turns failed here, and which were not claimed here since."""
        return tuple(self._first_failures)

    def first_turn_failed(self, number: InstanceNumber, failure: str) -> None:
        """An instance was created without its first turn, which failed here. Its claim blocks it."""
        self._first_failures[number] = failure
        while len(self._first_failures) > MAX_FIRST_FAILURES:
            del self._first_failures[next(iter(self._first_failures))]

    def claimed_elsewhere(self, numbers: Iterable[InstanceNumber]) -> None:
        """Other workers have claimed these instances: the failures of their first turns here do not count any more."""
        for number in numbers:
            self._first_failures.pop(number, None)

    # ------------------------------------------------------------ room

    def make_room(self, most: int) -> None:
        """Release the instances that are idle longest until at most `most` are live."""
        while len(self.live) > most and (oldest := self.live.longest_idle()) is not None:
            self.release(oldest)

    def signal_room(self) -> None:
        """Wake the claimer if its last claim found no room."""
        if self.live.room_wanted:
            self.live.room_wanted = False
            self._context.work.set()

    # ------------------------------------------------------------ close, evict, release, block

    def close(self, number: InstanceNumber, *, has_bodies: bool = True) -> None:
        """The execution is closed in the store (A9): tear its code down, ask its bodies to stop, signal room."""
        if has_bodies:
            self._attempts.cancel_instance(number)
        live = self.live.get(number)
        if live is not None:
            self.evict(live)
            self.signal_room()

    def evict(self, live: LiveInstance, *, lease_lost: bool = False) -> None:
        """Tear the code down and leave the row as it is.

        Completions that no turn has applied are committed alone. With `lease_lost` the store would reject them: they
        are dropped, and their attempts are run again.
        """
        self.live.remove(live)
        live.evict()
        if not lease_lost:
            for message in live.queue:
                if message.completion is not None:
                    self._context.commit_then_poll(message.completion)

    def release(self, live: LiveInstance, owner: WorkerKey | None = None) -> None:
        """G2: tear the code down and let any worker claim the instance. `owner`: the key under which it was claimed."""
        self.evict(live)
        owner = owner or self._context.lease.key
        self._context.commit_then_poll(Release(number=live.number, owner=owner, fence=live.fence))

    def block_for(self, live: LiveInstance, error: Exception) -> None:
        """Block a live instance because of an error of the engine."""
        self.evict(live)
        self.block(live, f"{type(error).__name__}: {error}")

    def block(self, instance: LiveInstance | InstanceRecord, reason: str) -> None:
        """G12: record the reason, so that a worker whose code fits may claim the instance. Nothing of it is deleted."""
        number = instance.number
        owner = self._context.lease.key
        build = self._context.build
        member = Block(number=number, owner=owner, fence=instance.fence, reason=reason, build=build)

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Applied):  # otherwise it was closed (A9), or another worker owns it
                extra = {
                    "holdfast_instance": instance.id,
                    "holdfast_workflow": instance.workflow,
                    "holdfast_execution": instance.execution,
                    "holdfast_worker": owner,
                }
                logger.error("instance %s is blocked: %s", instance.id, reason, extra=extra)
            self._context.session.results.ended(instance.id, number)

        self._context.committer.commit_eventually(member, done)

    # ------------------------------------------------------------ all of them

    def evict_all(self) -> None:
        """The lease is lost: other workers may own the instances."""
        while self.live:
            self.evict(next(iter(self.live.values())), lease_lost=True)

    def evict_released(self) -> None:
        """W1: the lease thread has released the instances. The fence rejects turns that are being committed."""
        for live in list(self.live.values()):
            if not live.has_uncommitted_turn:
                self.evict(live)

    async def release_all(self) -> None:
        """Release every instance, also those whose start is being committed: the worker drains or stops.

        Slow teardowns may take `SLOW_TEARDOWNS_SECONDS` together. The code of the instances after that is left
        suspended.
        """
        loop = asyncio.get_running_loop()
        slow_seconds = 0.0
        while True:
            for live in list(self.live.values()):
                if self.live.get(live.number) is live:
                    if slow_seconds >= SLOW_TEARDOWNS_SECONDS:
                        live.run.abandon()
                    began = loop.time()
                    self.release(live)
                    took_seconds = loop.time() - began
                    if took_seconds > SLOW_TEARDOWN_SECONDS:
                        slow_seconds += took_seconds
                        await asyncio.sleep(0)  # lets other tasks of this event loop run
            await self._context.committer.drain()
            if not self.live:
                return
