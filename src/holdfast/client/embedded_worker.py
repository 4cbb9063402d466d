"""A worker beside a client, in the same process: each learns at once what the other has written.

While there is one, the client's commits go with the worker's, in its groups, and an instance of a workflow that the
worker knows is created together with its first turn.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from holdfast.authoring.registry import Registry
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
from holdfast.core.history import Started
from holdfast.core.leases import SHORTEST_LOOP_TIMEOUT_MS
from holdfast.errors import InvalidOption, UsageError, WorkerFenced
from holdfast.payloads.limits import LEAST_PAYLOAD_LIMIT_BYTES, MOST_PAYLOAD_LIMIT_BYTES, PayloadLimit
from holdfast.runtime.committer import Committer
from holdfast.runtime.flow_versions import saved
from holdfast.runtime.session import StoreSession
from holdfast.runtime.turns.turn_builder import with_started
from holdfast.runtime.worker import WorkerRuntime
from holdfast.runtime.worker_context import WorkerOptions
from holdfast.storage.contract import OpenableStore
from holdfast.storage.members.instances import Start
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Applied, Delivered, Failed, Outcome, Rejected, StartedInstance
from holdfast.storage.records import InstanceId, InstanceRecord

if TYPE_CHECKING:
    from holdfast.flows.workflow import FlowWorkflow


DEFAULT_MAX_ACTIVITIES: Final = 100


class EmbeddedWorker:
    """What a client has to do with the worker beside it, if there is one."""

    _store: OpenableStore
    _committer: Committer
    _alone: Committer
    """What commits for the client when there is no worker."""
    _session: StoreSession
    _limit: PayloadLimit
    """The largest payload that this client sends."""
    _worker: WorkerRuntime | None = None
    _starting: dict[InstanceId, "asyncio.Future[None]"]
    """Starts of ids that were given, which are being committed: another start of the id waits for them."""
    _kept_flows: frozenset[str] = frozenset()
    """The versions of flows that this client has stored."""

    @property
    def worker(self) -> WorkerRuntime | None:
        """The worker of this process, while one runs beside this client."""
        return self._worker if self._worker is not None and self._worker.is_running else None

    def make_worker(self, registry: Registry, options: WorkerOptions) -> WorkerRuntime:
        """One that tells this client what it commits, and which instances end."""
        return WorkerRuntime(self._session, registry, options)

    async def start_worker(self, worker: WorkerRuntime) -> None:
        """Let a worker run beside this client. What it cannot begin with is raised, and then there is none."""
        if self._worker is not None:
            raise UsageError("this client has a worker already; give another one a client of its own: hf.connect(...)")
        self._alone = self._committer
        self._committer = worker.committer
        self._worker = worker
        self._session.worker = worker
        try:
            await worker.start()
        except BaseException:
            await self.stop_worker()
            raise

    async def stop_worker(self) -> None:
        """Stop the worker, if there is one (W10). The client goes on."""
        worker = self._worker
        if worker is None:
            return
        await worker.stop()
        if self._worker is worker:
            self._worker = None
            self._session.worker = None
            self._committer = self._alone

    async def _keep_flow(self, flow: Workflow[..., Any]) -> str:
        """The hash of a flow. Before its first start its definition is stored, so that any worker finds it."""
        digest = flow.fingerprint
        known = None if self._worker is None else self._worker.registry.workflows.get(flow.name)
        if known is not None and not known.is_flow:
            return ""  # a test has code in its place
        if known is not flow and digest not in self._kept_flows:
            outcome = await self._committer.commit(saved(cast("FlowWorkflow", flow)))
            if isinstance(outcome, Failed):
                raise outcome.error
            self._kept_flows |= {digest}
        return digest

    async def _commit_start(self, start: Start, started: Started, *, is_named: bool) -> Outcome:
        """Create the instance, with its first turn where that is possible; else its start waits in its inbox.

        `is_named`: the id was not made for this start. Then the first turn is run only if the start will create an
        instance, as far as the store knows at that moment: a start that finds its instance runs no code.
        """
        worker = self._worker
        if worker is None:
            return await self._committer.commit(with_started(start, started))
        if start.workflow in worker.registry.workflows:
            outcome = await (self._start_once if is_named else self._start_with_first_turn)(worker, start, started)
            if outcome is not None:
                return outcome
        outcome = await self._committer.commit(with_started(start, started))
        worker.poll()
        self._note_unknown(start.workflow)
        return outcome

    async def _start_once(self, worker: WorkerRuntime, start: Start, started: Started) -> Outcome | None:
        """As `_start_with_first_turn`, unless the start will find its instance. Starts of one id go one by one.

        None if the start is to be committed without a first turn.
        """
        while (earlier := self._starting.get(start.id)) is not None:
            await asyncio.wait([earlier])
        over = self._starting[start.id] = asyncio.get_running_loop().create_future()
        try:
            match await self._judge_start(start):
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
            worker.poll()  # it may be nearer than what is waited for
        return None if _lacked_a_lease(outcome) else outcome

    async def _judge_start(self, start: Start) -> tuple[StartVerdict, InstanceRecord | None]:
        """What the start does, as far as the store knows now, and the instance that has its id."""
        if start.policy is IdPolicy.TERMINATE_EXISTING:
            return StartVerdict.REPLACE, None  # it creates an instance in any case
        record = await self._store.find_instance(start.id)
        if record is None:
            return StartVerdict.CREATE, None
        existing = ExistingInstance(StartIdentity(record.workflow, record.input_hash), record.state)
        return decide_start(StartIdentity(start.workflow, start.input_hash), existing, start.policy), record

    async def _raise_to_found(self, worker: WorkerRuntime, start: Start, found: InstanceRecord) -> Outcome | None:
        """Raise the event of a start to the instance that it found, which refuses a value that does not fit (G6).

        None if there is no event, or that instance is not live here or has ended meanwhile: the store decides.
        """
        if start.mail is None or worker.instances.live.find(start.id, found.number) is None:
            return None
        outcome = await self._commit_message(msgspec.structs.replace(start.mail, number=found.number))
        match outcome:
            case Applied():
                return StartedInstance(instance=found, created=False)
            case Delivered() if outcome.verdict is not EventVerdict.CLOSED:
                return StartedInstance(instance=found, created=False, mail=outcome)
            case Failed():
                return outcome
            case _:
                return None

    async def _commit_message(self, message: Deliver) -> Outcome:
        """Send a message: with the turn that takes it, where its instance is live here (`Applied`), else by itself."""
        if self._worker is None:
            return await self._committer.commit(message)
        decided: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._worker.local_events.send(message, lambda outcome: _settle(decided, outcome))
        return await decided

    def _note_unknown(self, workflow: str) -> None:
        """An instance was started whose workflow the worker here may not have: a client does that for others."""


def worker_options(
    registry: Registry,
    *,
    queues: Iterable[str] | None,
    max_activities: int,
    cache_size: int,
    lease: Duration,
    loop_timeout: Duration | None,
    payload_limit: int | None = None,
) -> WorkerOptions:
    """What a worker is told, checked. Without `queues` it serves those of the activities it has, and the default."""
    served = registry.queues if queues is None else checked_sequence(queues, "queues")
    return WorkerOptions(
        queues=tuple(checked_name(queue, "a queue") for queue in served),
        max_activities=checked_integer(max_activities, "max_activities", least=1),
        cache_size=checked_integer(cache_size, "cache_size", least=0),
        lease_ms=lease_milliseconds(lease, "lease"),
        loop_timeout_ms=checked_loop_timeout_ms(loop_timeout, "loop_timeout"),
        payload_limit=None if payload_limit is None else payload_limit_of(payload_limit),
    )


def checked_loop_timeout_ms(timeout: Duration | None, name: str) -> int | None:
    """W1: an option, in milliseconds; None: a blocked event loop never ends the lease."""
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


def _lacked_a_lease(outcome: Outcome) -> bool:
    """Whether the first turn may be what was refused. The start alone is in nobody's name, and is tried again."""
    return isinstance(outcome, Rejected) or (isinstance(outcome, Failed) and isinstance(outcome.error, WorkerFenced))


def _settle(future: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
