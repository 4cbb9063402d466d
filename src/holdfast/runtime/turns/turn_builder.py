"""Builds the `Turn` that commits the output of one turn, all or nothing (G11).

Decides which new attempts start here at once (eager dispatch) and which are READY for any worker, and moves large
payloads out of the history. Children, the next execution (G4) and answers to updates are parts of the turn.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from holdfast.core.attributes import AttributeChange
from holdfast.core.children import next_execution_seed
from holdfast.core.history import (
    CancelRequested,
    ContinuedAsNew,
    EventReceived,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    HistoryEvent,
    Payload,
    Started,
    TimerFired,
    encode_event,
    encode_events,
    pairs_set_aside,
    payload_of,
)
from holdfast.core.leases import WorkerKey
from holdfast.core.ledger import SEED, conclude_leg1, enter_leg1
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.queries import Reply
from holdfast.core.run import (
    ExecutionEnding,
    LogLine,
    NextAttempt,
    RunEffects,
    ScheduledActivity,
    ScheduledChild,
    SentCancel,
    SentEvent,
    TurnOutput,
)
from holdfast.core.updates import STATE_OF, UpdateState
from holdfast.payloads.failures import error_name
from holdfast.payloads.limits import INLINE_LIMIT_BYTES, is_inline
from holdfast.payloads.signature import input_hash
from holdfast.runtime.turns.live_instance import LiveInstance, Message, Unstored, UnstoredEvent, UnstoredValues
from holdfast.storage.large_payloads import large_value, offload
from holdfast.storage.members.attempts import Completion, Transition
from holdfast.storage.members.instances import Start
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.turns import (
    AppliedValues,
    CancelChild,
    InstanceEnd,
    NewChild,
    NextExecution,
    StreamValues,
    Turn,
    TurnEffects,
    UpdateAnswer,
)
from holdfast.storage.records import (
    AttemptKey,
    AttemptRecord,
    InstanceId,
    LargePayload,
    NewAttempt,
    StateValue,
    TimerRow,
)


def _new_child(live: LiveInstance, scheduled: ScheduledChild) -> NewChild:
    payloads: list[LargePayload] = []
    started = Started(
        time_ms=live.stamp_ms,
        workflow=scheduled.workflow,
        version=scheduled.version or "",
        seed=scheduled.seed,
        input=Payload(msgspec.Raw(scheduled.input)),
        parent=live.id,
        root=live.run.root or ("" if live.run.parent else live.id),
        depth=scheduled.depth,
        trace=scheduled.trace,
    )
    return NewChild(
        child=scheduled.child,
        id=InstanceId(scheduled.id),
        workflow=scheduled.workflow,
        version=scheduled.version,
        input=scheduled.input,
        input_hash=input_hash(scheduled.input),
        started=encode_event(offload(started, payloads)),
        parent_close=scheduled.parent_close,
        named=scheduled.named,
        payloads=tuple(payloads),
        deadline=scheduled.deadline,
        policy=scheduled.policy,
    )


def next_execution(
    live: LiveInstance,
    encoded: bytes,
    payloads: list[LargePayload],
    *,
    on_newest: bool = False,
    retry: NextAttempt | None = None,
) -> NextExecution:
    """The next execution for the store, with the input `encoded`: continued as new, or the retry of a failed one."""
    started = Started(
        time_ms=live.stamp_ms,
        workflow=live.workflow,
        version="" if on_newest else live.run.version,
        seed=next_execution_seed(live.run.seed, live.execution),
        input=Payload(msgspec.Raw(encoded)),
        execution=live.execution + 1,
        parent=live.run.parent,
        root=live.run.root,
        depth=live.run.depth,
        kept={key: msgspec.Raw(value) for key, value in live.run.state_values.items()} or None,
        attributes=dict(live.run.attributes) or None,
        trace=live.run.trace,
        attempt=1 if retry is None else retry.attempt,
        begins_at_ms=0 if retry is None else retry.begins_at_ms,
    )
    kept: list[LargePayload] = []
    stored = encode_event(offload(started, kept))
    payloads += [large for large in kept if large not in payloads]
    return NextExecution(input=encoded, started=stored, is_on_newest=on_newest)


def answers_of(answers: dict[str, Reply | None], payloads: list[LargePayload]) -> tuple[UpdateAnswer, ...]:
    """The answers by the ids of their updates. Large ones are appended to `payloads`."""
    return tuple(_answer(update_id, answer, payloads) for update_id, answer in answers.items())


def _answer(update_id: str, answer: Reply | None, payloads: list[LargePayload]) -> UpdateAnswer:
    if answer is None:
        return UpdateAnswer(id=update_id, state=UpdateState.ACCEPTED)
    payload = Payload(answer.data)
    if not is_inline(bytes(answer.data)):
        large = large_value(bytes(answer.data))
        payloads.append(large)
        payload = Payload(reference=large.reference)
    return UpdateAnswer(id=update_id, state=STATE_OF[answer.kind], answer=msgspec.json.encode(payload))


ENTERED_LEDGER: Final = enter_leg1(SEED)[0]
"""L2: the worker that schedules the attempt prepares it at once."""
EAGER_LEDGER: Final = conclude_leg1(ENTERED_LEDGER)
"""A8: entry and conclusion in one commit, because the worker that schedules the attempt runs it at once."""


READY: Final = AttemptState.READY
PREPARING: Final = AttemptState.PREPARING
RUNNING: Final = AttemptState.RUNNING


class BuiltTurn(msgspec.Struct, frozen=True):
    """A turn to be committed, and the attempts that start here once it is committed."""

    turn: Turn
    eager: list[NewAttempt]
    logs: Sequence[LogLine]
    unstored: Sequence[Unstored] = ()
    """Messages that are not stored except by this turn; each gets its outcome."""
    took_seconds: float = 0.0
    """How long the code of the turn ran, if an observer asks for it."""


class AppliedMessages:
    """The messages that a turn applied and that are not completions, by how they came."""

    __slots__ = ("applied_values", "consumed", "events", "fired", "responses", "stream_values", "unstored")

    def __init__(self, messages: Iterable[Message]) -> None:
        self.responses: list[Transition] = []
        self.consumed: list[int] = []
        self.events = 0
        self.fired: list[int] = []
        self.applied_values: dict[AttemptKey, int] = {}
        self.stream_values: list[StreamValues] = []
        self.unstored: list[Unstored] = []
        for message in messages:
            if message.completion is None:
                self._add(message)

    @property
    def has_effects(self) -> bool:
        """Whether the store has to write something about them."""
        return bool(self.consumed or self.fired or self.stream_values)

    def _add(self, message: Message) -> None:
        event, response = message.event, message.response
        if message.row:
            self.consumed.append(message.row)
            self.events += type(event) is EventReceived
            if type(response) is Transition:
                self.responses.append(response)
            elif type(response) is AppliedValues:
                self.applied_values[response.key] = self.applied_values.get(response.key, 0) + response.count
        elif type(event) is TimerFired:
            self.fired.append(event.timer)
        elif type(response) is UnstoredEvent:
            self.unstored.append(response)
        elif type(response) is UnstoredValues:
            self.stream_values.append(response.responses)
            self.unstored.append(response)


NONE_APPLIED: Final = AppliedMessages(())


def build_turn(
    live: LiveInstance,
    messages: list[Message],
    output: TurnOutput,
    *,
    owner: WorkerKey,
    now_ms: int,
    reserve: Callable[[ScheduledActivity], bool],
    stand_in: Callable[[ScheduledActivity], ScheduledActivity],
    release: bool,
    may_close_unread: bool = False,
    took_seconds: float = 0.0,
) -> BuiltTurn:
    """Build the `Turn` that commits `output`.

    `reserve` decides whether an activity may start here at once, and `stand_in` whether an external one has a body here
    instead. An activity that the code abandoned in the turn that called it never starts. With `may_close_unread` the
    instance is closed even if its inbox has unread messages (G14).
    """
    effects = output.effects
    payloads: list[LargePayload] = []
    events, encoded = _encoded(output.events, payloads)
    completions = _completions(messages)
    applied = AppliedMessages(messages) if len(completions) < len(messages) else NONE_APPLIED
    turn_effects: TurnEffects | None = None
    is_unusual = release or effects is not None or output.outcome is not None or len(payloads) > 0
    is_first = live.turn == 0 and (live.chooses_version or live.run.mailbox is not None)
    if is_unusual or is_first or (applied is not NONE_APPLIED and applied.has_effects):
        turn_effects = _effects_of(
            live, output, events, applied, payloads, release=release, may_close_unread=may_close_unread
        )
    abandoned = () if effects is None else (*effects.abandoned, *effects.activities_asked)
    attempts: list[NewAttempt] = []
    eager: list[NewAttempt] = []
    for called in output.scheduled:  # last: a turn that cannot be stored has raised before it reserves slots
        scheduled = called if called.options.external is None else stand_in(called)
        starts_here = scheduled.activity not in abandoned and reserve(scheduled)
        attempts.append(new := _new_attempt(scheduled, owner if starts_here else None, now_ms))
        if starts_here:
            eager.append(new)
    turn = Turn(
        number=live.number,
        execution=live.execution,
        owner=owner,
        fence=live.fence,
        turn=live.turn,
        stamp_ms=live.stamp_ms,
        events=encoded,
        completions=completions,
        attempts=tuple(attempts),
        key=output.key,
        effects=turn_effects,
    )
    return BuiltTurn(turn, eager, () if effects is None else effects.logs, applied.unstored, took_seconds)


def _completions(messages: list[Message]) -> tuple[Completion, ...]:
    if len(messages) == 1:  # most of the time
        only = messages[0].completion
        return () if only is None else (only,)
    return tuple([message.completion for message in messages if message.completion is not None])


def _effects_of(
    live: LiveInstance,
    output: TurnOutput,
    events: list[HistoryEvent],
    applied: AppliedMessages,
    payloads: list[LargePayload],
    *,
    release: bool,
    may_close_unread: bool,
) -> TurnEffects:
    effects = output.effects or RunEffects()
    close: InstanceEnd | None = None
    following: NextExecution | None = None
    has_relatives = bool(effects.children or effects.children_asked)
    if output.outcome is not None:
        close, following = _ending(live, events, output.outcome, effects.next_attempt, payloads)
        has_relatives |= live.run.has_relatives
    answers = answers_of(effects.answers or {}, payloads)
    timers_ended = (*effects.timers_ended, *applied.fired)
    set_aside = pairs_set_aside(events) if effects.waits_changed else ()
    return TurnEffects(
        close=close,
        next=following,
        release=release,
        read_to=None if close is None or may_close_unread else live.last_row,
        consumed=tuple(applied.consumed),
        events_taken=applied.events,
        responses=tuple(applied.responses),
        applied_values=tuple(AppliedValues(key=key, count=count) for key, count in applied.applied_values.items()),
        stream_values=tuple(applied.stream_values),
        abandoned=tuple(effects.abandoned),
        activities_asked=tuple(effects.activities_asked),
        timers_started=_change_timers(live, effects.timers_started, timers_ended),
        timers_ended=timers_ended,
        payloads=tuple(payloads),
        waits=live.run.awaited_events if effects.waits_changed else None,
        ids_set_aside=tuple(received.id for received, _ in set_aside if received.id),
        sent=(
            *_messages(live, effects.sent),
            *_cancels(live, effects.cancels),
            *_interruptions(live, effects.interrupted),
        ),
        mailbox=live.run.mailbox if live.turn == 0 else None,
        state_values=tuple(StateValue(key=key, value=value) for key, value in (effects.state_values or {}).items()),
        attributes=tuple(AttributeChange(name, value) for name, value in (effects.attributes or {}).items()),
        answers=answers,
        version=live.run.version if live.turn == 0 and live.chooses_version else None,
        children=tuple(_new_child(live, child) for child in effects.children),
        children_cancelled=tuple(
            CancelChild(child=child, reason=reason, descendants=descendants)
            for child, reason, descendants in effects.children_asked
        ),
        has_relatives=has_relatives,
    )


def _encoded(events: list[HistoryEvent], payloads: list[LargePayload]) -> tuple[list[HistoryEvent], bytes]:
    """The events as they are stored, and encoded. Large payloads are appended to `payloads`."""
    encoded = encode_events(events) if events else b""
    if len(encoded) > INLINE_LIMIT_BYTES:
        events = [offload(event, payloads) for event in events]
        encoded = encode_events(events)
    return events, encoded


def _change_timers(live: LiveInstance, started: dict[int, int], ended: Sequence[int]) -> tuple[TimerRow, ...]:
    for timer in ended:
        live.timers.pop(timer, None)
    live.timers.update(started)
    return tuple(TimerRow(timer=timer, due_at_ms=due) for timer, due in started.items())


def _messages(live: LiveInstance, sent: Iterable[SentEvent]) -> Iterator[Deliver]:
    """Events for other instances. Their ids are the same in every attempt of a turn, and differ between executions."""
    for number, target, name, data, trace, is_awaited in sent:
        yield Deliver(
            id=InstanceId(target),
            event=EventReceived(time_ms=live.stamp_ms, name=name, value=Payload(msgspec.Raw(data)), trace=trace),
            message_id=f"{live.run.seed:x}/{number}",
            reply_to=number if is_awaited else None,
        )


def _cancels(live: LiveInstance, cancels: Iterable[SentCancel]) -> Iterator[Deliver]:
    for number, target, reason, is_awaited in cancels:
        request = CancelRequested(time_ms=live.stamp_ms, reason=reason)
        yield Deliver(id=InstanceId(target), event=request, reply_to=number if is_awaited else None)


def _interruptions(live: LiveInstance, interrupted: Iterable[tuple[str, str, bool]]) -> Iterator[Deliver]:
    for target, reason, descendants in interrupted:
        request = CancelRequested(time_ms=live.stamp_ms, reason=reason, descendants=descendants)
        yield Deliver(id=InstanceId(target), event=request)


def _ending(
    live: LiveInstance,
    events: list[HistoryEvent],
    outcome: ExecutionEnding,
    retry: NextAttempt | None,
    payloads: list[LargePayload],
) -> tuple[InstanceEnd | None, NextExecution | None]:
    """The end of the instance, or of this execution only (G4, G18)."""
    if isinstance(outcome, ContinuedAsNew):
        return None, next_execution(live, bytes(outcome.input.data), payloads, on_newest=outcome.on_newest)
    if retry is not None:
        return None, next_execution(live, retry.input, payloads, retry=retry)
    return close_of(events, outcome), None


def close_of(
    events: list[HistoryEvent], outcome: ExecutionCompleted | ExecutionFailed | ExecutionCancelled
) -> InstanceEnd:
    """The end of the instance by its own code."""
    if isinstance(outcome, ExecutionCancelled):
        reason = Payload(msgspec.Raw(msgspec.json.encode(outcome.reason or None)))
        return InstanceEnd(state=InstanceState.CANCELLED, outcome=msgspec.json.encode(reason))
    payload = msgspec.json.encode(payload_of(events[-1]))
    if isinstance(outcome, ExecutionCompleted):
        return InstanceEnd(state=InstanceState.COMPLETED, outcome=payload)
    return InstanceEnd(state=InstanceState.FAILED, outcome=payload, error=error_name(bytes(outcome.failure.data)))


def _new_attempt(scheduled: ScheduledActivity, owner: WorkerKey | None, now_ms: int) -> NewAttempt:
    options = scheduled.options
    if owner is not None and not options.prepares:  # most of the time
        state = RUNNING
        ledger = EAGER_LEDGER
        expires = options.expires_at_running_ms(scheduled_at_ms=now_ms, started_at_ms=now_ms, heard_at_ms=now_ms)
    else:
        state = READY if owner is None else PREPARING
        ledger = SEED if owner is None else ENTERED_LEDGER
        expires = options.expires_at_ready_ms(scheduled_at_ms=now_ms, available_at_ms=now_ms)
    return NewAttempt(
        activity=scheduled.activity,
        attempt=1,
        name=scheduled.name,
        queue=options.queue,
        state=state,
        ledger=ledger,
        input=scheduled.input,
        options=scheduled.encoded_options,
        available_at_ms=now_ms,
        scheduled_at_ms=now_ms,
        expires_at_ms=expires,
        owner=owner,
        is_external=options.external is not None,
    )


def running_record(live: LiveInstance, new: NewAttempt) -> AttemptRecord:
    """The attempt as it is stored, to be run or prepared here."""
    return AttemptRecord(
        key=AttemptKey(live.number, live.execution, new.activity, new.attempt),
        name=new.name,
        queue=new.queue,
        state=new.state,
        ledger=new.ledger,
        input=new.input,
        options=new.options,
        available_at_ms=new.available_at_ms,
        scheduled_at_ms=new.scheduled_at_ms,
        started_at_ms=new.scheduled_at_ms,
        expires_at_ms=new.expires_at_ms,
        heartbeat_at_ms=new.scheduled_at_ms,
        owner=new.owner,
        instance_id=live.id,
        workflow=live.workflow,
    )


def with_started(start: Start, started: Started) -> Start:
    """The start of an instance whose first turn is run by the worker that claims it.

    The time of a start that names one begins then: the timers of its code count from it.
    """
    if start.start_at_ms is not None and start.start_at_ms > started.time_ms:
        started = msgspec.structs.replace(started, time_ms=start.start_at_ms)
    payloads: list[LargePayload] = []
    encoded = encode_event(offload(started, payloads))
    return msgspec.structs.replace(start, started=encoded, payloads=tuple(payloads))
