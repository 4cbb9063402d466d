"""The worker that runs in the process of a client, and the committer that the client uses.

While a worker runs, the commits of the client join the worker's groups, an instance of a workflow that the worker has
is created together with its first turn, and a message for a live instance is committed with the turn that takes it.
Without a worker the client commits by itself, and starts and messages wait in the store.
"""

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from holdfast.authoring.launcher import Launcher
from holdfast.authoring.provided import ContextFactory, checked_context
from holdfast.authoring.registry import Registry
from holdfast.authoring.retention import Retention, checked_retention
from holdfast.authoring.validation import (
    Duration,
    checked_integer,
    checked_name,
    checked_sequence,
    checked_timeout_ms,
    lease_milliseconds,
)
from holdfast.authoring.workflow import Workflow
from holdfast.core.admission import EventVerdict, ExistingInstance, IdPolicy, StartIdentity, StartVerdict, decide_start
from holdfast.core.history import Started, UpdateAccepted
from holdfast.core.leases import SHORTEST_LOOP_TIMEOUT_MS
from holdfast.errors import InstanceNotFound, InvalidOption, StoreError, UnknownWorkflow, UsageError, WorkerFenced
from holdfast.payloads.limits import LEAST_PAYLOAD_LIMIT_BYTES, MOST_PAYLOAD_LIMIT_BYTES, PayloadLimit
from holdfast.runtime.committer import Committer
from holdfast.runtime.flow_versions import saved
from holdfast.runtime.session import ENGINE, StoreSession
from holdfast.runtime.turns.turn_builder import with_started
from holdfast.runtime.worker import WorkerRuntime
from holdfast.runtime.worker_context import WorkerOptions
from holdfast.storage.members.instances import Start, Watch
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Applied, Delivered, Failed, Outcome, Rejected, StartedInstance
from holdfast.storage.records import InstanceId, InstanceNumber, InstanceRecord
from holdfast.storage.wakeups import EVERY_CHANGE

if TYPE_CHECKING:
    from holdfast.flows.workflow import FlowWorkflow

logger = logging.getLogger("holdfast")

DEFAULT_MAX_ACTIVITIES: Final = 100
BUILD_VARIABLE: Final = "HOLDFAST_BUILD"
"""Names the build of the code where `build=` is omitted."""


