"""One instance, read once: its row, history, attempts, steps, messages, key, parent and children.

`read_report` is the one function that reads an instance for display: `Handle.describe` returns its `Description`,
`holdfast show` and `history` print it, and `holdfast run` draws its steps (`read_execution`). Damage in a row does not
prevent the rest from being read: damaged columns and turns are left out and described in `damage`.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from holdfast.authoring.validation import checked_integer
from holdfast.client.views.flows import (
    NOT_SCHEDULED,
    node_attempts,
    node_waits,
    read_children,
    read_code_composite,
    read_composite,
    read_flow,
)
from holdfast.client.views.instances import (
    DAMAGE,
    EPOCH,
    LONGEST_EXCERPT,
    AttemptView,
    Description,
    MessageView,
    UpdateView,
    Values,
    attempt_view,
    attribute_values,
    changed_values,
    moment,
    require_there,
    stored_failure,
)
from holdfast.client.views.obstacles import read_obstacles
from holdfast.client.views.steps import StepReport, join_steps, set_aside_views, step_view, waits_for
from holdfast.core.collation import PADDING, padded
from holdfast.core.flow.definition import decode_definition, first_key
from holdfast.core.flow.snapshot import FlowSnapshot
from holdfast.core.history import (
    AttributesChanged,
    CancelRequested,
    EventReceived,
    ExecutionCancelled,
    HistoryEvent,
    InstanceCancelled,
    InstanceTerminated,
    Payload,
    Started,
    UpdateAccepted,
    decode_event,
    decode_events,
    payload_of,
    payloads_of,
)
from holdfast.core.lifecycle import InstanceState
from holdfast.core.steps import RecordedStep, derived_key, read_steps
from holdfast.core.updates import REFUSALS, UpdateState
from holdfast.errors import HoldfastError, InstanceNotFound, StoreError
from holdfast.payloads.failures import RecordedFailure
from holdfast.storage.contract import Store, open_contract_tables, searchable
from holdfast.storage.large_payloads import reference_of
from holdfast.storage.records import (
    AttemptRecord,
    InboxRow,
    InstanceRecord,
    NoteRow,
    ParentAndChildren,
    Record,
    UpdateRow,
)

MOST_MESSAGES: Final = 100
"""Messages and updates in a report that is not whole."""
MOST_WHOLE: Final = 10_000
EARLIER_EXECUTIONS: Final = 100
"""Executions before the current one that are searched for events set aside, in a report that is not whole."""
R = TypeVar("R", bound=Record)
_payload: Final = msgspec.json.Decoder(Payload)


@dataclass(frozen=True, slots=True)
class ExecutionReport:
    """The current execution of an instance, as far as it can be read."""

    record: InstanceRecord
    attempts: Sequence[AttemptRecord]
    events: list[HistoryEvent]
    flow: FlowSnapshot | None
    """None for code, for a flow before its first turn, and for a flow that cannot be read."""
    steps: Sequence[StepReport]
    damage: Sequence[str] = ()
    is_newest: bool = True
    """False for an execution that another one follows (G4)."""

    @property
    def recorded(self) -> list[RecordedStep]:
        return [step.recorded for step in self.steps]


@dataclass(frozen=True, slots=True)
class InstanceReport:
    """A `Description` and the rows that it was made from."""

    execution: ExecutionReport
    described: Description
    values: Values
    node_values: Values
    """Decodes the failures of nodes and, where requested, their outputs: large ones, too."""
    outcome: bytes | None
    """The JSON of the result, the failure or the reason of a closed instance."""
    earlier: int
    """The number of earlier instances with the same id."""
    relatives: ParentAndChildren
    now_ms: int

    @property
    def record(self) -> InstanceRecord:
        return self.execution.record

    @property
    def failure(self) -> RecordedFailure | None:
        """The failure of a workflow that failed."""
        is_failed = self.record.state is InstanceState.FAILED and self.outcome is not None
        return stored_failure(self.outcome) if is_failed else None

    @property
    def reason(self) -> str | None:
        """The reason given for a termination or a cancellation."""
        for event in reversed(self.execution.events):
            if isinstance(event, InstanceTerminated | ExecutionCancelled | InstanceCancelled):
                return event.reason or None
        return None


async def read_report(
    store: Store,
    found: InstanceRecord,
    *,
    is_whole: bool = False,
    with_outputs: bool = False,
    number: int | None = None,
) -> InstanceReport:
    """Reads everything about one instance, in its newest execution or in the execution `number`.

    `is_whole`: values are not cut and large payloads are read. `with_outputs`: the large outputs of nodes are read.
    """
    execution = await read_execution(store, found, number, most_notes=MOST_WHOLE if is_whole else MOST_MESSAGES)
    record = execution.record
    damage = [*execution.damage]
    messages = await _read_messages(store, execution, is_whole=is_whole)
    values = messages.values
    key, composite = await _read_keys(store, execution, damage)
    outcome = await _read_outcome(store, record, damage) if execution.is_newest else None
    state_values = await store.read_state_values(record.number)
    searched = searchable(store)
    attributes = {} if searched is None else await searched.read_attributes(record.number)
    deadline = await store.read_deadline(record.number)
    relatives = await store.read_relatives(record.number)
    described = Description(
        id=record.id,
        workflow=record.workflow,
        version=record.version,
        state=record.state,
        execution=record.execution,
        turn=record.turn,
        collation_key=key,
        composite_key=composite,
        waiting_for=_waits(execution) if record.closed_at_ms is None and execution.is_newest else [],
        attempts=_attempt_views(execution, values),
        blocked=record.blocked,
        created_at=moment(record.created_at_ms) or EPOCH,
        closed_at=moment(record.closed_at_ms),
        custom_status=values.of(state_values[""]) if "" in state_values else None,
        deadline=None if deadline is None else moment(deadline.at_ms),
        start_at=moment(record.start_at_ms),
        parent=None if relatives.parent is None else relatives.parent.id,
        children=relatives.children,
        set_aside=[event for number, events in messages.set_aside for event in set_aside_views(number, events, values)],
        input=_input_of(execution, values),
        steps=[step_view(step, values) for step in execution.recorded],
        attributes=attribute_values(attributes),
        state_values={str(name): values.of(value) for name, value in state_values.items() if name},
        mailbox=messages.mailbox(execution.recorded) if execution.is_newest else [],
        updates=messages.update_views(execution.events),
        losses=record.losses,
        damage=damage,
        obstacles=await read_obstacles(store, record, execution.attempts) if execution.is_newest else [],
        executions=found.execution,
        paused_at=moment(record.paused_at_ms),
        pause_reason=record.pause_reason or None,
    )
    node_values = await _read_node_values(store, execution, with_outputs=with_outputs or is_whole)
    earlier = await _count_earlier(store, record)
    return InstanceReport(execution, described, values, node_values, outcome, earlier, relatives, store.now_ms())


async def _count_earlier(store: Store, record: InstanceRecord) -> int:
    """The earlier instances of the id. It is the last read: the instance must not have been deleted meanwhile (R38)."""
    await require_there(store, record)
    return 0 if record.superseded_at_ms is not None else await store.count_earlier(record.id)


async def read_execution(
    store: Store, found: InstanceRecord, number: int | None = None, *, most_notes: int = 0
) -> ExecutionReport:
    """Reads the history, the attempts and the children of the newest execution, or of the execution `number`.

    `most_notes` is the number of notes of executors that are read (A7).
    """
    if number is not None:
        checked_integer(number, f"the execution of {found.id!r}", least=1, most=found.execution)
    record, damage = repaired(found)
    is_newest = number is None or number == record.execution
    turns = await store.read_history(record.number, record.execution if number is None else number)
    if number is not None and not is_newest:
        if not turns:
            await require_there(store, record)
            raise InstanceNotFound(f"execution {number} of {record.id!r} was deleted by retention, or has no history")
        record = msgspec.structs.replace(record, execution=number, turn=len(turns))
    attempts = [repaired(attempt)[0] for attempt in await store.read_attempts(record.number, record.execution)]
    events: list[HistoryEvent] = []
    for row in turns:
        try:
            events += decode_events(row.events)
        except DAMAGE as error:
            damage.append(f"turn {row.turn} cannot be decoded: {str(error)[:LONGEST_EXCERPT]}")
    flow: FlowSnapshot | None = None
    try:
        flow = await read_flow(store, record, events)
    except (HoldfastError, LookupError, ValueError, *DAMAGE) as error:
        damage.append(f"its flow cannot be read: {str(error)[:LONGEST_EXCERPT]}")
    recorded = read_steps(events) if flow is None else flow.steps
    children = await read_children(store, record.number, recorded)
    is_closed = record.closed_at_ms is not None or not is_newest
    notes: list[NoteRow] = []
    if most_notes and (tables := open_contract_tables(store)) is not None:
        notes = await tables.read_notes(record.number, record.execution, limit=most_notes)
    steps = join_steps(recorded, attempts, children, is_closed=is_closed, notes=notes)
    return ExecutionReport(record, attempts, events, flow, steps, damage, is_newest)


# ---------------------------------------------------------------- damaged rows


def repaired(record: R) -> tuple[R, list[str]]:
    """The record with an empty value in each column that holds another type, and a description of each."""
    try:
        msgspec.convert(msgspec.structs.asdict(record), type(record))
    except msgspec.ValidationError:
        return _without_damage(record)
    return record, []


def _without_damage(record: R) -> tuple[R, list[str]]:
    changes: dict[str, Any] = {}
    for field in msgspec.structs.fields(type(record)):
        value = getattr(record, field.name)
        if isinstance(value, msgspec.Struct) or field.name == "state":  # an unknown state is shown as it is
            continue
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError:
            changes[field.name] = _empty_value(field.type)
    damage = [f"column {name} holds {str(getattr(record, name))[:LONGEST_EXCERPT]!r}" for name in changes]
    return (msgspec.structs.replace(record, **changes), damage) if changes else (record, [])


def _empty_value(kind: Any) -> object:
    for value in (None, 0, "", b""):
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            continue
    return None


# ---------------------------------------------------------------- messages


@dataclass(frozen=True, slots=True)
class _Messages:
    """The rows of the inbox and of updates, decoded, and the turns that set events aside."""

    inbox: Sequence[tuple[InboxRow, HistoryEvent | None]]
    """Each with its event; None for a row that cannot be decoded."""
    updates: Sequence[UpdateRow]
    set_aside: Sequence[tuple[int, list[HistoryEvent]]]
    """Events by execution, oldest first."""
    values: Values

    def mailbox(self, steps: Iterable[RecordedStep]) -> list[MessageView]:
        """The unread messages. The start of an execution is not one of them."""
        awaited = {step.name for step in steps if step.kind == "event" and step.is_open}
        return [
            _message_view(row, event, self.values, awaited)
            for row, event in self.inbox
            if not isinstance(event, Started)
        ]

    def update_views(self, events: Iterable[HistoryEvent]) -> list[UpdateView]:
        """The updates, with names and inputs from the history or the inbox, because the rows do not hold them."""
        waiting = [event for _, event in self.inbox]
        sent = {event.id: event for event in (*events, *waiting) if isinstance(event, UpdateAccepted)}
        return [_update_view(row, sent.get(row.id), self.values) for row in self.updates]


async def _read_messages(store: Store, execution: ExecutionReport, *, is_whole: bool) -> _Messages:
    record = execution.record
    limit = MOST_WHOLE if is_whole else MOST_MESSAGES
    inbox = [(row, _decoded(row)) for row in await store.peek_inbox(record.number, limit)]
    updates = await store.read_updates(record.number, limit)
    earlier = await _read_earlier_set_aside(store, record, limit, is_whole=is_whole)
    payloads: dict[str, bytes] = {}
    if is_whole:
        events = [*execution.events, *(event for _, event in inbox if event is not None)]
        events += [event for _, several in earlier for event in several]
        payloads = await store.read_payloads(record.number, _references(execution, events, updates))
    set_aside = [*earlier, (record.execution, execution.events)]
    return _Messages(inbox, updates, set_aside, Values(payloads, is_whole=is_whole))


async def _read_earlier_set_aside(
    store: Store, record: InstanceRecord, limit: int, *, is_whole: bool
) -> list[tuple[int, list[HistoryEvent]]]:
    """The turns of earlier executions that set events aside, without damaged ones."""
    if record.execution == 1:
        return []
    first = 1 if is_whole else max(1, record.execution - EARLIER_EXECUTIONS)
    turns: list[tuple[int, list[HistoryEvent]]] = []
    for execution, data in await store.read_set_aside(record.number, first=first, before=record.execution, limit=limit):
        with suppress(*DAMAGE):
            turns.append((execution, decode_events(data)))
    return turns


def _decoded(row: InboxRow) -> HistoryEvent | None:
    try:
        return decode_event(row.event)
    except DAMAGE:
        return None


def _references(execution: ExecutionReport, events: Iterable[HistoryEvent], updates: Iterable[UpdateRow]) -> set[str]:
    """The references to large payloads in the rows of an instance."""
    references = {payload.reference for event in events for payload in payloads_of(event)}
    inputs: list[object] = [execution.record.input, *(attempt.input for attempt in execution.attempts)]
    references |= {reference_of(stored) for stored in inputs if isinstance(stored, bytes)}
    references |= {answer.reference for row in updates if (answer := _answer(row)) is not None}
    return references - {""}


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
        case AttributesChanged():
            return MessageView(kind="attributes", name="", id="", value=changed_values(event), sent_at=sent_at)
        case None:
            return MessageView(kind="unreadable", name="", id="", value=values.of(row.event), sent_at=sent_at)
        case _:
            payload = payload_of(event)
            value = None if payload is None else values.of_payload(payload)
            tag = str(event.__struct_config__.tag)
            return MessageView(kind="answer", name=tag, id="", value=value, sent_at=sent_at)


def _update_view(row: UpdateRow, event: UpdateAccepted | None, values: Values) -> UpdateView:
    answer = _answer(row)
    has_failed = row.state is UpdateState.FAILED or row.state in REFUSALS
    failure: str | None = None
    if has_failed and answer is not None:
        is_unknown = row.state is UpdateState.UNKNOWN
        failure = "the workflow has no such update" if is_unknown else values.failure_text(answer)
    return UpdateView(
        id=row.id,
        name="" if event is None else event.name,
        state=row.state,
        input=None if event is None else values.of_payload(event.input),
        result=None if has_failed or answer is None else values.of_payload(answer),
        failure=failure,
    )


def _answer(row: UpdateRow) -> Payload | None:
    if row.answer is None:
        return None
    try:
        return _payload.decode(row.answer)
    except DAMAGE:
        return None


# ---------------------------------------------------------------- steps, keys, outcome, nodes


def _waits(execution: ExecutionReport) -> list[str]:
    if execution.flow is not None:
        return node_waits(execution.flow)
    record = execution.record
    if record.state is InstanceState.REQUESTED and (start_at := moment(record.start_at_ms)) is not None:
        return [f"its start at {start_at:%Y-%m-%d %H:%M:%S} UTC"]
    return [waits_for(step) for step in execution.recorded if step.is_open]


def _input_of(execution: ExecutionReport, values: Values) -> Any:
    """The arguments of the execution. The row of the instance has those of the newest one."""
    started = next(iter(execution.events), None)
    if not execution.is_newest and isinstance(started, Started):
        return values.of_payload(started.input)
    return values.of_input(execution.record.input)


def _attempt_views(execution: ExecutionReport, values: Values) -> list[AttemptView]:
    noted = {key: several for step in execution.steps for key, several in step.notes.items()}
    if execution.flow is not None:
        views = node_attempts(execution.flow, execution.record, execution.attempts, values, noted)
        return views if execution.is_newest else [view for view in views if view.number != NOT_SCHEDULED]
    return [attempt_view(attempt, values, noted.get(attempt.key, ())) for attempt in execution.attempts]


async def _read_keys(store: Store, execution: ExecutionReport, damage: list[str]) -> tuple[str, str | None]:
    """The key and the composite: stored for a flow, derived for code and for earlier executions (K1, K6, K9)."""
    record = execution.record
    stored = await store.read_key(record.number)
    if execution.flow is not None and not execution.is_newest:
        stored = padded(execution.flow.key)
    elif stored is None and not execution.events:
        stored = await _first_key(store, record)
    key = derived_key(execution.recorded) if stored is None else stored
    try:
        if stored is None:
            return key, await read_code_composite(store, record, execution.recorded)
        return key, await read_composite(store, record, execution.flow, key)
    except StoreError as error:  # a child is damaged
        damage.append(str(error))
        return key, key.rstrip(PADDING)


async def _first_key(store: Store, record: InstanceRecord) -> str | None:
    """K1: the key of a flow that was started by name and has had no turn, by the version that was saved last."""
    tables = open_contract_tables(store)
    definition = None if tables is None or record.execution > 1 else await tables.newest_flow(record.workflow)
    try:
        return None if definition is None else first_key(decode_definition(definition))
    except (HoldfastError, *DAMAGE):
        return None  # `holdfast verify` reports it


async def _read_outcome(store: Store, record: InstanceRecord, damage: list[str]) -> bytes | None:
    if record.outcome is None:
        return None
    try:
        payload = _payload.decode(record.outcome)
    except DAMAGE as error:
        damage.append(f"its outcome cannot be decoded: {str(error)[:LONGEST_EXCERPT]}")
        return None
    if not payload.reference:
        return bytes(payload.data)
    return (await store.read_payloads(record.number, [payload.reference])).get(payload.reference)


async def _read_node_values(store: Store, execution: ExecutionReport, *, with_outputs: bool) -> Values:
    if execution.flow is None:
        return Values(is_whole=True)
    nodes = execution.flow.nodes.values()
    payloads = [node.failure for node in nodes]
    if with_outputs:
        payloads += [payload for node in nodes for payload in (node.output, node.held)]
    references = {payload.reference for payload in payloads if payload is not None} - {""}
    found = await store.read_payloads(execution.record.number, references) if references else {}
    return Values(found, is_whole=True)
