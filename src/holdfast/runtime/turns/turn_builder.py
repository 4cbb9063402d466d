"""From what the code did in a turn to what is committed: one `Turn`, all or nothing (G11).

Decides which new attempts start here at once (eager dispatch) and which wait for any worker, and moves large payloads
out of the history.

Children, from what the code did in a turn to what is committed with it (G11).

The next execution of an instance, made in the turn that ends the one before it (G4).

What a turn says to those who sent updates, as it is stored with the turn (G11).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypedDict, TypeVar

import msgspec

from holdfast.core.admission import Mailbox
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
    RunEffects,
    ScheduledActivity,
    ScheduledChild,
    SentEvent,
    TurnOutput,
)
from holdfast.core.updates import STATE_OF, UpdateState
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

Item = TypeVar("Item")


def new_children(live: LiveInstance, scheduled: Iterable[ScheduledChild]) -> tuple[NewChild, ...]:
    """The instances that a turn creates. However often it is tried, they are the same."""
    return tuple(_new_child(live, child) for child in scheduled)


def _new_child(live: LiveInstance, scheduled: ScheduledChild) -> NewChild:
    payloads: list[LargePayload] = []
    started = Started(
        time_ms=live.stamp_ms,
        workflow=scheduled.workflow,
        version=scheduled.version,
        seed=scheduled.seed,
        input=Payload(msgspec.Raw(scheduled.input)),
        parent=live.id,
        depth=scheduled.depth,
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
    )


def next_execution(live: LiveInstance, asked: ContinuedAsNew, payloads: list[LargePayload]) -> NextExecution:
    """What the store needs to create it. `asked` carries its input in place."""
    encoded = bytes(asked.input.data)
    started = Started(
        time_ms=live.stamp_ms,
        workflow=live.workflow,
        version=live.run.version,
        seed=next_execution_seed(live.run.seed, live.execution),
        input=asked.input,
        execution=live.execution + 1,
        parent=live.run.parent,
        depth=live.run.depth,
        kept={key: msgspec.Raw(value) for key, value in live.run.state_values.items()} or None,
    )
    kept: list[LargePayload] = []
    stored = encode_event(offload(started, kept))
    payloads += [large for large in kept if large not in payloads]
    return NextExecution(input=encoded, started=stored)


def answers_of(answers: dict[str, Reply | None], payloads: list[LargePayload]) -> tuple[UpdateAnswer, ...]:
    """The answers by the ids of their updates; what is large in them goes to `payloads`."""
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


EAGER_LEDGER: Final = conclude_leg1(enter_leg1(SEED)[0])
"""A8: entry and conclusion in one commit, because the one who schedules runs it at once."""


READY: Final = AttemptState.READY
RUNNING: Final = AttemptState.RUNNING


class BuiltTurn(msgspec.Struct, frozen=True):
    """A turn to be committed, and the attempts that start here once it is."""

    turn: Turn
    eager: list[NewAttempt]
    logs: Sequence[LogLine]
    riders: Sequence[Unstored] = ()
    """What is on disk with this turn or finds another way; each of them is told."""


class AppliedMessages:
    """The messages that a turn applied and that are no completions, by how they came."""

    __slots__ = ("consumed", "entries", "fired", "mail", "responses", "riders", "yields")

    def __init__(self) -> None:
        self.responses: Sequence[Transition] = ()
        self.consumed: Sequence[int] = ()
        self.fired: Sequence[int] = ()
        self.yields: dict[AttemptKey, int] | None = None
        self.entries: Sequence[StreamValues] = ()
        self.riders: Sequence[Unstored] = ()
        self.mail = 0

    def sort(self, messages: list[Message]) -> None:
        """Take the messages in. What there is makes its list."""
        for message in messages:
            if message.completion is not None:
                continue
            event, response = message.event, message.response
            if message.row:
                self.consumed = with_one_more(self.consumed, message.row)
                self.mail += type(event) is EventReceived
                if type(response) is Transition:
                    self.responses = with_one_more(self.responses, response)
                elif type(response) is AppliedValues:
                    self.yields = yields = self.yields or {}
                    yields[response.key] = yields.get(response.key, 0) + response.count
            elif type(event) is TimerFired:
                self.fired = with_one_more(self.fired, event.timer)
            elif type(response) is UnstoredEvent:
                self.riders = with_one_more(self.riders, response)
            elif type(response) is UnstoredValues:
                self.entries = with_one_more(self.entries, response.responses)
                self.riders = with_one_more(self.riders, response)


NOTHING_TAKEN: Final = AppliedMessages()


class Unusual(TypedDict, total=False):
    """The fields of a `Turn` that most turns leave at their defaults: naming all costs as much as the rest."""

    responses: tuple[Transition, ...]
    consumed: tuple[int, ...]
    abandoned: tuple[int, ...]
    timers_started: tuple[TimerRow, ...]
    timers_ended: tuple[int, ...]
    payloads: tuple[LargePayload, ...]
    close: InstanceEnd | None
    read_to: int | None
    next: NextExecution | None
    waits: tuple[str, ...]
    mail_taken: int
    ids_set_aside: tuple[str, ...]
    sent: tuple[Deliver, ...]
    mailbox: Mailbox | None
    yields: tuple[AppliedValues, ...]
    entries: tuple[StreamValues, ...]
    kept: tuple[StateValue, ...]
    answers: tuple[UpdateAnswer, ...]
    children: tuple[NewChild, ...]
    children_asked: tuple[CancelChild, ...]
    family: bool


def build_turn(
    live: LiveInstance,
    messages: list[Message],
    output: TurnOutput,
    *,
    owner: WorkerKey,
    now_ms: int,
    reserve: Callable[[ScheduledActivity], bool],
    release: bool,
    may_close_unread: bool = False,
) -> BuiltTurn:
    """Put everything one turn did together. `reserve` says whether an activity may start here at once; one that was
    given up in the very turn that called it is never begun. `may_close_unread`: the instance is closed even if messages
    came that were not read (G14).
    """
    effects = output.effects
    abandoned = () if effects is None else effects.abandoned
    attempts: list[NewAttempt] = []
    eager: list[NewAttempt] = []
    for scheduled in output.scheduled:
        starts_here = scheduled.activity not in abandoned and reserve(scheduled)
        attempts.append(new := _new_attempt(scheduled, owner if starts_here else None, now_ms))
        if starts_here:
            eager.append(new)
    payloads: list[LargePayload] = []
    events, encoded = _encoded(output.events, payloads)
    completions = _completions(messages)
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
        release=release,
        key=output.key,
        is_plain=not release,
    )
    unusual: Unusual = {}
    if output.outcome is not None:
        unusual["close"], unusual["next"] = _ending(live, events, output.outcome, payloads)
        unusual["family"] = live.run.has_relatives
        if unusual.get("close") is not None and not may_close_unread:
            unusual["read_to"] = live.last_row
    if live.turn == 0 and (mailbox := live.run.mailbox) is not None:
        unusual["mailbox"] = mailbox
    taken = _add_taken(unusual, messages) if len(completions) < len(messages) else NOTHING_TAKEN
    if effects is not None or taken.fired:
        _add_done(unusual, live, effects or RunEffects(), taken.fired, payloads)
    if effects is not None and effects.waits_changed:
        unusual["ids_set_aside"] = tuple(received.id for received, _ in pairs_set_aside(events) if received.id)
    if payloads:
        unusual["payloads"] = tuple(payloads)
    if unusual:
        turn = msgspec.structs.replace(turn, **unusual, is_plain=False)
    return BuiltTurn(turn, eager, () if effects is None else effects.logs, taken.riders)


def with_one_more(items: Sequence[Item], item: Item) -> Sequence[Item]:
    """`items` with one more. An empty tuple becomes a list: most turns need none."""
    if isinstance(items, list):
        items.append(item)
        return items
    return [item]


def _completions(messages: list[Message]) -> tuple[Completion, ...]:
    if len(messages) == 1:  # so it is most of the time
        only = messages[0].completion
        return () if only is None else (only,)
    return tuple([message.completion for message in messages if message.completion is not None])


def _add_taken(unusual: Unusual, messages: list[Message]) -> AppliedMessages:
    """Messages that were no completions."""
    taken = AppliedMessages()
    taken.sort(messages)
    if taken.consumed:
        unusual["consumed"], unusual["mail_taken"] = tuple(taken.consumed), taken.mail
        unusual["responses"] = tuple(taken.responses)
    if taken.entries:
        unusual["entries"] = tuple(taken.entries)
    if taken.yields:
        unusual["yields"] = tuple(AppliedValues(key=key, count=count) for key, count in taken.yields.items())
    return taken


def _add_done(
    unusual: Unusual, live: LiveInstance, effects: RunEffects, fired: Sequence[int], payloads: list[LargePayload]
) -> None:
    """What the code did besides calling activities, and the timers that ended."""
    if effects.answers is not None:
        unusual["answers"] = answers_of(effects.answers, payloads)
    if fired or effects.timers_ended or effects.timers_started:
        unusual["timers_ended"] = ended = (*effects.timers_ended, *fired)
        unusual["timers_started"] = _change_timers(live, effects.timers_started, ended)
    if effects.abandoned:
        unusual["abandoned"] = tuple(effects.abandoned)
    if effects.waits_changed:
        unusual["waits"] = live.run.awaited_events
    if effects.sent:
        unusual["sent"] = tuple(_messages(live, effects.sent))
    if effects.kept is not None:
        unusual["kept"] = _kept(effects.kept)
    if effects.interrupted:
        unusual["sent"] = (*unusual.get("sent", ()), *_interruptions(live, effects.interrupted))
    if effects.children:
        unusual["children"], unusual["family"] = new_children(live, effects.children), True
    if effects.children_asked:
        asked = tuple(
            CancelChild(child=asked[0], reason=asked[1], descendants=asked[2]) for asked in effects.children_asked
        )
        unusual["children_asked"], unusual["family"] = asked, True


def _encoded(events: list[HistoryEvent], payloads: list[LargePayload]) -> tuple[list[HistoryEvent], bytes]:
    """The events as they are stored; what is large in them goes to `payloads`."""
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


def _kept(changes: dict[str, bytes | None]) -> tuple[StateValue, ...]:
    return tuple(StateValue(key=key, value=value) for key, value in changes.items())


def _messages(live: LiveInstance, sent: Iterable[SentEvent]) -> Iterator[Deliver]:
    """Events for others. Their ids are the same however often the turn is tried, and in no other execution."""
    for number, target, name, data in sent:
        yield Deliver(
            id=InstanceId(target),
            event=EventReceived(time_ms=live.stamp_ms, name=name, value=Payload(msgspec.Raw(data))),
            message_id=f"{live.run.seed:x}/{number}",
        )


def _interruptions(live: LiveInstance, interrupted: Iterable[tuple[str, str, bool]]) -> Iterator[Deliver]:
    for target, reason, descendants in interrupted:
        request = CancelRequested(time_ms=live.stamp_ms, reason=reason, descendants=descendants)
        yield Deliver(id=InstanceId(target), event=request)


def _ending(
    live: LiveInstance,
    events: list[HistoryEvent],
    outcome: ExecutionEnding,
    payloads: list[LargePayload],
) -> tuple[InstanceEnd | None, NextExecution | None]:
    """The end of the instance, or only of this execution of it (G4)."""
    if isinstance(outcome, ContinuedAsNew):
        return None, next_execution(live, outcome, payloads)
    return close_of(events, outcome), None


def close_of(
    events: list[HistoryEvent], outcome: ExecutionCompleted | ExecutionFailed | ExecutionCancelled
) -> InstanceEnd:
    """The end of the instance, now that the code has come to its end."""
    if isinstance(outcome, ExecutionCancelled):
        reason = Payload(msgspec.Raw(msgspec.json.encode(outcome.reason or None)))
        return InstanceEnd(state=InstanceState.CANCELLED, outcome=msgspec.json.encode(reason))
    state = InstanceState.COMPLETED if isinstance(outcome, ExecutionCompleted) else InstanceState.FAILED
    payload = payload_of(events[-1])
    return InstanceEnd(state=state, outcome=msgspec.json.encode(payload))


def _new_attempt(scheduled: ScheduledActivity, owner: WorkerKey | None, now_ms: int) -> NewAttempt:
    options = scheduled.options
    if owner is None:
        expires = options.expires_at_ready_ms(scheduled_at_ms=now_ms, available_at_ms=now_ms)
    else:
        expires = options.expires_at_running_ms(scheduled_at_ms=now_ms, started_at_ms=now_ms, heard_at_ms=now_ms)
    return NewAttempt(
        activity=scheduled.activity,
        attempt=1,
        name=scheduled.name,
        queue=options.queue,
        state=READY if owner is None else RUNNING,
        ledger=SEED if owner is None else EAGER_LEDGER,
        input=scheduled.input,
        options=scheduled.encoded_options,
        available_at_ms=now_ms,
        scheduled_at_ms=now_ms,
        expires_at_ms=expires,
        owner=owner,
    )


def running_record(live: LiveInstance, new: NewAttempt) -> AttemptRecord:
    """The attempt as it is stored, for the one who runs it here."""
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
    """The start of an instance whose first turn is taken by the worker that claims it."""
    payloads: list[LargePayload] = []
    encoded = encode_event(offload(started, payloads))
    return msgspec.structs.replace(start, started=encoded, payloads=tuple(payloads))