class EmbeddedWorker:
    """The worker of a client, one at a time, and the committer in use."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._own_committer = Committer(session)
        self.committer = self._own_committer
        """The worker's while there is a worker, else the client's own."""
        self.worker: WorkerRuntime | None = None
        """Set from `start` to `stop`."""
        self._starting: dict[InstanceId, asyncio.Future[None]] = {}
        """Starts under a given id that are being committed; another start of the id waits for them."""
        self._saved_flows: frozenset[str] = frozenset()
        """The versions of flows that this client has stored."""
        self._unknown: set[tuple[str, str | None]] = set()
        """The workflows and versions for which `_warn_if_unknown` has logged a line."""
        session.results.watch = self._watch_soon

    # ------------------------------------------------------------ life of the worker

    @property
    def running(self) -> WorkerRuntime | None:
        """The worker while it is registered."""
        return self.worker if self.worker is not None and self.worker.is_running else None

    def make(self, registry: Registry, options: WorkerOptions) -> WorkerRuntime:
        """A worker on the session of this client, which has none yet. `start` starts it."""
        if self.worker is not None:
            raise UsageError("this client has a worker already; give another one a client of its own: hf.connect(...)")
        return WorkerRuntime(self._session, registry, options)

    async def start(self, worker: WorkerRuntime) -> None:
        """Start a worker. If it cannot start, its error is raised and the client has no worker."""
        self._attach(worker)
        try:
            await worker.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the worker, if there is one (W10). The client stays open."""
        worker = self.worker
        if worker is None:
            return
        await worker.stop()
        if self.worker is worker:
            self.detach()

    def _attach(self, worker: WorkerRuntime) -> None:
        self.worker = worker
        self._session.set_worker(worker)
        self.committer = worker.committer

    def detach(self) -> None:
        """Continue without the worker."""
        self.worker = None
        self._session.set_worker(None)
        self.committer = self._own_committer

    def kill(self) -> None:
        """Continue without the worker, and commit nothing more. For tests."""
        self.detach()
        self._own_committer.kill()

    def is_live(self, number: InstanceNumber) -> bool:
        """Whether the worker has the instance in memory; then the instance has not ended."""
        worker = self.running
        return worker is not None and number in worker.instances.live

    # ------------------------------------------------------------ starts

    async def save_flow(self, flow: Workflow[..., Any]) -> str:
        """The hash of a flow, whose definition is stored before its first start, so that any worker finds it."""
        digest = flow.fingerprint
        known = None if self.worker is None else self.worker.registry.workflows.get(flow.name)
        if known is not None and not known.is_flow:
            return ""  # a test replaced the flow by code
        if known is not flow and digest not in self._saved_flows:
            outcome = await self.committer.commit(saved(cast("FlowWorkflow", flow)))
            if isinstance(outcome, Failed):
                raise outcome.error
            self._saved_flows |= {digest}
        return digest

    async def commit_start(self, start: Start, started: Started, *, is_named: bool) -> Outcome:
        """Create an instance, with its first turn if the worker can take it now; else the start waits in the inbox.

        `is_named`: the caller gave the id. Then the first turn is run only if the start will create an instance, as far
        as the store knows at that moment: a start that finds its instance runs no code.

        A start with an update is committed without a first turn: the turn finds both in the inbox, so that the update
        reaches the code also if its main function ends at once (G14, G17).
        """
        worker = self.worker
        if worker is None:
            return await self._commit_unstarted(start, started)
        if (
            worker.registry.find(start.workflow, start.version) is not None
            and start.start_at_ms is None
            and not brings_update(start)
        ):
            outcome = await (self._start_once if is_named else self._start_with_first_turn)(worker, start, started)
            if outcome is not None:
                return outcome
        outcome = await self._commit_unstarted(start, started)
        worker.poll()
        self._warn_if_unknown(worker, start)
        return outcome

    async def _commit_unstarted(self, start: Start, started: Started) -> Outcome:
        """Commit a start without a first turn. Its row names this process, which its end will wake."""
        watched = msgspec.structs.replace(start, watcher=self._session.name)
        outcome = await self.committer.commit(with_started(watched, started))
        if isinstance(outcome, StartedInstance) and outcome.created:
            self._session.results.set_watched(outcome.instance.number)
        return outcome

    async def _start_once(self, worker: WorkerRuntime, start: Start, started: Started) -> Outcome | None:
        """As `_start_with_first_turn`, unless the start will find its instance. Starts of one id run one by one.

        None if the start is to be committed without a first turn.
        """
        while (earlier := self._starting.get(start.id)) is not None:
            await asyncio.wait([earlier])
        over = self._starting[start.id] = asyncio.get_running_loop().create_future()
        try:
            match await self._decide_start(start):
                case StartVerdict.SAME, InstanceRecord() as found:
                    return await self._raise_to_found(worker, start, found)
                case StartVerdict.CONFLICT, _:
                    return None
                case _:
                    return await self._start_with_first_turn(worker, start, started)
        finally:
            del self._starting[start.id]
            over.set_result(None)

    async def _start_with_first_turn(self, worker: WorkerRuntime, start: Start, started: Started) -> Outcome | None:
        """None if the worker cannot take the first turn now."""
        decided: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if not worker.turns.start_instance(start, started, lambda outcome: _settle(decided, outcome)):
            return None
        outcome = await decided
        if start.deadline is not None:
            worker.poll()  # the claimer sleeps until the next due time, and this may be earlier
        return None if _may_lack_lease(outcome) else outcome

    async def _decide_start(self, start: Start) -> tuple[StartVerdict, InstanceRecord | None]:
        """The verdict on the start, as far as the store knows now, and the instance that has its id."""
        if start.policy is IdPolicy.TERMINATE_EXISTING:
            return StartVerdict.REPLACE, None  # it creates an instance in any case
        record = await self._session.store.find_instance(start.id)
        if record is None:
            return StartVerdict.CREATE, None
        existing = ExistingInstance(StartIdentity(record.workflow, record.input_hash), record.state)
        return decide_start(StartIdentity(start.workflow, start.input_hash), existing, start.policy), record

    async def _raise_to_found(self, worker: WorkerRuntime, start: Start, found: InstanceRecord) -> Outcome | None:
        """Raise the event of a start to the instance that it found, which rejects a value of the wrong type (G6).

        None if there is no event, or the start is traced, or the instance is not live here or has ended meanwhile: the
        store decides.
        """
        if start.mail is None or start.trace is not None or worker.instances.live.find(start.id, found.number) is None:
            return None
        outcome = await self.send(msgspec.structs.replace(start.mail, number=found.number))
        match outcome:
            case Applied():
                return StartedInstance(instance=found, created=False)
            case Delivered() if outcome.verdict is not EventVerdict.CLOSED:
                return StartedInstance(instance=found, created=False, mail=outcome)
            case Failed():
                return outcome
            case _:
                return None

    def _warn_if_unknown(self, worker: WorkerRuntime, start: Start) -> None:
        """Log, once for each version, that an engine started what it cannot run. A client may, for other workers."""
        asked = (start.workflow, start.version)
        if self._session.owner is not ENGINE or asked in self._unknown:
            return
        try:
            worker.registry.workflow(*asked)
        except UnknownWorkflow as error:
            self._unknown.add(asked)
            logger.warning("%s. Its instances wait for a worker that has it", error)

    # ------------------------------------------------------------ waiting for instances

    async def watch(self, number: InstanceNumber, *, every_change: bool = False) -> bool:
        """Let the end of an instance wake this process; with `every_change` also answers and state values.

        Returns False if the instance has ended. If the store cannot be written, the next poll finds the end.
        """
        results = self._session.results
        if self.is_live(number) or (results.is_watched(number) and not every_change):
            return True
        prefix = EVERY_CHANGE if every_change else ""
        outcome = await self.committer.commit(Watch(number=number, watcher=prefix + self._session.name))
        if isinstance(outcome, Applied):
            results.set_watched(number)
        return not isinstance(outcome, Rejected)

    def _watch_soon(self, number: InstanceNumber) -> None:
        """The same for an instance that this process waits for, and that another worker has now."""
        results = self._session.results

        def done(outcome: Outcome) -> None:
            if not isinstance(outcome, Applied):  # it has ended since it was read, or the store cannot be written
                results.set_watched(number, is_watched=False)
            if isinstance(outcome, Rejected):
                results.poll([number])

        if not self.is_live(number):
            results.set_watched(number)  # before the outcome, so that it is submitted once
            self.committer.submit(Watch(number=number, watcher=self._session.name), done)

    # ------------------------------------------------------------ messages

    async def send(self, message: Deliver) -> Outcome:
        """Commit a message: with the turn that takes it if its instance is live here (`Applied`), else by itself."""
        if self.worker is None:
            return await self.committer.commit(message)
        decided: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.worker.local_events.send(message, lambda outcome: _settle(decided, outcome))
        return await decided

    async def deliver(self, message: Deliver) -> Delivered:
        """Commit a message into an inbox. Raises `InstanceNotFound`, or the error of the store."""
        return self.delivered(message, await self.send(message))

    def delivered(self, message: Deliver, outcome: Outcome) -> Delivered:
        """The outcome of a message that is now in an inbox. Wakes the worker, which may have the instance."""
        match outcome:
            case Delivered():
                self._session.poll_work()
                return outcome
            case Rejected():
                raise InstanceNotFound(outcome.reason)
            case Failed():
                raise outcome.error
            case _:
                raise StoreError(f"a message for {message.id!r} had the outcome {outcome!r}")


