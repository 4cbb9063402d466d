"""What a handle tells about an instance: plain values, safe to keep."""

import datetime as dt
from itertools import pairwise
from typing import Any

import msgspec

from holdfast.core.events import EventReceived, EventSetAside, HistoryEvent
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.steps import Step, key_of, read_steps
from holdfast.storage.contract import AttemptRecord, InstanceRecord


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one activity."""

    activity: str
    number: int
    attempt: int
    state: AttemptState
    ledger: int
    queue: str
    worker: str | None
    scheduled_at: dt.datetime
    started_at: dt.datetime | None
    closed_at: dt.datetime | None
    failure: str | None
    node: str = ""
    """Of a flow: whose attempt it is, and in which round and for which item (K8).

    A node that waits for others has one that is REQUESTED, whose `number` is -1: it is shown, and nowhere stored (A3).
    """
    dimension: str = ""


class SetAsideEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event whose value did not fit the type that the workflow waited for. The workflow still waits (G6)."""

    name: str
    reason: str
    received_at: dt.datetime
    value: Any
    """As it was sent; None for one above 16 KiB, which `history()` has."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """An instance at one moment."""

    id: str
    workflow: str
    version: str
    status: InstanceState
    execution: int
    turn: int
    collation_key: str
    waiting_for: list[str]
    attempts: list[AttemptView]
    blocked: str | None
    created_at: dt.datetime
    closed_at: dt.datetime | None
    custom_status: Any = None
    """What its code said last with `hf.set_status`."""
    deadline: dt.datetime | None = None
    """Until when it has to end, or had to."""
    parent: str | None = None
    """The instance whose code started it, if one did."""
    children: dict[InstanceState, int] = {}
    """How many children it has started, in all its executions, by their state."""
    composite_key: str | None = None
    """Its key without the padding and, for a flow, with the keys of the children that it awaits inside (K6).

    None if these are more than a thousand.
    """
    set_aside: list[SetAsideEvent] = []
    """Events of the current execution that did not fit what was waited for."""
    obstacles: list[str] = []
    """Why it does not move: work that no live worker can take, each as a sentence (see `client.obstacles`)."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """An instance in a list: what is known of it without reading its history."""

    number: int
    """Never given to another instance, also where an id is (G3). The next page is `before` the last one's."""
    id: str
    workflow: str
    version: str
    status: InstanceState
    execution: int
    created_at: dt.datetime
    closed_at: dt.datetime | None
    blocked: str | None
    custom_status: Any
    """What its code said last with `hf.set_status`."""
    is_current: bool
    """Whether its id still means this instance."""
    parent: str | None
    """The instance whose code started it, if one did."""


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the history, with the number of its turn."""

    number: int
    turn: int
    kind: str
    fields: dict[str, Any]


def moment(milliseconds: int | None) -> dt.datetime | None:
    """A stored time, in UTC."""
    return None if milliseconds is None else dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)


def attempt_view(record: AttemptRecord) -> AttemptView:
    """An attempt, for people."""
    message: str | None = None
    if record.failure is not None:
        failure = msgspec.json.decode(record.failure)
        message = f"{failure['type'].rpartition('.')[2]}: {failure['message']}"
    return AttemptView(
        activity=record.name,
        number=record.key.activity,
        attempt=record.key.attempt,
        state=record.state,
        ledger=record.ledger,
        queue=record.queue,
        worker=record.owner,
        scheduled_at=dt.datetime.fromtimestamp(record.scheduled_at_ms / 1000, dt.UTC),
        started_at=moment(record.started_at_ms),
        closed_at=moment(record.closed_at_ms),
        failure=message,
    )


def summary(record: InstanceRecord) -> Summary:
    """An instance in a list, for people."""
    return Summary(
        number=record.number,
        id=record.id,
        workflow=record.workflow,
        version=record.version,
        status=record.state,
        execution=record.execution,
        created_at=dt.datetime.fromtimestamp(record.created_at_ms / 1000, dt.UTC),
        closed_at=moment(record.closed_at_ms),
        blocked=record.blocked,
        custom_status=None if record.custom_status is None else msgspec.json.decode(record.custom_status),
        is_current=record.superseded_at_ms is None,
        parent=record.parent_id,
    )


def description(record: InstanceRecord, events: list[HistoryEvent], attempts: list[AttemptRecord]) -> Description:
    """An instance, for people: what it waits for and its key are read off the history (K9)."""
    key, waiting = read_key(events)
    return Description(
        id=record.id,
        workflow=record.workflow,
        version=record.version,
        status=record.state,
        execution=record.execution,
        turn=record.turn,
        collation_key=key,
        composite_key=key,
        waiting_for=waiting if record.closed_at_ms is None else [],
        attempts=[attempt_view(attempt) for attempt in attempts],
        blocked=record.blocked,
        created_at=dt.datetime.fromtimestamp(record.created_at_ms / 1000, dt.UTC),
        closed_at=moment(record.closed_at_ms),
        set_aside=read_set_aside(events),
    )


def read_set_aside(events: list[HistoryEvent]) -> list[SetAsideEvent]:
    """The events that were set aside, oldest first."""
    return [
        SetAsideEvent(
            name=event.name,
            reason=event.reason,
            received_at=dt.datetime.fromtimestamp(received.time_ms / 1000, dt.UTC),
            value=None if received.value.reference else msgspec.json.decode(received.value.data),
        )
        for received, event in pairwise(events)
        if isinstance(event, EventSetAside) and isinstance(received, EventReceived)
    ]


def read_key(events: list[HistoryEvent]) -> tuple[str, list[str]]:
    """K9: the key, and what is still waited for."""
    steps = read_steps(events)
    return key_of(steps), [waits_for(step) for step in steps if step.is_open]


def waits_for(step: Step) -> str:
    """A step that is open, in words."""
    if step.due_at_ms is not None:
        return f"timer {step.number}, due {moment(step.due_at_ms):%Y-%m-%d %H:%M:%S} UTC"
    return f"{step.kind} {step.name} {step.id}".rstrip()
