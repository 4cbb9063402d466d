"""Queries that are answered in this process. An answer reflects every message that was acknowledged before (G5, G11).

An instance whose code is live here answers after the turn that applies its inbox is committed. An instance without
an owner answers from a run that is rebuilt from the history, to which the messages of the inbox are applied without a
commit: the order and the times of these messages are fixed (G10), so the next turn has the same effect. The result of
a side effect is not fixed before it is recorded; if the messages lead to one, the query waits for the turn. For an
instance that another worker owns only that worker knows what is applied next, so the query goes to that worker.

An instance that is BLOCKED or PAUSED answers from its last committed turn. No query takes a turn or changes the store.

`QueryService` answers queries that other processes put into the store, about instances that this worker owns and about
instances without an owner. A query is claimed before it is answered: one worker answers it, and a handler that ends the
process ends one process. Each query has a task of its own, so that one that waits for a turn does not delay the others.
If the turn does not come in time, if another worker has claimed the instance, or if this worker stops, the reply makes
the client send the query again.
"""

import asyncio
import logging
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

import msgspec

from holdfast.authoring.log import write_line
from holdfast.core.history import FROM_OUTSIDE, ContinuedAsNew, EventReceived, Input, decode_events
from holdfast.core.leases import WorkerKey, WorkerState
from holdfast.core.lifecycle import InstanceState
from holdfast.core.queries import Reply, ReplyKind, encode_answer, unknown_handler
from holdfast.core.run import Run, TurnOutput
from holdfast.errors import InstanceClosed, InstanceNotFound, StoreError, WorkflowBlocked
from holdfast.replay.queries import refused_reply
from holdfast.runtime.committer import ignore_outcome
from holdfast.runtime.run_factory import RunFactory
from holdfast.runtime.signals import PollSignal
from holdfast.runtime.turns.live_instance import LiveInstance
from holdfast.runtime.turns.messages import InboxReader
from holdfast.runtime.turns.owned_instances import OwnedInstances
from holdfast.runtime.worker_context import WorkerContext
from holdfast.runtime.worker_lease import WorkerLease
from holdfast.storage.contract import Store
from holdfast.storage.members.messages import AnswerQuery, ClaimQueries, DeleteQueries, QueryRow
from holdfast.storage.members.outcomes import ClaimedQueries
from holdfast.storage.records import HistoryRow, InstanceNumber, InstanceRecord, LoadedInstance

POLL_SECONDS: Final = 0.05
"""How soon the end of a live instance is noticed while a query waits for its turn."""
HALTED: Final = (InstanceState.BLOCKED, InstanceState.PAUSED)
"""No turn applies the inbox of these instances: they answer from their last committed turn."""


class Unanswered(Enum):
    """Why there is no answer yet."""

    GONE = "the instance is not in the store"
    NEEDS_TURN = "a turn has to be committed first"
    OWNED_ELSEWHERE = "another worker owns the instance and has messages to apply"


class LocalInstances(NamedTuple):
    """The worker of this process: its instances, its inbox, and the lease that it acts under."""

    instances: OwnedInstances
    inbox: InboxReader
    lease: WorkerLease


