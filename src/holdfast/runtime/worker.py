"""A worker: holds a lease, owns instances, runs attempts, and does its share of the common duties.

Everything runs on one asyncio event loop; only heartbeats, blocking bodies and slow disks have threads of their own.
Nothing is polled on the hot path: work that appears in this process is taken at once, work from other processes
when they wake this one, and a slow look now and then mends a lost wake-up.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.authoring.registry import Registry
from holdfast.background import BackgroundTask, Duty
from holdfast.core.history import Started
from holdfast.core.leases import WorkerKey
from holdfast.core.run import ScheduledActivity
from holdfast.errors import StoreError, StoreReplaced
from holdfast.payloads.limits import PayloadLimit
from holdfast.runtime.attempts.runner import AttemptRunner
from holdfast.runtime.committer import Committer
from holdfast.runtime.crash_detection import CrashMarker, this_process
from holdfast.runtime.duties.claimer import POLL_SECONDS, Claimer
from holdfast.runtime.duties.expiry import Deadlines
from holdfast.runtime.duties.maintenance import Maintenance
from holdfast.runtime.duties.reconciler import Reconciler
from holdfast.runtime.platform import LeaseLike
from holdfast.runtime.queries import Place, Queries, QueryService
from holdfast.runtime.run_factory import RunFactory
from holdfast.runtime.session import StoreSession
from holdfast.runtime.signals import log_failed_instance
from holdfast.runtime.turns.live_instance import Message, UnstoredValues
from holdfast.runtime.turns.messages import LocalEvents
from holdfast.runtime.turns.turn_builder import with_started
from holdfast.runtime.turns.turn_taker import TurnTaker
from holdfast.runtime.worker_lease import BEATS_PER_LEASE, MILLISECONDS, LeaseThread
from holdfast.storage.members.attempts import Completion, HeartbeatAttempt, OpenNextAttempt
from holdfast.storage.members.instances import Start
from holdfast.storage.members.outcomes import Outcome, Rejected
from holdfast.storage.members.turns import InstanceEnd, StreamValues
from holdfast.storage.members.workers import Registration
from holdfast.storage.records import InstanceId, InstanceNumber

if TYPE_CHECKING:
    from holdfast.runtime.turns.live_instance import LiveInstance

logger = logging.getLogger("holdfast")

DEFAULT_CACHE_SIZE: Final = 1_000


class WorkerRuntime:
    """The worker of one process. It is started once and stopped once."""

    def __init__(
        self,
        session: StoreSession,
        registry: Registry,
        *,
        queues: tuple[str, ...],
        max_activities: int,
        cache_size: int,
        lease_ms: int,
        loop_timeout_ms: int | None,
        payload_limit: PayloadLimit,
    ) -> None:
        self._session = session
        store = session.store
        platform = session.platform
        self._platform = platform
        self._clock = platform.providers
        self._store = store
        self.registry = registry
        self.stopped = asyncio.Event()
        self._queues = queues
        self._lease_ms = lease_ms
        self._loop_timeout_ms = loop_timeout_ms
        self.halted = asyncio.Event()
        self._trouble = session.trouble
        self.failure: StoreReplaced | None = None
        """Why it has halted, if it has."""
        self._host = this_process()
        self._is_stopping = False
        self._is_draining = False
        self._lease: LeaseLike | None = None
        self._given_up: LeaseLike | None = None
        self._new_key = BackgroundTask(Duty.NEW_KEY, self._take_new_key)
        self.committer = Committer(session, self)
        self.attempts = self._make_runner(max_activities, payload_limit)
        deadlines = Deadlines(store, registry, self.committer, self._overdue)
        self.claimer = Claimer(
            store, registry, self.committer, self.attempts, self.key_now, queues=queues, deadlines=deadlines
        )
        self.run_factory = RunFactory(
            registry, platform, CrashMarker(store.crash_marker_folder), payload_limit, self.key_now
        )
        self.turns = self._make_turn_taker(cache_size)
        self.local_events = LocalEvents(self.committer, self.turns, lambda: self.claimer.read_messages(self.turns))
        self.maintenance = self._make_maintenance()
        self.reconciler = self._make_reconciler()
        self.query_service = self._make_query_service()
        self._beginning: set[LiveInstance] = set()
        self._claiming = BackgroundTask(Duty.CLAIMS, lambda: self.claimer.run(self.turns))
        self._tasks = self._make_tasks()

    def _make_turn_taker(self, cache_size: int) -> TurnTaker:
        return TurnTaker(
            self.registry,
            self._store,
            self.committer,
            self.attempts,
            self.key_now,
            runs=self.run_factory,
            cache_size=cache_size,
            reserve=self._reserve,
            ended=self._instance_ended,
            work_is_waiting=self.poll,
        )

    def _make_runner(self, slots: int, limit: PayloadLimit) -> AttemptRunner:
        return AttemptRunner(
            self.registry,
            self._clock,
            self._store.now_ms,
            slots=slots,
            ended=self._attempt_ended,
            beat=self._heartbeat,
            respond=self._respond,
            fenced_at_ms=self._fenced_at_ms,
            slot_freed=self._slot_freed,
            all_told=self._take_turns,
            limit=limit,
        )

    def _make_tasks(self) -> list[BackgroundTask]:
        return [
            self._claiming,
            BackgroundTask(Duty.JANITOR, self._look_after),
            BackgroundTask(Duty.RECONCILER, self.reconciler.run),
            BackgroundTask(Duty.QUESTIONS, self.query_service.run),
        ]

    def _make_query_service(self) -> QueryService:
        place = Place(self.turns, lambda: self.claimer.read_messages(self.turns), self.key_now)
        queries = Queries(self._store, self.run_factory, place)
        return QueryService(self._store, self.registry, self.committer, queries, self.key_now)

    def _make_reconciler(self) -> Reconciler:
        return Reconciler(
            self._store,
            self.committer,
            self.attempts,
            self.turns,
            self.key_now,
            pause_seconds=self._lease_ms / BEATS_PER_LEASE / MILLISECONDS,
            work_is_waiting=self.poll,
        )

    def _make_maintenance(self) -> Maintenance:
        return Maintenance(
            self._store,
            self.committer,
            self._host,
            self._clock.random_number,
            self.run_factory.marker,
            detect_local_deaths=self._platform.detect_local_deaths,
            expired=self.attempts.disown,
        )

    @property
    def is_running(self) -> bool:
        """Whether it is registered."""
        return self._lease is not None

    def key_now(self) -> WorkerKey:
        """The key under which this worker acts now."""
        if self._lease is None:
            raise StoreError("the worker is not running")
        return self._lease.key

    @property
    def key(self) -> WorkerKey:
        """`key_now`, for where it is needed once."""
        return self.key_now()

    @property
    def _name(self) -> str:
        """For the log, also after the key was given up."""
        return "" if self._lease is None else self._lease.key

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Register, take over from those who died on this host, and go to work."""
        self.registry.check()
        await self._register()
        for flow in self.run_factory.flows.definitions():
            await self.committer.commit(flow)
        await self.maintenance.round(self.key)
        await self.claimer.try_blocked(
            self.turns, ""
        )  # whatever was wrong with them, this may be the mended code (G12)
        for task in self._tasks:
            task.start()

    async def drain(self) -> None:
        """W10: claim nothing more, let go of the instances at once, and give the bodies that run their time.

        The lease is kept, and answers are recorded for whoever goes on with them. `stop` follows, or cuts it off.
        """
        self.claimer.close()
        await self._claiming.wait()  # what a claim on its way still takes is run
        self._is_stopping = self._is_draining = True
        await self.committer.drain()  # first turns become live, and what they begin at once runs
        await self.claimer.wake_continued(self.turns)
        await self.turns.release_all()
        logger.info("worker %s drains; activities that run: %d", self.key, len(self.attempts.running))
        await self.attempts.wait_for_bodies()

    async def stop(self) -> None:
        """W10: stop cleanly. What ends meanwhile is recorded; what runs on is given up and moves on at once."""
        self._is_stopping = True
        await self._stop_tasks()
        if self._lease is self._given_up:
            self._new_key.stop()  # it waits for another key, which is not needed any more
        await self._new_key.wait()
        await self.attempts.stop()
        if self._lease is not None:
            await self.turns.release_all()
            await self.local_events.drain()
            self.committer.close()
            await self.committer.drain()
            await self.maintenance.mark_lost(self._lease.key, at_deadline=False, is_clean=True)
        self.run_factory.stop()  # not before: code is torn down until here, and may spin
        await self.attempts.close()
        if self._lease is not None:
            await self._lease.stop()
            self._lease = None
        self.stopped.set()

    async def kill(self) -> None:
        """Stop as a process stops that is killed: nothing is released, and nothing is written. For tests."""
        await self._stop_tasks()
        self._new_key.stop()
        await self._new_key.wait()
        await self.attempts.close()
        self.turns.forget_all()
        for live in self._beginning:
            live.run.evict()
        self.run_factory.stop(is_clean=False)
        if self._lease is not None:
            await self._lease.stop()
            self._lease = None

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.stop()
        for task in self._tasks:
            await task.wait()

    async def take_over(self, key: WorkerKey) -> None:
        """A worker is known to be dead: what it had moves on at once. For tests."""
        await self.maintenance.mark_lost(key, at_deadline=False)
        self.poll()

    def halt(self, error: StoreReplaced) -> None:
        """The files of the store are gone: run and claim nothing more. `stop` follows, when the program comes to it."""
        if self.failure is not None:
            return
        self.failure = error
        self._is_stopping = True
        for task in (*self._tasks, self._new_key):
            task.stop()
        self.turns.forget_all()
        self.attempts.abandon_all()
        if self._lease is not None:
            self._lease.stop_beating()
        self.halted.set()

    def poll(self) -> None:
        """There may be something to claim."""
        self.claimer.poll()

    def poll_queries(self) -> None:
        """Other processes may have put queries into the store."""
        self.query_service.poll()

    def instance_closed(self, number: InstanceNumber) -> None:
        """A commit other than its own turn closed an instance."""
        self.turns.drop(number)

    def first_turn(self, start: Start, started: Started, done: Callable[[Outcome], None]) -> bool:
        """Create an instance together with its first turn; False if this worker cannot run it now.

        If the turn fails, the instance is created without it, and blocked when it is claimed (G12).
        """
        if self._lease is None or self._lease is self._given_up or not self.turns.live.has_room or self.failure:
            return False
        begun = None if self._is_draining else self.turns.start_instance(start, started)
        if begun is None:
            return False
        if isinstance(begun, str):
            self.committer.submit(with_started(start, started), partial(self._created_without_turn, begun, done))
            return True
        live, built, start = begun
        self._beginning.add(live)

        def decided(outcome: Outcome) -> None:
            self._beginning.discard(live)
            self.turns.on_start_outcome(live, built, outcome)
            done(outcome)

        self.committer.submit(start, decided)
        return True

    def _created_without_turn(self, failure: str, done: Callable[[Outcome], None], outcome: Outcome) -> None:
        self.turns.first_turn_failed(failure, outcome)
        done(outcome)
        self.poll()

    # ------------------------------------------------------------ lease

    async def _register(self) -> None:
        loop = asyncio.get_running_loop()
        registration = Registration(
            host=self._host.encode(),
            queues=msgspec.json.encode(self._queues).decode(),
            build=self.registry.build,
            slots=self.attempts.slots,
            workflows=msgspec.json.encode(sorted(self.registry.workflows)).decode(),
            activities=msgspec.json.encode(sorted(self.registry.activities)).decode(),
        )
        make_lease = self._platform.make_lease or LeaseThread
        lease: LeaseLike = make_lease(
            self._store,
            self._clock,
            lambda: msgspec.structs.replace(registration, abandoned=len(self.attempts.abandoned)),
            lease_ms=self._lease_ms,
            lost=lambda: _post(loop, self._lease_expired, lease),
            loop_rules=self.run_factory.loop_rules(
                self._lease_ms, self._loop_timeout_ms, released=lambda: _post(loop, self._instances_released, lease)
            ),
            trouble=self._trouble,
        )
        await lease.start()
        self._lease = lease
        self.run_factory.marker.open(lease.key)

    def _fenced_at_ms(self, key: WorkerKey | None) -> int:
        """W7: when the lease of `key` ends by our own clock; 0 if the key was given up. Called from any thread."""
        lease = self._lease
        return 0 if lease is None or lease is self._given_up or lease.key != key else lease.fenced_at_ms

    @property
    def fenced_at_ms(self) -> float:
        """W7: when the lease ends by our own clock; before the registration there is none to lose."""
        return math.inf if self._lease is None else self._lease.fenced_at_ms

    def expired(self) -> None:
        """The lease has run out by our own clock."""
        self._replace_key()

    def _may_act(self) -> bool:
        if self._clock.elapsed_ms() < self.fenced_at_ms:
            return True
        self._replace_key()
        return False

    def _replace_key(self) -> None:
        """The lease has run out by our own clock: give the key up, and take another."""
        if self._lease is not None:
            asyncio.get_running_loop().call_soon(self._lease_expired, self._lease)

    def _lease_expired(self, lease: LeaseLike) -> None:
        """W5, W7: the key is dead, or its lease has run out by our own clock, and what was refused meanwhile is
        not live any more. Let go of everything, and begin again under a new key; the old one's work moves on.
        """
        if lease is not self._lease or lease is self._given_up:
            return
        self._given_up = lease
        if self._is_stopping:
            self.attempts.abandon_all()  # nobody takes their answers any more
            return
        logger.warning("worker %s lost its lease; its work has moved on, and it takes a new key", self.key)
        self.turns.forget_all()
        self.attempts.abandon_all()
        lease.stop_beating()
        self._new_key.start()

    def _instances_released(self, lease: LeaseLike) -> None:
        """W1: this loop was blocked, and the lease thread released its instances. They are live here no longer; turns
        that are on their way are rejected by the fence. Answers that came meanwhile are kept for the next owner.
        """
        if lease is not self._lease or lease is self._given_up:
            return
        for live in list(self.turns.live.values()):
            if not live.has_uncommitted_turn:
                self.turns.forget(live)
        self.reconciler.hurry()
        self.poll()

    async def _take_new_key(self) -> None:
        """Register again, and move what the old key has. The store may refuse for a while; the loop runs meanwhile."""
        while (old := self._given_up) is not None:
            while self._lease is old:
                try:
                    await self._register()
                except Exception as error:  # noqa: BLE001 - whatever it is, a worker without a key has to try again
                    self._trouble.log("a worker could not take a new key and tries again", error)
                    await asyncio.sleep(POLL_SECONDS)
            await self.maintenance.mark_lost(old.key, at_deadline=False, is_own=True)
            self.poll()
            if self._given_up is old:  # else the new key is lost already, too
                return

    # ------------------------------------------------------------ work

    def _reserve(self, scheduled: ScheduledActivity) -> bool:
        """Take a slot for a new attempt, if it may begin here at once."""
        return not self._is_stopping and self.claimer.serves(scheduled) and self.attempts.reserve()

    def _instance_ended(self, instance_id: InstanceId, number: InstanceNumber, close: InstanceEnd | None) -> None:
        """A turn ended an instance, or it was blocked."""
        self._session.results.ended(instance_id, number, close)
        log_failed_instance(instance_id, close, self._name)

    def _overdue(self, instance_id: InstanceId, number: InstanceNumber) -> None:
        """Its deadline has passed, and it was ended without its code."""
        self.turns.drop(number)
        self._session.results.ended(instance_id, number, None)
        extra = {"holdfast_instance": instance_id, "holdfast_worker": self._name}
        logger.error("instance %s failed: its deadline has passed", instance_id, extra=extra)

    def _attempt_ended(self, ended: Completion | OpenNextAttempt) -> None:
        if self._is_stopping:  # whoever goes on with the instance takes its turn
            self.committer.commit_eventually(ended, _ignore)
            return
        self.turns.attempt_ended(ended)

    def _slot_freed(self) -> None:
        if self.claimer.has_backlog and not self._is_stopping:
            self.poll()

    def _take_turns(self) -> None:
        self.turns.take_turns()

    def _heartbeat(self, beat: HeartbeatAttempt) -> None:
        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Rejected):
                self.attempts.stop_rejected(beat.key, outcome)

        self.committer.submit(beat, done)

    def _respond(self, responses: StreamValues, done: Callable[[Outcome], None]) -> None:
        """Values go with the turn that applies them, where the instance is live and has those before them."""
        event = responses.event
        message = Message(event, response=UnstoredValues(responses, done, self._respond_alone))
        if self._is_stopping or not self.turns.values_yielded(responses.key, event.number, message):
            self._respond_alone(responses, done)

    def _respond_alone(self, responses: StreamValues, done: Callable[[Outcome], None]) -> None:
        def decided(outcome: Outcome) -> None:
            done(outcome)
            self.poll()  # the values wait in the inbox of an instance that may be live here

        self.committer.commit_eventually(responses, decided)

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(self.maintenance.pause_seconds(POLL_SECONDS))
            self._may_act()  # an idle worker, too, has to notice that its lease ran out
            self.run_factory.marker.restore()
            try:
                if await self.maintenance.round(self.key):
                    self.poll()
                if not self._is_stopping:
                    await self.claimer.try_blocked(self.turns, self.registry.build)
            except StoreReplaced as error:  # noticed by a heartbeat, or by another engine of this process
                self._session.store_replaced(error)
            except Exception as error:  # noqa: BLE001 - what it did not do, the next round does
                self._trouble.log("the janitor's round failed and is repeated", error)


def _post(loop: asyncio.AbstractEventLoop, call: Callable[[LeaseLike], None], lease: LeaseLike) -> None:
    """Call a function on the loop, from the lease thread. A loop that is closed needs no call."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, lease)


def _ignore(_: object) -> None:
    """A result that nobody needs."""
