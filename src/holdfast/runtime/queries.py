"""Answers to queries. An answer reflects every message that was acknowledged before the query was sent (G5, G11).

An instance whose code is live here answers after the turn that applies its inbox is committed. An instance without
an owner answers from a run that is rebuilt from the history, to which the messages of the inbox are applied without a
commit: the order and the times of these messages are fixed (G10), so the next turn has the same effect. The result of
a side effect is not fixed before it is recorded; where the messages lead to one, the query waits for the turn. For an
instance that another worker owns only that worker knows what is applied next, and it is asked.

An instance that is BLOCKED or PAUSED answers from its last committed turn. No query takes a turn or changes the store.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

import msgspec

from holdfast.authoring.log import write_line
from holdfast.core.answers import Reply
from holdfast.core.events import FROM_OUTSIDE, ContinuedAsNew, EventReceived, Input, decode_events
from holdfast.core.lifecycle import InstanceState
from holdfast.core.liveness import WorkerKey, WorkerState
from holdfast.errors import InstanceClosed, StoreError, WorkflowBlocked
from holdfast.replay.answers import refused, unknown
from holdfast.replay.asking import ask
from holdfast.replay.run import WorkflowRun
from holdfast.runtime.flow_runs import AnyRun
from holdfast.runtime.inbox import take_in
from holdfast.runtime.instances import TurnTaker
from holdfast.runtime.live import LiveInstance
from holdfast.runtime.runs import RunFactory
from holdfast.storage.contract import HistoryRow, InstanceNumber, InstanceRecord, LoadedInstance, Store

LOOK_SECONDS: Final = 0.05
"""How soon the end of a live instance is noticed while its turn is waited for."""
HALTED: Final = (InstanceState.BLOCKED, InstanceState.PAUSED)
"""No turn applies the inbox of these instances: they answer from their last committed turn."""


class Unanswered(Enum):
    """Why there is no answer yet."""

    GONE = "the instance is not in the store"
    NEEDS_TURN = "a turn has to be committed first"
    OWNED_ELSEWHERE = "another worker owns the instance and has messages to apply"


class Place(NamedTuple):
    """The worker of this process: its instances, how it reads their inboxes, and the key under which it acts."""

    instances: TurnTaker
    take_messages: Callable[[], Awaitable[None]]
    key: Callable[[], WorkerKey]


class Queries:
    """Answers queries where the code is known. `place` is None for a client without a worker."""

    def __init__(self, store: Store, runs: RunFactory, place: Place | None = None) -> None:
        self._store = store
        self._runs = runs
        self._place = place

    async def ask(self, number: InstanceNumber, name: str, data: bytes) -> Reply | Unanswered:
        """Try once to answer a query. Where a turn is needed first, the caller asks again after a commit."""
        if self._place is not None:
            answer = await _ask_live(self._place, number, name, data)
            if answer is not None:
                return answer
        loaded = await self._store_view(number)
        if isinstance(loaded, Unanswered):
            return loaded
        return await self._ask_stored(*loaded, name, data)

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
        """Rebuild the run, apply what waits in its inbox without a commit, and ask it."""
        try:
            never_ran = _never_ran(loaded.history)
        except Exception as error:  # noqa: BLE001 - the history is damaged, and the sender of the query learns it
            return _unreadable(record, error)
        if never_ran:
            return refused(InstanceClosed(f"{record.id!r} was ended before any of its code ran: it answers no query"))
        try:
            flow = await self._runs.flows.fetch(self._store, record.workflow, loaded.history)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - its version of the flow cannot run here
            return _unreadable(record, error)
        if flow:
            return unknown(())  # a flow has no code that could answer
        try:
            run = self._rebuild(record, loaded)
        except Exception as error:  # noqa: BLE001 - this code does not fit the history
            return _unreadable(record, error)
        try:
            unanswered = await self._apply_inbox(record, loaded, run)
            if unanswered is not None:
                return unanswered
            if run.is_spoiled:
                run.evict()
                run = self._rebuild(record, loaded)
            return _ask(run, name, data)
        finally:
            run.evict()

    def _rebuild(self, record: InstanceRecord, loaded: LoadedInstance) -> AnyRun:
        """The run as of its last committed turn."""
        run = self._runs.new_run(record.id, record.workflow, record.execution, loaded.payloads)
        try:
            self._runs.replay(record.number, run, loaded.history)
        except BaseException:
            run.evict()
            raise
        return run

    async def _apply_inbox(self, record: InstanceRecord, loaded: LoadedInstance, run: AnyRun) -> Unanswered | None:
        """Apply the inbox to the run without a commit, or say why only a turn can do that.

        Where applying fails the run is spoiled: the turn will block the instance, and a blocked instance answers from
        its last committed turn.
        """
        if record.closed_at_ms is not None or record.state in HALTED or not isinstance(run, WorkflowRun):
            return None
        live = LiveInstance.of(record, run)
        live.timers = {timer.timer: timer.due_at_ms for timer in loaded.timers}
        try:
            take_in(live, loaded.inbox, ())
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
        messages = live.take_messages(lambda: newest_ms)  # of the timers only those that go before a message (G10)
        try:
            self._runs.preview(run, live, messages)
        except Exception:  # noqa: BLE001 - the turn that applies them reports it
            run.is_spoiled = True
            return None
        is_undecided = run.needs_turn or isinstance(run.take_output().outcome, ContinuedAsNew)
        return Unanswered.NEEDS_TURN if is_undecided else None

    def _is_elsewhere(self, record: InstanceRecord) -> bool:
        return self._place is None or record.owner != self._place.key()

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


async def _ask_live(place: Place, number: InstanceNumber, name: str, data: bytes) -> Reply | None:
    """Ask code that is live here, when the messages that wait for it are applied and committed; None if none is."""
    instances = place.instances
    if number not in instances.live:
        return None
    await place.take_messages()
    position: int | None = None
    while (live := instances.live.get(number)) is not None:
        if position is None:
            position = live.last_row
        if not live.busy:
            answer = _ask(live.run, name, data)
            if live.run.is_spoiled:
                instances.let_go(live)
            return answer
        pending: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        live.asked = [*(live.asked or ()), (position, partial(_resolve, live, name, data, pending))]
        try:
            done, _ = await asyncio.wait({pending}, timeout=LOOK_SECONDS)
            if done and (committed := pending.result()) is not None:
                return committed
        finally:
            pending.cancel()  # the query was cancelled, or is asked again: the handler is not called for this one
    return None


def _resolve(
    live: LiveInstance, name: str, data: bytes, pending: "asyncio.Future[Reply | None]", is_live: bool
) -> None:
    if not pending.done():
        pending.set_result(_ask(live.run, name, data) if is_live else None)


def _is_taken(run: WorkflowRun, event: Input) -> bool:
    """Whether the code takes a message now. An event that no code waits for stays in the inbox."""
    return not isinstance(event, EventReceived) or run.waits_for_event(event.name)


def _unreadable(record: InstanceRecord, error: Exception) -> Reply:
    if record.state is InstanceState.BLOCKED:
        return refused(WorkflowBlocked(f"{record.id} is blocked: {record.blocked}"))
    if isinstance(error, msgspec.MsgspecError):
        return refused(StoreError(f"the history of {record.id!r} is damaged: {error}; `holdfast verify` says more"))
    return refused(error)


def _never_ran(history: list[HistoryRow]) -> bool:
    """Whether the first turn was none, only the end from outside."""
    return not history or isinstance(decode_events(history[0].events)[-1], FROM_OUTSIDE)


def _ask(run: AnyRun, name: str, data: bytes) -> Reply:
    """The answer of a run, after what its handler logged is written. A flow has no code that could answer."""
    if not isinstance(run, WorkflowRun):
        return unknown(())
    asked = ask(run, name, data)
    for line in asked.logs:
        write_line(line, run.identity)
    return asked.answer