class Queries:
    """Answers queries of registered workflows. `local` is None for a client without a worker."""

    def __init__(self, store: Store, runs: RunFactory, local: LocalInstances | None = None) -> None:
        self._store = store
        self._runs = runs
        self._local = local

    async def ask(
        self, number: InstanceNumber, name: str, data: bytes, known: InstanceRecord | None = None
    ) -> Reply | Unanswered:
        """Try once to answer a query. If a turn is needed first, the caller tries again after a commit.

        `known`: the instance, if the caller has read it since the query was sent.
        """
        if self._local is not None:
            await self._evict_if_stale(self._local, number, known)
            answer = await _ask_live(self._local, number, name, data)
            if answer is not None:
                return answer
        loaded = await self._store_view(number)
        if isinstance(loaded, Unanswered):
            return loaded
        return await self._ask_stored(*loaded, name, data)

    async def _evict_if_stale(
        self, local: LocalInstances, number: InstanceNumber, known: InstanceRecord | None
    ) -> None:
        """Evict an instance that was paused meanwhile (R20): other workers may have committed turns of it since."""
        if number not in local.instances.live:
            return
        record = known
        if known is None or not _is_owner(local, local.instances.live[number], known):
            record = await self._store.read_instance(number)
        live = local.instances.live.get(number)
        if live is not None and not live.has_uncommitted_turn and not _is_owner(local, live, record):
            local.instances.evict(live)

    async def _store_view(self, number: InstanceNumber) -> tuple[InstanceRecord, LoadedInstance] | Unanswered:
        """The instance with its history and inbox, as of one moment.

        Stores read history and inbox one after the other. A turn that is committed between the two reads removes its
        messages from the inbox and is not in the history. The turn number, read before and after, shows that.
        """
        record = await self._store.read_instance(number)
        if record is None:
            return Unanswered.GONE
        loaded = await self._store.load(number, record.execution)
        current = await self._store.read_instance(number)
        if current is None:
            return Unanswered.GONE
        if (current.execution, current.turn, current.state) != (record.execution, record.turn, record.state):
            is_elsewhere = current.owner is not None and self._is_elsewhere(current)
            return Unanswered.OWNED_ELSEWHERE if is_elsewhere else Unanswered.NEEDS_TURN
        if not loaded.history and current.closed_at_ms is None and current.state is not InstanceState.BLOCKED:
            return Unanswered.NEEDS_TURN  # the next execution has not begun
        return current, loaded

    async def _ask_stored(
        self, record: InstanceRecord, loaded: LoadedInstance, name: str, data: bytes
    ) -> Reply | Unanswered:
        """Rebuild the run, apply its inbox without a commit, and call the handler."""
        try:
            never_ran = _never_ran(loaded.history)
        except Exception as error:  # noqa: BLE001 - the history is damaged: the sender gets the error
            return _unreadable_reply(record, error)
        if never_ran:
            return refused_reply(
                InstanceClosed(f"{record.id!r} was ended before any of its code ran: it answers no query")
            )
        try:
            flow = await self._runs.flows.fetch(self._store, record.workflow, loaded.history)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - its version of the flow cannot run here
            return _unreadable_reply(record, error)
        if flow:
            return unknown_handler(())  # a flow has no code that could answer
        try:
            run = self._rebuild(record, loaded)
        except Exception as error:  # noqa: BLE001 - this code does not fit the history
            return _unreadable_reply(record, error)
        try:
            unanswered = await self._apply_inbox(record, loaded, run)
            if unanswered is not None:
                return unanswered
            if run.is_tainted:
                run.evict()
                run = self._rebuild(record, loaded)
            return _ask(run, name, data)
        finally:
            run.evict()

    def _rebuild(self, record: InstanceRecord, loaded: LoadedInstance) -> Run:
        """The run as of its last committed turn."""
        run = self._runs.new_run(record.id, record.workflow, record.execution, loaded.payloads, version=record.version)
        try:
            self._runs.replay(record.number, run, loaded.history)
        except BaseException:
            run.evict()
            raise
        return run

    async def _apply_inbox(self, record: InstanceRecord, loaded: LoadedInstance, run: Run) -> Unanswered | None:
        """Apply the inbox to the run without a commit. Returns why only a turn can do that, if so.

        Where applying fails the run is tainted: the turn will block the instance, and a blocked instance answers from
        its last committed turn.
        """
        if record.closed_at_ms is not None or record.state in HALTED:
            return None
        live = LiveInstance.of(record, run)
        live.timers = {timer.timer: timer.due_at_ms for timer in loaded.timers}
        try:
            live.enqueue(loaded.inbox, ())
        except Exception:  # noqa: BLE001 - a row that cannot be decoded; the turn that reads it reports it
            return None
        if not live.queue:
            return None
        newest_ms = max(message.event.time_ms for message in live.queue)
        has_due_timer = any(due_ms <= newest_ms for due_ms in live.timers.values())
        if not has_due_timer and not any(_is_taken(run, message.event) for message in live.queue):
            return None  # a due timer goes first (G10), and the code may wait for one of the messages after it
        if await self._is_owned(record):
            return Unanswered.OWNED_ELSEWHERE if self._is_elsewhere(record) else Unanswered.NEEDS_TURN
        messages = live.take_messages(lambda: newest_ms)  # includes the timers that precede a message (G10)
        try:
            with self._runs.marked(record.number):
                run.preview(lambda: live.apply_all(messages, []))
        except Exception:  # noqa: BLE001 - the turn that applies them reports it
            return None
        is_undecided = run.needs_turn or _is_continued(run.take_output())
        return Unanswered.NEEDS_TURN if is_undecided else None

    def _is_elsewhere(self, record: InstanceRecord) -> bool:
        return self._local is None or record.owner != self._local.lease.key

    async def _is_owned(self, record: InstanceRecord) -> bool:
        """Whether a worker whose lease is valid owns the instance."""
        if record.owner is None:
            return False
        if not self._is_elsewhere(record):
            return True
        now_ms = self._store.now_ms()
        return any(
            worker.key == record.owner and worker.state == WorkerState.ACTIVE and worker.deadline_ms > now_ms
            for worker in await self._store.workers()
        )


