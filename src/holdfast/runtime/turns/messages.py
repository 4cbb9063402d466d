"""Messages for the instances that are live here.

`InboxReader` hands over messages that are stored in their inboxes. `LocalEvents` takes the events that are raised in
this process: an event is committed together with the turn that applies it, and its sender gets the outcome of that
commit (G6). An event is committed alone, into the inbox, if no turn can apply it now: its instance is not live here, no
code waits for it, or it has an id that only the store can check.

Order (G10): an event never overtakes one that was raised before it. The inbox is read first; an event behind another
one that goes alone goes alone, too; and all events for live instances wait in one queue.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.background import BackgroundTask, Duty
from holdfast.core.history import EventReceived
from holdfast.runtime.committer import Done
from holdfast.runtime.turns.live_instance import LiveInstance, Message, UnstoredEvent
from holdfast.runtime.turns.owned_instances import OwnedInstances
from holdfast.runtime.turns.turn_taker import TurnTaker
from holdfast.runtime.worker_context import WorkerContext
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.records import AttemptRecord, InboxRow, InstanceNumber

if TYPE_CHECKING:
    from holdfast.storage.records import InstanceId

OF_AN_ATTEMPT: Final = b'"event":"activity_'
"""Occurs in every message that is the response of an attempt (and, rarely, in the data of another one)."""


class InboxReader:
    """Hands stored messages to the live instances of one worker, one read at a time, so that rows stay in order."""

    def __init__(self, context: WorkerContext, instances: OwnedInstances, turns: TurnTaker) -> None:
        self._lease = context.lease
        self._store = context.session.store
        self._instances = instances
        self._turns = turns
        self._reading = asyncio.Lock()
        self._last_row = 0

    async def read(self) -> None:
        """Read the new rows of all inboxes of this worker, and take the turns that apply them."""
        live = self._instances.live
        if not live:
            return
        async with self._reading:
            rows = await self._store.read_inbox_of(self._lease.key, self._last_row)
            if not rows:
                return
            # A row of an instance that is not live yet is read again; instances skip the rows that they have.
            waiting = [row.row for row in rows if row.number not in live]
            seen = waiting[0] - 1 if waiting else max(self._last_row, rows[-1].row)
            self._last_row = 0  # if anything fails below, the next read starts from the beginning
            attempts: dict[InstanceNumber, list[AttemptRecord]] = {}
            for row in rows:
                if row.number not in attempts and OF_AN_ATTEMPT in row.event:
                    attempts[row.number] = await self._store.read_attempts(row.number, row.execution)
            await self.apply(rows, attempts)
            self._last_row = seen

    async def apply(self, rows: Sequence[InboxRow], attempts: dict[InstanceNumber, list[AttemptRecord]]) -> None:
        """Queue rows for their instances, and take the turns that apply them."""
        live = self._instances.live
        await live.fetch_payloads(self._store, rows)
        touched: dict[InstanceNumber, bool] = {}
        for row in rows:
            if row.number in live:
                of_attempts = attempts.get(row.number, [])
                touched[row.number] = self._instances.enqueue(live[row.number], [row], of_attempts)
        for number, is_queued in touched.items():
            if is_queued and number in live:
                self._turns.take(live[number])


class _QueuedEvent(NamedTuple):
    """A queued event. `alone`: one before it was being committed alone when it came."""

    message: Deliver
    done: Done
    alone: bool


class LocalEvents:
    """Brings the events that are raised in this process to their instances."""

    def __init__(self, context: WorkerContext, instances: OwnedInstances, turns: TurnTaker, inbox: InboxReader) -> None:
        self._committer = context.committer
        self._trouble = context.session.trouble
        self._live = instances.live
        self._turns = turns
        self._inbox = inbox
        self._queue: deque[_QueuedEvent] = deque()
        self._handing_over = BackgroundTask(Duty.EVENTS, self._hand_over)
        self._alone: dict[InstanceId, int] = {}
        """How many events for an id are being committed alone."""

    def send(self, message: Deliver, done: Done) -> None:
        """Send a message. `done` is called with `Applied` if a turn took it along, else with the store's outcome."""
        if not self._queue and not self._may_join_turn(message):
            self._send_alone(message, done)
            return
        self._queue.append(_QueuedEvent(message, done, message.id in self._alone))
        self._handing_over.start()

    def _may_join_turn(self, message: Deliver) -> bool:
        """Whether a turn here would take the message along now."""
        event, live = message.event, self._live.find(message.id, message.number)
        if live is None or type(event) is not EventReceived or message.message_id:
            return False
        return live.run.awaits_event(event.name)

    async def drain(self) -> None:
        """Wait until the queue is empty."""
        await self._handing_over.wait()

    async def _hand_over(self) -> None:
        """An event stays queued until it is handed over, so that a restart of this task finds it."""
        while count := len(self._queue):  # events that come while the inboxes are read need another read
            try:
                await self._inbox.read()
            except Exception as error:  # noqa: BLE001 - messages before them are not known; the store orders them
                self._trouble.log("events go to the store alone, as their inboxes could not be read", error)
                self._bring(count, joins_turn=False)
            else:
                self._bring(count, joins_turn=True)

    def _bring(self, count: int, *, joins_turn: bool) -> None:
        ready: list[LiveInstance] = []
        for _ in range(count):
            message, done, behind = self._queue.popleft()
            event, live = message.event, self._live.find(message.id, message.number)
            is_plain = type(event) is EventReceived and not message.message_id
            if live is None or not is_plain or not joins_turn or behind or message.id in self._alone:
                self._send_alone(message, done)
            else:
                live.queue.append(Message(event, response=UnstoredEvent(message, done, self._send_alone)))
                ready.append(live)
        self._turns.take_turns(ready)

    def _send_alone(self, message: Deliver, done: Done) -> None:
        alone, instance_id = self._alone, message.id

        def decided(outcome: Outcome) -> None:
            alone[instance_id] -= 1
            if not alone[instance_id]:
                del alone[instance_id]
            done(outcome)

        alone[instance_id] = alone.get(instance_id, 0) + 1
        self._committer.submit(message, decided)
