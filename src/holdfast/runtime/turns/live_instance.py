"""An instance whose code is live in this process: its queue, its timers, and the messages that its turns apply.

Values that a body has just yielded (L13, L15) and events that were raised in this process (G6) ride with the turn that
applies them: they are on disk with the commit of that turn, and need no commit of their own.

If that turn is not committed, or is never taken because its instance is evicted, they are committed alone and wait in
the inbox. The store knows values by their numbers (L11), so that a second commit is harmless. An event without an id is
not safe to repeat: if the outcome of its turn is unknown, its sender gets that error.

Inbox rows become messages of a live instance, each once (L11), together with the ledger change that reading them means.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from holdfast.core.admission import Arrival, PendingTimer, apply_order
from holdfast.core.history import (
    ActivityCompleted,
    ActivityFailed,
    ActivityYielded,
    CancelRequested,
    EventReceived,
    Input,
    Started,
    TimerFired,
    UpdateAccepted,
    decode_event,
)
from holdfast.core.ledger import exit_leg2, read_ledger
from holdfast.core.lifecycle import AttemptState
from holdfast.core.run import Run
from holdfast.errors import PayloadError, StoreError
from holdfast.runtime.committer import Done
from holdfast.storage.members.attempts import Completion, Transition
from holdfast.storage.members.instances import Start
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Applied, Failed, Outcome
from holdfast.storage.members.turns import AppliedValues, StreamValues
from holdfast.storage.records import (
    AttemptRecord,
    Fence,
    InboxRow,
    InstanceId,
    InstanceNumber,
    InstanceRecord,
)


class UnstoredValues(NamedTuple):
    """Values for a turn. `alone` commits them without one; `done` is called with their outcome."""

    responses: StreamValues
    done: Done
    alone: Callable[[StreamValues, Done], None]

    def store_alone(self) -> None:
        """Commit them without a turn."""
        self.alone(self.responses, self.done)

    def settle(self, outcome: Outcome) -> None:
        """The outcome of the turn that applied them is known."""
        if isinstance(outcome, Applied):
            self.done(outcome)
        else:
            self.store_alone()


class UnstoredEvent(NamedTuple):
    """An event for a turn. `alone` commits it without one; `done` is called with its outcome."""

    message: Deliver
    done: Done
    alone: Callable[[Deliver, Done], None]

    def store_alone(self) -> None:
        """Commit it without a turn."""
        self.alone(self.message, self.done)

    def settle(self, outcome: Outcome) -> None:
        """The turn that applied it has an outcome. If that is unknown, only the sender can decide what to do."""
        if isinstance(outcome, Applied) or (isinstance(outcome, Failed) and isinstance(outcome.error, StoreError)):
            self.done(outcome)
        else:
            self.store_alone()


Unstored = UnstoredValues | UnstoredEvent


def unstored_in(messages: "Iterable[Message]") -> list[Unstored]:
    """The messages that are not stored yet, and that have to be committed alone if no turn applies them."""
    return [message.response for message in messages if isinstance(message.response, Unstored)]


FIRST_FENCE: Final = Fence(1)
NO_NUMBER: Final = InstanceNumber(0)
"""The number of an instance that is not created yet."""


class Message(msgspec.Struct, frozen=True):
    """An input for an instance, with the completion that it came with or the inbox row that it waited in."""

    event: Input
    completion: Completion | None = None
    row: int = 0
    response: Transition | AppliedValues | Unstored | None = None


class LiveInstance:
    """One live execution. At most one of its turns is uncommitted at any time (G11)."""

    __slots__ = (
        "chooses_version",
        "execution",
        "fence",
        "has_uncommitted_turn",
        "id",
        "kept_events",
        "last_row",
        "leftover_events",
        "number",
        "observed",
        "queue",
        "run",
        "stamp_ms",
        "timer_armed_ms",
        "timers",
        "turn",
        "waiting_queries",
        "workflow",
    )

    def __init__(
        self,
        *,
        number: InstanceNumber,
        instance_id: InstanceId,
        workflow: str,
        execution: int,
        fence: Fence,
        turn: int,
        stamp_ms: int,
        run: Run,
    ) -> None:
        self.number = number
        self.id = instance_id
        self.workflow = workflow
        self.execution = execution
        self.fence = fence
        self.turn = turn
        self.stamp_ms = stamp_ms
        self.run = run
        self.observed: object = None
        """What an observer keeps, see `ObservedInstance`."""
        self.has_uncommitted_turn = False
        self.leftover_events: Sequence[UnstoredEvent] = ()
        """Events that the current turn does not apply: they are committed alone, with those behind them (G10)."""
        self.waiting_queries: list[tuple[int, Callable[[bool], None]]] | None = None
        """Queries that wait until no turn is uncommitted (G11) and the inbox is applied up to their row (G5). They are
        called with whether the instance is still live."""
        self.timer_armed_ms: int | None = None
        self.last_row = 0
        """The newest inbox row in the queue. Row numbers grow, so a row that is not above it was queued before."""
        self.queue: deque[Message] = deque()
        self.kept_events: dict[str, deque[Message]] = {}
        """G6: events that no code waits for, by name. They stay in the inbox, too."""
        self.timers: dict[int, int] = {}
        self.chooses_version = False
        """Its first turn stores the version on which it runs (R6)."""

    @classmethod
    def new(cls, start: Start, now_ms: int, run: Run) -> "LiveInstance":
        """An instance that is not created yet."""
        return cls(
            number=NO_NUMBER,
            instance_id=start.id,
            workflow=start.workflow,
            execution=1,
            fence=FIRST_FENCE,
            turn=0,
            stamp_ms=now_ms,
            run=run,
        )

    @classmethod
    def of(cls, record: InstanceRecord, run: Run) -> "LiveInstance":
        """A claimed instance, which continues after the last turn in the store."""
        live = cls(
            number=record.number,
            instance_id=record.id,
            workflow=record.workflow,
            execution=record.execution,
            fence=record.fence,
            turn=record.turn,
            stamp_ms=record.stamp_ms,
            run=run,
        )
        live.chooses_version = record.version is None
        return live

    @property
    def is_idle(self) -> bool:
        """Whether no turn is being committed and no message waits, so that it can be released."""
        return not self.has_uncommitted_turn and not self.queue

    def run_waiting_queries(self) -> bool:
        """Answer the queries whose messages are committed. False if one of them tainted the run."""
        asked = self.waiting_queries or []
        self.waiting_queries = None
        unapplied = min((message.row for message in self.queue if message.row), default=None)
        for row, ask in asked:
            if unapplied is not None and unapplied <= row:
                self.waiting_queries = [*(self.waiting_queries or ()), (row, ask)]
            else:
                ask(True)
        return not self.run.is_tainted

    def evict(self) -> None:
        """Tear the code down. Messages that are not stored yet are committed alone."""
        self.run.evict()
        asked = self.waiting_queries or []
        self.waiting_queries = None
        for _, ask in asked:
            ask(False)
        if self.queue and (unstored := unstored_in(self.queue)):
            self.queue = deque(message for message in self.queue if not isinstance(message.response, Unstored))
            for message in unstored:
                message.store_alone()

    def enqueue(self, rows: Iterable[InboxRow], attempts: Iterable[AttemptRecord]) -> None:
        """Append the rows of the inbox that are new to the queue. Raises if a row cannot be decoded."""
        by_key = {(attempt.key.activity, attempt.key.attempt): attempt for attempt in attempts}
        for row in rows:
            event = decode_event(row.event)
            if isinstance(event, Input) and row.row > self.last_row:
                self.last_row = row.row
                message = Message(event, row=row.row, response=exit_of(event, by_key))
                self._insert(message)

    def _insert(self, message: Message) -> None:
        """Add a message behind the others. A start goes before events that the last execution left in the mailbox (G4).

        The request to cancel of a deadline that passed during a pause goes before the messages that were stamped after
        that deadline (R25).
        """
        event = message.event
        if type(event) is Started:
            self.queue.appendleft(message)
        elif type(event) is CancelRequested and event.by_deadline:
            later = (at for at, other in enumerate(self.queue) if other.event.time_ms > event.time_ms)
            self.queue.insert(next(later, len(self.queue)), message)
        else:
            self.queue.append(message)

    def next_due_ms(self) -> int | None:
        """When the next timer fires."""
        return min(self.timers.values(), default=None)

    def take_messages(self, now: Callable[[], int]) -> list[Message]:
        """All messages that can be applied now, in the order and with the times of G10."""
        waiting = list(self.queue)
        self.queue.clear()
        if len(waiting) == 1 and not self.timers:
            time_ms = waiting[0].event.time_ms
            if time_ms >= self.stamp_ms:
                self.stamp_ms = time_ms
                return waiting  # the common case
        now_ms = now() if self.timers else 0
        due = [PendingTimer(timer, at) for timer, at in self.timers.items() if at <= now_ms] if self.timers else None
        if not due:
            return [self._stamped(message, message.event.time_ms) for message in waiting]
        arrivals = [Arrival(at, message.event.time_ms) for at, message in enumerate(waiting)]
        merged: list[Message] = []
        for applied in apply_order(arrivals, due, previous_ms=self.stamp_ms, now_ms=now_ms):
            if isinstance(applied.item, Arrival):
                merged.append(self._stamped(waiting[applied.item.row_id], applied.time_ms))
            else:
                self.stamp_ms = applied.time_ms
                merged.append(Message(TimerFired(time_ms=applied.time_ms, timer=applied.item.number)))
        return merged

    def _stamped(self, message: Message, time_ms: int) -> Message:
        """The message with a time that is not before the last one."""
        time_ms = max(time_ms, self.stamp_ms)
        self.stamp_ms = time_ms
        event = message.event
        if event.time_ms == time_ms:
            return message
        return msgspec.structs.replace(message, event=msgspec.structs.replace(event, time_ms=time_ms))

    def apply_all(self, messages: list[Message], done: list[Message]) -> None:
        """Apply messages until the code has ended; the rest stays in the queue.

        Events and updates that wait when the main function ends are applied before its end counts (G14).
        """
        if len(messages) == 1:  # the common case
            self.apply(messages[0], done)
        else:
            self._apply_several(messages, done)
        if self.run.is_end_deferred:
            self.run.end()
            self._apply_mail(done)

    def _apply_several(self, messages: list[Message], done: list[Message]) -> None:
        last = max((at for at, message in enumerate(messages) if _was_acknowledged(message)), default=0)
        for at, message in enumerate(messages):
            if self.run.is_done:
                self.queue.extend(messages[at:])
                return
            self.apply(message, done, has_more=at < last)
            if self.run.is_end_deferred:
                self._apply_rest(messages[at + 1 :], done)
                return

    def _apply_rest(self, messages: list[Message], done: list[Message]) -> None:
        """The main function has ended: apply events and updates, then its end, then messages for remaining tasks."""
        for message in messages:
            if _was_acknowledged(message):
                self.apply(message, done, has_more=True)
        self.run.end()
        self._apply_mail(done)
        for message in messages:
            if _was_acknowledged(message):
                continue
            if self.run.is_done:
                self.queue.append(message)
            else:
                self.apply(self._stamped(message, message.event.time_ms), done)

    def apply(self, message: Message, done: list[Message], *, has_more: bool = False) -> None:
        """Apply a message, and then every kept event for which the code waits by now (G6)."""
        run, event = self.run, message.event
        if message.completion is None:  # the response of an activity, which is most frequent, is always applied
            if isinstance(event, TimerFired) and not run.awaits_timer(event.timer):
                return  # an earlier message ended the wait
            if isinstance(event, EventReceived) and not self.accepts_event(message, event, done):
                return
            if isinstance(event, UpdateAccepted) and not self.accepts_update(message, event, done):
                return
        run.apply(event, has_more or bool(self.kept_events))
        done.append(message)
        if self.kept_events:
            self._apply_mail(done)

    def apply_sent(self, message: Deliver, done: list[Message]) -> PayloadError | None:
        """Apply an event that is not stored yet, if the code waits for it. Returns the error of a misfit value."""
        event = message.event
        if not isinstance(event, EventReceived) or not self.run.awaits_event(event.name):
            return None
        misfit = self.run.event_misfit(event)
        if misfit is None:
            self.apply(self._stamped(Message(event), event.time_ms), done, has_more=True)
        return misfit

    def _apply_mail(self, done: list[Message]) -> None:
        run = self.run
        while self.kept_events and not run.is_done and (mail := self.next_kept_event()) is not None:
            run.apply(mail.event, run.is_end_deferred)
            done.append(mail)

    def send_alone(self) -> None:
        """Commit the events that the turn did not apply, each alone."""
        alone = self.leftover_events
        self.leftover_events = ()
        for raised in alone:
            raised.store_alone()

    def accepts_event(self, message: Message, event: EventReceived, done: list[Message]) -> bool:
        """Whether the code takes an event now. One that no code waits for is kept in the store, or dropped (G6)."""
        raised = message.response
        is_waited_for = self.run.awaits_event(event.name)
        if type(raised) is UnstoredEvent:
            if self.leftover_events or not is_waited_for:
                self.leftover_events = (*self.leftover_events, raised)
                return False
            if (misfit := self.run.event_misfit(event)) is not None:
                raised.done(Failed(error=misfit))
                return False
        elif not is_waited_for:
            if self.run.drops_events:
                self.run.log(logging.WARNING, "the event %r was dropped: the workflow does not wait for it", event.name)
                done.append(message)
            else:
                self.keep(message, event.name)
        return is_waited_for

    def accepts_update(self, message: Message, event: UpdateAccepted, done: list[Message]) -> bool:
        """Whether an update is accepted. At the end of an execution it stays in the inbox for the next one."""
        if self.run.is_ending and not self.run.is_end_deferred:
            return False  # it stays in the inbox
        if self.run.accepts_update(event):
            return True
        done.append(message)
        return False

    def keep(self, message: Message, name: str) -> None:
        """Keep an event that no code waits for now."""
        self.kept_events.setdefault(name, deque()).append(message)

    def next_kept_event(self) -> Message | None:
        """The oldest kept event that code waits for by now."""
        waited_for = [name for name in self.kept_events if self.run.awaits_event(name)]
        if not waited_for:
            return None
        name = min(waited_for, key=lambda each: self.kept_events[each][0].row)
        message = self.kept_events[name].popleft()
        if not self.kept_events[name]:
            del self.kept_events[name]
        return self._stamped(message, message.event.time_ms)


def _was_acknowledged(message: Message) -> bool:
    """Whether a message is an event or an update of the inbox: its sender has the acknowledgement."""
    return message.row > 0 and isinstance(message.event, EventReceived | UpdateAccepted)


ANSWERED: Final = (AttemptState.COMPLETED, AttemptState.FAILED)
"""The states of an attempt that was ended by its body."""


def exit_of(event: Input, attempts: dict[tuple[int, int], AttemptRecord]) -> Transition | AppliedValues | None:
    """The leg 2 exit of a response that waited in the inbox (L5, L6).

    A time-out is no response of the attempt, also while values that it yielded before are unapplied (A8).
    """
    match event:
        case ActivityCompleted() | ActivityFailed():
            attempt = attempts.get((event.activity, event.attempt))
            if attempt is None or attempt.state not in ANSWERED or not read_ledger(attempt.ledger).unapplied_responses:
                return None
            return Transition(
                key=attempt.key,
                owner=attempt.owner,
                from_state=attempt.state,
                from_ledger=attempt.ledger,
                to_state=attempt.state,
                to_ledger=exit_leg2(attempt.ledger, final=True),
            )
        case ActivityYielded():
            attempt = attempts.get((event.activity, event.attempt))
            return None if attempt is None else AppliedValues(key=attempt.key, count=len(event.numbers))
        case _:
            return None
