"""What a handle tells about an instance: plain values, safe to keep."""

import datetime as dt
from typing import Any

import msgspec

from holdfast.core.events import (
    ActivityAbandoned,
    ActivityCompleted,
    ActivityFailed,
    ActivityScheduled,
    HistoryEvent,
    TimerCancelled,
    TimerFired,
    TimerStarted,
    WorkflowTerminated,
)
from holdfast.core.lifecycle import AttemptState, InstanceState
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
        waiting_for=waiting if record.closed_at_ms is None else [],
        attempts=[attempt_view(attempt) for attempt in attempts],
        blocked=record.blocked,
        created_at=dt.datetime.fromtimestamp(record.created_at_ms / 1000, dt.UTC),
        closed_at=moment(record.closed_at_ms),
    )


def read_key(events: list[HistoryEvent]) -> tuple[str, list[str]]:
    """K9: a digit for each activity and timer in the order they were first scheduled, and what is still waited for."""
    digits: dict[tuple[str, int], str] = {}
    names: dict[tuple[str, int], str] = {}
    for event in events:
        match event:
            case ActivityScheduled():
                digits["activity", event.activity] = "8"
                names["activity", event.activity] = f"activity {event.name}"
            case ActivityCompleted():
                digits["activity", event.activity] = "6"
            case ActivityFailed() | ActivityAbandoned():
                digits["activity", event.activity] = "7"
            case TimerStarted():
                digits["timer", event.timer] = "5"
                names["timer", event.timer] = (
                    f"timer {event.timer}, due {moment(event.due_at_ms):%Y-%m-%d %H:%M:%S} UTC"
                )
            case TimerFired():
                digits["timer", event.timer] = "4"
            case TimerCancelled():
                digits["timer", event.timer] = "3"
            case WorkflowTerminated():  # what was open is cancelled with it (K2)
                digits = {which: "7" if digit in "85" else digit for which, digit in digits.items()}
            case _:
                pass
    waiting = [names[which] for which, digit in digits.items() if digit in "85"]
    return "".join(digits.values()), waiting
