"""Everything that is stored about one instance, for `Handle.describe` and `holdfast show`.

A damaged row is described and left out; nothing that a row holds makes the rest unreadable.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from holdfast.client.views.flows import read_flow
from holdfast.client.views.instances import (
    LONGEST_EXCERPT,
    MessageView,
    SetAsideEvent,
    UpdateView,
    Values,
    failure_text,
    moment,
    read_set_aside,
)
from holdfast.core.flow.snapshot import FlowSnapshot
from holdfast.core.history import (
    CancelRequested,
    EventReceived,
    HistoryEvent,
    Payload,
    Started,
    UpdateAccepted,
    decode_event,
    decode_events,
    payload_of,
    payloads_of,
)
from holdfast.core.steps import read_steps
from holdfast.core.updates import REFUSALS, UpdateState
from holdfast.errors import HoldfastError
from holdfast.storage.contract import Store
from holdfast.storage.large_payloads import reference_of
from holdfast.storage.records import AttemptRecord, InboxRow, InstanceRecord, Record, UpdateRow

MOST_MESSAGES: Final = 100
"""Messages and updates that are read, unless all are asked for."""
MOST_WHOLE: Final = 10_000
EARLIER_EXECUTIONS: Final = 100
"""Executions before the current one that are searched for events set aside, unless all are asked for."""
R = TypeVar("R", bound=Record)
_payload: Final = msgspec.json.Decoder(Payload)
_DAMAGE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError)
"""What decoding a damaged column raises."""


@dataclass(frozen=True, slots=True)
class Story:
    """The history of the current execution as far as it can be read."""

    turns: Sequence[tuple[int, HistoryEvent]]
    """Every event with the number of its turn."""
    flow: FlowSnapshot | None
    damage: list[str]

    @property
    def events(self) -> list[HistoryEvent]:
        return [event for _, event in self.turns]


@dataclass(frozen=True, slots=True)
class Details:
    """What is stored beside the history."""

    values: Values
    state_values: dict[str, Any]
    custom_status: Any
    mailbox: list[MessageView]
    updates: list[UpdateView]
    set_aside: list[SetAsideEvent]


def repaired(record: R) -> tuple[R, list[str]]:
    """A record whose columns hold what they should: a damaged one is replaced by nothing, and described."""
    try:
        msgspec.convert(msgspec.structs.asdict(record), type(record))
    except msgspec.ValidationError:
        return _without_damage(record)
    return record, []


def _without_damage(record: R) -> tuple[R, list[str]]:
    changes: dict[str, Any] = {}
    for field in msgspec.structs.fields(type(record)):
        value = getattr(record, field.name)
        if isinstance(value, msgspec.Struct) or field.name == "state":  # a state that is none is shown as it is
            continue
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError:
            changes[field.name] = _nothing(field.type)
    damage = [f"column {name} holds {str(getattr(record, name))[:LONGEST_EXCERPT]!r}" for name in changes]
    return (msgspec.structs.replace(record, **changes), damage) if changes else (record, [])


def _nothing(kind: Any) -> object:
    """A value that a column may hold."""
    for value in (None, 0, "", b""):
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            continue
    return None


async def read_story(store: Store, record: InstanceRecord) -> Story:
    """The events of an instance; turns that cannot be decoded are described instead."""
    turns: list[tuple[int, HistoryEvent]] = []
    damage: list[str] = []
    for row in await store.read_history(record.number, record.execution):
        try:
            turns += [(row.turn, event) for event in decode_events(row.events)]
        except _DAMAGE as error:
            damage.append(f"turn {row.turn} cannot be decoded: {str(error)[:LONGEST_EXCERPT]}")
    flow: FlowSnapshot | None = None
    try:
        flow = await read_flow(store, record, [event for _, event in turns])
    except (HoldfastError, LookupError, ValueError, *_DAMAGE) as error:
        damage.append(f"its flow cannot be read: {str(error)[:LONGEST_EXCERPT]}")
    return Story(turns, flow, damage)


async def read_details(
    store: Store, record: InstanceRecord, story: Story, attempts: Iterable[AttemptRecord], *, is_whole: bool
) -> Details:
    """Values that are stored beside the history. `is_whole`: nothing is cut, and large payloads are read."""
    most = MOST_WHOLE if is_whole else MOST_MESSAGES
    inbox = await store.peek_inbox(record.number, most)
    rows = await store.read_updates(record.number, most)
    kept = await store.read_state_values(record.number)
    messages = [(row, _decoded(row)) for row in inbox]
    earlier = await _earlier_set_aside(store, record, most, is_whole=is_whole)
    payloads: dict[str, bytes] = {}
    if is_whole:
        others = [event for _, event in messages if event is not None]
        others += [event for _, events in earlier for event in events]
        named = _references(record, story.events, attempts, others, rows)
        payloads = await store.read_payloads(record.number, named)
    values = Values(payloads, is_whole=is_whole)
    awaited = {step.name for step in read_steps(story.events) if step.kind == "event" and step.is_open}
    return Details(
        values=values,
        state_values={str(key): values.of(value) for key, value in kept.items() if key},
        custom_status=values.of(kept[""]) if "" in kept else None,
        mailbox=[
            _message_view(row, event, values, awaited) for row, event in messages if not isinstance(event, Started)
        ],
        updates=_update_views(rows, [*story.events, *(event for _, event in messages if event is not None)], values),
        set_aside=[
            aside
            for execution, events in (*earlier, (record.execution, story.events))
            for aside in read_set_aside(execution, events, values)
        ],
    )


async def _earlier_set_aside(
    store: Store, record: InstanceRecord, most: int, *, is_whole: bool
) -> list[tuple[int, list[HistoryEvent]]]:
    """The turns of earlier executions that set events aside, each with its execution. What is damaged is left out."""
    if record.execution == 1:
        return []
    first = 1 if is_whole else max(1, record.execution - EARLIER_EXECUTIONS)
    turns: list[tuple[int, list[HistoryEvent]]] = []
    for execution, data in await store.read_set_aside(record.number, first=first, before=record.execution, limit=most):
        with suppress(*_DAMAGE):
            turns.append((execution, decode_events(data)))
    return turns


def _decoded(row: InboxRow) -> HistoryEvent | None:
    try:
        return decode_event(row.event)
    except _DAMAGE:
        return None


def _references(
    record: InstanceRecord,
    events: Iterable[HistoryEvent],
    attempts: Iterable[AttemptRecord],
    messages: Iterable[HistoryEvent],
    updates: Iterable[UpdateRow],
) -> set[str]:
    """The large payloads that the rows of an instance name."""
    named = {payload.reference for event in (*events, *messages) for payload in payloads_of(event)}
    inputs: list[object] = [record.input, *(attempt.input for attempt in attempts)]
    named |= {reference_of(stored) for stored in inputs if isinstance(stored, bytes)}
    answers = [_answer(row) for row in updates]
    named |= {answer.reference for answer in answers if answer is not None}
    return named - {""}


def _message_view(row: InboxRow, event: HistoryEvent | None, values: Values, awaited: set[str]) -> MessageView:
    sent_at = moment(row.stamp_ms)
    match event:
        case EventReceived():
            value = values.of_payload(event.value)
            is_awaited = event.name in awaited
            return MessageView(
                kind="event", name=event.name, id=event.id, value=value, sent_at=sent_at, is_awaited=is_awaited
            )
        case UpdateAccepted():
            value = values.of_payload(event.input)
            return MessageView(kind="update", name=event.name, id=event.id, value=value, sent_at=sent_at)
        case CancelRequested():
            return MessageView(kind="cancel", name="", id="", value=event.reason or None, sent_at=sent_at)
        case None:
            return MessageView(kind="unreadable", name="", id="", value=values.of(row.event), sent_at=sent_at)
        case _:
            carried = payload_of(event)
            value = None if carried is None else values.of_payload(carried)
            return MessageView(kind="answer", name=_tag(event), id="", value=value, sent_at=sent_at)


def _tag(event: HistoryEvent) -> str:
    return str(event.__struct_config__.tag)


def _answer(row: UpdateRow) -> Payload | None:
    if row.answer is None:
        return None
    try:
        return _payload.decode(row.answer)
    except _DAMAGE:
        return None


def _update_views(rows: Iterable[UpdateRow], events: Iterable[HistoryEvent], values: Values) -> list[UpdateView]:
    """The rows do not hold names and inputs; the history, or the inbox, does."""
    sent = {event.id: event for event in events if isinstance(event, UpdateAccepted)}
    views: list[UpdateView] = []
    for row in rows:
        event = sent.get(row.id)
        answer = _answer(row)
        has_failed = row.state is UpdateState.FAILED or row.state in REFUSALS
        failure: str | None = None
        if has_failed and answer is not None:
            data = values.data(answer)
            if row.state is UpdateState.UNKNOWN:
                failure = "the workflow has no such update"
            else:
                failure = "a large failure" if data is None else failure_text(data)
        views.append(
            UpdateView(
                id=row.id,
                name="" if event is None else event.name,
                state=row.state,
                input=None if event is None else values.of_payload(event.input),
                result=None if has_failed or answer is None else values.of_payload(answer),
                failure=failure,
            )
        )
    return views