def _is_continued(output: TurnOutput) -> bool:
    """Whether the next execution follows (G4, G18): it answers."""
    return isinstance(output.outcome, ContinuedAsNew) or (
        output.effects is not None and output.effects.next_attempt is not None
    )


async def _ask_live(local: LocalInstances, number: InstanceNumber, name: str, data: bytes) -> Reply | None:
    """Query live code after the messages that wait for it are applied and committed; None if it is not live."""
    instances = local.instances
    if number not in instances.live:
        return None
    await local.inbox.read()
    position: int | None = None
    while (live := instances.live.get(number)) is not None:
        if position is None:
            position = live.last_row
        if not live.has_uncommitted_turn:
            answer = _ask(live.run, name, data)
            if live.run.is_tainted:
                instances.release(live)
            return answer
        pending: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        live.waiting_queries = [*(live.waiting_queries or ()), (position, partial(_resolve, live, name, data, pending))]
        try:
            done, _ = await asyncio.wait({pending}, timeout=POLL_SECONDS)
            if done and (committed := pending.result()) is not None:
                return committed
        finally:
            pending.cancel()  # the query was cancelled, or is tried again: this one must not call the handler
    return None


def _is_owner(local: LocalInstances, live: LiveInstance, record: InstanceRecord | None) -> bool:
    """Whether the store still has a live instance under the fence of this worker; an end in the store is final."""
    if record is None or record.closed_at_ms is not None:
        return True
    return record.owner == local.lease.key and record.fence == live.fence


def _resolve(
    live: LiveInstance, name: str, data: bytes, pending: "asyncio.Future[Reply | None]", is_live: bool
) -> None:
    if not pending.done():
        pending.set_result(_ask(live.run, name, data) if is_live else None)


def _is_taken(run: Run, event: Input) -> bool:
    """Whether the code takes a message now. An event that no code waits for stays in the inbox."""
    return not isinstance(event, EventReceived) or run.awaits_event(event.name)


def _unreadable_reply(record: InstanceRecord, error: Exception) -> Reply:
    if record.state is InstanceState.BLOCKED:
        return refused_reply(WorkflowBlocked(f"{record.id} is blocked: {record.blocked}"))
    if isinstance(error, msgspec.MsgspecError):
        return refused_reply(
            StoreError(f"the history of {record.id!r} is damaged: {error}; `holdfast verify` says more")
        )
    return refused_reply(error)