def worker_options(
    registry: Registry,
    *,
    queues: Iterable[str] | None,
    max_activities: int,
    cache_size: int,
    lease: Duration,
    loop_timeout: Duration | None,
    payload_limit: int | None = None,
    launchers: Mapping[str, Launcher] | None = None,
    context: ContextFactory | None = None,
    build: str | None = None,
    retention: Retention | None = None,
) -> WorkerOptions:
    """The options of a worker, checked. Without `queues` it serves those of its registered activities.

    Without `build` the environment names the build; without both it is the hash of the registered code.
    """
    served = registry.queues if queues is None else checked_sequence(queues, "queues")
    return WorkerOptions(
        queues=tuple(checked_name(queue, "a queue") for queue in served),
        max_activities=checked_integer(max_activities, "max_activities", least=1),
        cache_size=checked_integer(cache_size, "cache_size", least=0),
        lease_ms=lease_milliseconds(lease, "lease"),
        loop_timeout_ms=checked_loop_timeout_ms(loop_timeout, "loop_timeout"),
        payload_limit=None if payload_limit is None else payload_limit_of(payload_limit),
        launchers=checked_launchers(launchers),
        context=checked_context(context),
        build=checked_build(build),
        retention=checked_retention(retention),
    )


def checked_build(build: object) -> str:
    """The option `build`, or the variable, checked; empty if neither names a build."""
    named = os.environ.get(BUILD_VARIABLE, "") if build is None else build
    return "" if build is None and not named else checked_name(named, "a build")


