"""The life cycle of a worker: it builds the parts, starts, drains and stops them. No step of an instance passes here.

Everything runs on one event loop; only heartbeats, blocking bodies and slow disks have threads of their own. Work that
appears in this process is taken at once, work of other processes when they notify this one, and a slow poll finds the
work whose notification was lost.

References between the parts point downwards: duties hold turns, turns hold attempts, and all hold the context. Four
protocols point upwards: `TurnTaker` implements `AttemptSink`, `WorkerRuntime` implements `LeaseEvents` and
`LocalWorker`, `WorkerLease` implements `LeaseGate`.
"""

import asyncio
import logging
from typing import Final

import msgspec

from holdfast.authoring.registry import Registry
from holdfast.background import BackgroundTask, Duty
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.leases import WorkerKey
from holdfast.errors import StoreReplaced, UsageError
from holdfast.runtime.attempts.launchers import Launches
from holdfast.runtime.attempts.runner import AttemptRunner
from holdfast.runtime.attempts.slots import ActivitySlots
from holdfast.runtime.committer import Committer
from holdfast.runtime.crash_detection import CrashMarker, this_process
from holdfast.runtime.duties.claimer import AFTER_OTHERS_SECONDS, Claimer
from holdfast.runtime.duties.contract_rows import ContractRows
from holdfast.runtime.duties.expiry import Expiry
from holdfast.runtime.duties.lost_workers import LostWorkers
from holdfast.runtime.duties.maintenance import Maintenance
from holdfast.runtime.duties.reconciler import Reconciler
from holdfast.runtime.duties.retention import RetentionDuty
from holdfast.runtime.provided_context import ProvidedContext
from holdfast.runtime.queries import QueryService
from holdfast.runtime.run_factory import RunFactory
from holdfast.runtime.session import StoreSession
from holdfast.runtime.signals import PollSignal
from holdfast.runtime.turns.messages import InboxReader, LocalEvents
from holdfast.runtime.turns.owned_instances import OwnedInstances
from holdfast.runtime.turns.turn_taker import TurnTaker
from holdfast.runtime.worker_context import WorkerContext, WorkerOptions
from holdfast.runtime.worker_lease import BEATS_PER_LEASE, WorkerLease
from holdfast.storage.contract import PAUSE
from holdfast.storage.members.workers import Registration
from holdfast.storage.records import AttemptKey, InstanceNumber
from holdfast.storage.versions import encode_versions
from holdfast.storage.wakeups import Wakeup

logger = logging.getLogger("holdfast")

DEFAULT_CACHE_SIZE: Final = 1_000


def check_options(context: WorkerContext) -> None:
    """Refuse options of activities that the store does not support."""
    if PAUSE in getattr(context.session.store, "capabilities", ()):
        return
    for activity in context.registry.activities.values():
        if activity.options.pauses:
            raise UsageError(f'{activity.name}: on_exhausted="pause" needs a store that pauses instances')