def _never_ran(history: list[HistoryRow]) -> bool:
    """Whether the instance was ended from outside before its first turn."""
    return not history or isinstance(decode_events(history[0].events)[-1], FROM_OUTSIDE)


def _ask(run: Run, name: str, data: bytes) -> Reply:
    """The reply of a run, after the lines that its handler logged are written."""
    answer = run.answer_query(name, data)
    for line in answer.logs:
        write_line(line, run.identity)
    return answer.reply


logger = logging.getLogger("holdfast")

QUERY_POLL_SECONDS: Final = 1.0
"""The poll interval, for queries whose notification was lost."""
BATCH: Final = 100
TRY_SECONDS: Final = 0.01
"""The pause before a query is tried again whose instance has to take a turn first."""
LONGEST_SECONDS: Final = 5.0
"""How long a query is tried. A client that still waits then sends it again."""
NOT_NOW: Final = Reply(ReplyKind.NOT_NOW)


class QueryService:
    """Answers the queries of other processes for one worker."""

    def __init__(self, context: WorkerContext, instances: OwnedInstances, inbox: InboxReader, runs: RunFactory) -> None:
        self._store = context.session.store
        self._workflows = tuple(context.registry.workflows)
        self._versions = context.registry.versions
        self._committer = context.committer
        self._trouble = context.session.trouble
        self._lease = context.lease
        self.queries = Queries(self._store, runs, LocalInstances(instances, inbox, context.lease))
        self._wake = PollSignal()
        self._wake.set()  # queries may have waited for this worker

    def poll(self) -> None:
        """Another process has committed."""
        self._wake.set()

    async def run(self) -> None:
        """Answer and wait, until cancelled."""
        async with asyncio.TaskGroup() as answering:
            while True:
                await self._wake.wait_within(QUERY_POLL_SECONDS)
                self._wake.clear()
                try:
                    await self._poll_store(answering)
                except Exception as error:  # noqa: BLE001 - the next poll may succeed
                    self._trouble.log("queries could not be answered, and are tried again", error)

    async def _poll_store(self, answering: asyncio.TaskGroup) -> None:
        """Claim queries. Most polls find none, so they begin with one cheap read."""
        waiting = await self._store.pending_queries()
        if waiting.has_expired:
            await self._committer.commit(DeleteQueries())
        if waiting.has_queries and self._workflows:
            take = ClaimQueries(owner=self._lease.key, workflows=self._workflows, versions=self._versions, limit=BATCH)
            outcome = await self._committer.commit(take)
            if isinstance(outcome, ClaimedQueries):
                for query in outcome.queries:
                    answering.create_task(self._answer(query, take.owner))
                if len(outcome.queries) == BATCH:
                    self._wake.set()  # there may be more

    async def _answer(self, query: QueryRow, owner: WorkerKey) -> None:
        answer, limit = NOT_NOW, asyncio.timeout(LONGEST_SECONDS)
        try:
            async with limit:
                answer = await self._ask(query)
        except StoreError as error:
            self._trouble.log("a query could not be answered", error)
            answer = refused_reply(error)
        except Exception as error:
            if not limit.expired():
                logger.exception("the query %r of instance %d could not be answered", query.name, query.number)
                answer = refused_reply(error)
        finally:  # also when this worker stops
            member = AnswerQuery(id=query.id, owner=owner, answer=encode_answer(answer))
            self._committer.submit(member, ignore_outcome)  # a rejected answer needs no action: the query is gone

    async def _ask(self, query: QueryRow) -> Reply:
        while True:
            answer = await self.queries.ask(query.number, query.name, query.input)
            match answer:
                case Reply():
                    return answer
                case Unanswered.GONE:
                    return refused_reply(InstanceNotFound(f"the instance of query {query.name!r} is not in the store"))
                case Unanswered.OWNED_ELSEWHERE:
                    return NOT_NOW
                case Unanswered.NEEDS_TURN:
                    await asyncio.sleep(TRY_SECONDS)