def checked_launchers(launchers: object) -> dict[str, Launcher]:
    """The option `launchers`, checked."""
    if launchers is None:
        return {}
    if not isinstance(launchers, Mapping):
        raise InvalidOption(
            f"launchers takes a launcher for each queue, such as {{'gpu': launcher}}, not {launchers!r}"
        )
    found: dict[str, Launcher] = {}
    for queue, launcher in cast("Mapping[object, object]", launchers).items():
        if not isinstance(launcher, Launcher):
            raise InvalidOption(f"the launcher of queue {queue!r} needs `async def launch(self, task)`: {launcher!r}")
        found[checked_name(queue, "a queue")] = launcher
    return found


def checked_loop_timeout_ms(timeout: Duration | None, name: str) -> int | None:
    """W1: an option, in milliseconds; None if a blocked event loop never ends the lease."""
    timeout_ms = None if timeout is None else checked_timeout_ms(timeout, name)
    if timeout_ms is not None and timeout_ms < SHORTEST_LOOP_TIMEOUT_MS:
        shortest = SHORTEST_LOOP_TIMEOUT_MS / 1000
        raise InvalidOption(f"{name} must be at least {shortest:g} s, not {timeout_ms / 1000:g} s; None means no limit")
    return timeout_ms


def payload_limit_of(payload_limit: object) -> PayloadLimit:
    """The option `payload_limit`, checked."""
    return PayloadLimit(
        checked_integer(payload_limit, "payload_limit", least=LEAST_PAYLOAD_LIMIT_BYTES, most=MOST_PAYLOAD_LIMIT_BYTES)
    )


def brings_update(start: Start) -> bool:
    """Whether a start brings an update."""
    return start.mail is not None and isinstance(start.mail.event, UpdateAccepted)


def _may_lack_lease(outcome: Outcome) -> bool:
    """Whether the first turn may be the cause of a rejection. The start alone needs no lease, and is tried again."""
    return isinstance(outcome, Rejected) or (isinstance(outcome, Failed) and isinstance(outcome.error, WorkerFenced))


def _settle(future: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