class WorkerRuntime:
    """The worker of one process. It is started once and stopped once.

    Implements the protocols `LeaseEvents` of the lease and `LocalWorker` of the session.
    """

    def __init__(self, session: StoreSession, registry: Registry, options: WorkerOptions) -> None:
        self.registry = registry
        self._options = options
        self._identity = this_process()
        self.stopped = asyncio.Event()
        self.halted = asyncio.Event()
        self.failure: StoreReplaced | None = None
        """Why it has halted, if it has."""
        self._is_stopping = False
        self._registration: Registration
        """Set by `start`, when the registry is checked."""
        self._work = PollSignal()
        self._queues = frozenset((*options.queues, *options.launchers))
        self.lease = WorkerLease(session, self._current_registration, lease_ms=options.lease_ms, events=self)
        self.committer = Committer(session, self.lease, session.platform.fault_hook)
        limit = options.payload_limit or session.payload_limit
        self.provided = ProvidedContext(options.context)
        context = WorkerContext(
            session, registry, self.lease, self.committer, self._work, limit, self.provided, options.build
        )
        self.slots = ActivitySlots(registry, options.queues, options.max_activities, self._work)
        self.attempts = AttemptRunner(context, self.slots)
        marker = CrashMarker(session.store.crash_marker_folder)
        self.runs = RunFactory(registry, session.platform, marker, limit, self.lease)
        self.instances = OwnedInstances(context, self.attempts, self.runs, size=options.cache_size)
        self.turns = TurnTaker(context, self.instances, self.runs, self.attempts, self.slots)
        self.attempts.report_to(self.turns)
        self.inbox = InboxReader(context, self.instances, self.turns)
        self.local_events = LocalEvents(context, self.instances, self.turns, self.inbox)
        self.query_service = QueryService(context, self.instances, self.inbox, self.runs)
        self._make_duties(context)

    def _make_duties(self, context: WorkerContext) -> None:
        check_options(context)
        options = self._options
        self.contract_rows = ContractRows(context)
        self.launches = Launches(context, options.launchers)
        expiry = Expiry(context, self.instances, self.attempts, self.contract_rows)
        self.claimer = Claimer(
            context,
            self.instances,
            self.turns,
            attempts=self.attempts,
            slots=self.slots,
            inbox=self.inbox,
            expiry=expiry,
            launches=self.launches,
            queues=options.queues,
        )
        self.lost_workers = LostWorkers(context, self._identity, self.runs.marker)
        self.maintenance = Maintenance(context, self.claimer, self.lost_workers, expiry)
        heartbeat_seconds = options.lease_ms / BEATS_PER_LEASE / MILLISECONDS
        self.reconciler = Reconciler(
            context, self.instances, self.attempts, self.launches, pause_seconds=heartbeat_seconds
        )
        self._claiming = BackgroundTask(Duty.CLAIMS, self.claimer.run)
        self._launching = BackgroundTask(Duty.LAUNCHES, self.launches.run)
        self._tasks = [
            self._claiming,
            self._launching,
            BackgroundTask(Duty.MAINTENANCE, self.maintenance.run),
            BackgroundTask(Duty.RETENTION, RetentionDuty(context, options.retention).run),
            BackgroundTask(Duty.RECONCILER, self.reconciler.run),
            BackgroundTask(Duty.QUERIES, self.query_service.run),
            BackgroundTask(Duty.CONTRACT_ROWS, self.contract_rows.run),
        ]

    def _make_registration(self) -> Registration:
        return Registration(
            host=self._identity.encode(),
            queues=msgspec.json.encode(self._options.queues).decode(),
            build=self._options.build or self.registry.build,
            slots=self.slots.count,
            workflows=msgspec.json.encode(sorted(self.registry.workflows)).decode(),
            activities=msgspec.json.encode(sorted(self.registry.activities)).decode(),
            versions=encode_versions(self.registry.versions),
        )

    def _current_registration(self) -> Registration:
        """The row that the next heartbeat stores. Called on the lease thread."""
        return msgspec.structs.replace(self._registration, abandoned=len(self.attempts.abandoned))

    @property
    def is_running(self) -> bool:
        """Whether it is registered."""
        return self.lease.is_registered

    # ------------------------------------------------------------ life cycle

    async def start(self) -> None:
        """Make the context, register, take over from workers that died on this machine, and begin to work."""
        self.registry.check()
        await self.provided.enter()
        self._registration = self._make_registration()
        await self.lease.register(self.runs.loop_rules(self._options.lease_ms, self._options.loop_timeout_ms))
        self.runs.marker.open(self.lease.key)
        for flow in self.runs.flows.definitions():
            await self.committer.commit(flow)
        await self.maintenance.round()
        await self.claimer.try_blocked("")  # any build may have blocked them: this code may be the fix (G12)
        for task in self._tasks:
            task.start()

    async def drain(self) -> None:
        """W10: claim nothing more, release instances and prepared attempts at once, and wait for the bodies that run.

        The lease is kept, and completions are recorded for the next owners. `stop` follows, or interrupts it.
        """
        self.claimer.close()
        await self._claiming.wait()  # a claim that is being committed is run
        self.launches.close()
        await self._launching.wait()
        await self.launches.wait_for_reports()
        self._stop_dispatch()
        await self.committer.drain()  # first turns become live, and the activities that they start run
        await self.claimer.wake_continued()
        await self.instances.release_all()
        self.attempts.release_preparing()
        logger.info("worker %s drains; activities that run: %d", self.lease.key, len(self.attempts.running))
        await self.attempts.wait_for_bodies()

    async def stop(self) -> None:
        """W10: stop cleanly. Instances are released first: no timer fires here any more, and none of them waits for a
        body. Attempts that end meanwhile are recorded; the others move to other workers at the end.
        """
        self._stop_dispatch()
        await self._stop_tasks()
        await self.lease.settle()
        await self.instances.release_all()
        await self.attempts.stop()
        if self.lease.is_registered:
            await self.local_events.drain()
            self.committer.close()
            await self.committer.drain()
            await self.lost_workers.mark_lost(self.lease.key, at_deadline=False, is_clean=True)
        self.runs.stop()  # not before: code is torn down until here, and may spin
        await self.attempts.close()
        await self.provided.leave()
        await self.lease.close()
        self.stopped.set()

    async def kill(self) -> None:
        """Stop as a killed process does: nothing is released, and nothing is written. For tests."""
        await self._stop_tasks()
        self.lease.halt()
        await self.lease.settle()
        await self.attempts.close()
        await self.provided.leave()
        self.turns.evict_all(starting=True)
        self.runs.stop(is_clean=False)
        await self.lease.close()

    def _stop_dispatch(self) -> None:
        self._is_stopping = True
        self.slots.close()
        self.turns.stop()
        self.lease.stop_replacing()

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.stop()
        for task in self._tasks:
            await task.wait()

    async def take_over(self, key: WorkerKey) -> None:
        """Move what a dead worker owns, at once. For tests."""
        await self.lost_workers.mark_lost(key, at_deadline=False)
        self._work.set()

    # ------------------------------------------------------------ events of the lease

    def lease_lost(self) -> None:
        """W5, W7: evict everything that was begun under the lost key; its rows move to other workers."""
        if not self._is_stopping:
            self.turns.evict_all()
        self.attempts.evict_all()
        self.launches.evict_all()

    async def lease_replaced(self, old: WorkerKey) -> None:
        """Move the rows of the lost key, which this process can do at once."""
        self.runs.marker.open(self.lease.key)
        await self.lost_workers.mark_lost(old, at_deadline=False, is_own=True)
        self._work.set()

    def instances_released(self) -> None:
        """W1: the lease thread released the instances while the event loop was blocked. Completions that came
        meanwhile are committed for the next owners.
        """
        self.instances.evict_released()
        self.committer.outcome_unknown.set()
        self._work.set()

    # ------------------------------------------------------------ events of the session

    def poll(self) -> None:
        """Something may have become claimable."""
        self._work.set()

    @property
    def key(self) -> WorkerKey | None:
        """The key under which it owns instances."""
        return self.lease.key if self.lease.is_registered else None

    def woken(self, wakeup: Wakeup) -> None:
        """Poll for what another process has made claimable, if this worker can claim it.

        Without a free slot attempts are a backlog: the next free slot polls for them.
        """
        names = self.registry.workflows.keys()
        key = self.key
        may_claim = not names.isdisjoint(wakeup.workflows)
        is_named = not wakeup.claimants or key in wakeup.claimants
        if wakeup.everything or (may_claim and is_named):
            self._work.set()
        elif not self._queues.isdisjoint(wakeup.queues):
            if self.slots.free > 0 or not self._options.launchers.keys().isdisjoint(wakeup.queues):
                self._work.set()
            else:
                self.slots.note_arrival()
        if may_claim and not is_named:
            self._work.set_later(AFTER_OTHERS_SECONDS)
        if key in wakeup.owners:
            self._work.set_for_messages()
        if wakeup.everything or key in wakeup.queries or not names.isdisjoint(wakeup.queries):
            self.query_service.poll()

    def poll_contract_rows(self, name: str | None) -> None:
        """Rows of the open contract may have been inserted, with this name or any."""
        self.contract_rows.poll(name)

    def instance_closed(self, number: InstanceNumber) -> None:
        """A commit other than its own turn closed an instance."""
        self.instances.close(number)

    def activity_cancelled(self, key: AttemptKey, *, is_running: bool) -> None:
        """A commit of a client cancelled an attempt. One that is not RUNNING any more is not recorded here."""
        if is_running:
            self.attempts.cancel_attempt(key, is_awaited=True)
        else:
            self.attempts.disown(key)

    def halt(self, error: StoreReplaced) -> None:
        """The files of the store are gone: run and claim nothing more. The program calls `stop` later."""
        if self.failure is not None:
            return
        self.failure = error
        self._stop_dispatch()
        for task in self._tasks:
            task.stop()
        self.turns.evict_all()
        self.attempts.evict_all()
        self.lease.halt()
        self.halted.set()
