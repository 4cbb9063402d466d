"""Exported histories, and the changes of an instance as they are committed.

An exported history is a stable format, which programs keep with their tests and `holdfast.testing.Replayer` replays:
``{"holdfast_history": 1, "id": ..., "workflow": ..., "execution": 1, "turns": [[event, ...], ...]}``. Each turn is a
list of events as they are stored, with large values inline. `parse` also reads files with one such list on each line.
"""

import datetime as dt
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from holdfast.client.views.instances import Stateful
from holdfast.core.history import HistoryEvent, Started, decode_events, encode_event, encode_events
from holdfast.core.lifecycle import INSTANCE_FINAL
from holdfast.errors import InstanceNotFound, MalformedPayload
from holdfast.payloads.encoding import decode
from holdfast.runtime.signals import ChangeSignal
from holdfast.storage.contract import Store
from holdfast.storage.records import InstanceNumber, InstanceRecord

FORM: Final = 1


class ExportedHistory(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of an instance."""

    holdfast_history: int = FORM
    id: str
    workflow: str
    execution: int = 1
    turns: list[msgspec.Raw]

    def events(self) -> list[HistoryEvent]:
        """The events of all turns."""
        return [event for turn in self.turns for event in decode_events(bytes(turn))]


def export(instance_id: str, workflow: str, execution: int, turns: list[list[HistoryEvent]]) -> str:
    """The text of an exported history."""
    encoded = [msgspec.Raw(encode_events(turn)) for turn in turns]
    history = ExportedHistory(id=instance_id, workflow=workflow, execution=execution, turns=encoded)
    return msgspec.json.format(msgspec.json.encode(history)).decode() + "\n"


def parse(text: str) -> tuple[ExportedHistory, list[HistoryEvent]]:
    """Reads the text of an exported history; `MalformedPayload` for any other text."""
    try:
        if text.lstrip().startswith("["):
            history = ExportedHistory(
                id="", workflow="", turns=[msgspec.Raw(line.encode()) for line in text.splitlines() if line.strip()]
            )
        else:
            history = msgspec.json.decode(text, type=ExportedHistory)
        events = history.events()
    except (msgspec.DecodeError, UnicodeError) as error:
        raise MalformedPayload(f"this is not an exported history: {error}") from error
    if history.holdfast_history != FORM:
        raise MalformedPayload(f"a history of form {history.holdfast_history}; this release reads form {FORM}")
    if not events or not isinstance(events[0], Started):
        raise MalformedPayload("this is not an exported history: it does not begin with the start of a workflow")
    return history, events


class Change(Stateful, frozen=True, kw_only=True):
    """The state of an instance after a commit."""

    id: str
    execution: int
    turn: int
    """The number of committed turns of this execution."""
    custom_status: Any = None
    """The argument of the last `hf.set_status`."""
    last_event: str | None = None
    """The kind of the last event in its history, such as `activity_completed`."""
    blocked: str | None = None
    """The reason why it is blocked."""
    collation_key: str | None = None
    """The key of a flow at this commit or a later one; None for code."""
    at: dt.datetime
    """The time of the last message that it consumed, or of its end."""

    @property
    def is_closed(self) -> bool:
        """Whether this is the last change."""
        return self.state in INSTANCE_FINAL


WATCH_SECONDS: Final = 0.2
"""Seconds between two polls of a watched instance: most turns of other processes wake no process."""


async def watch(store: Store, changes: ChangeSignal, number: InstanceNumber) -> AsyncGenerator[Change]:
    """Yields the current state of an instance and each change until it is closed; fast changes may be merged."""
    seen: Change | None = None
    may_be_flow = True
    async for _ in changes.rounds(WATCH_SECONDS):
        found = await store.read_latest(number)
        if found is None:
            raise InstanceNotFound(f"instance number {number} is gone")
        key = await store.read_key(number) if may_be_flow else None
        may_be_flow = key is not None or not found[0].turn  # a flow has a key from its first turn on
        change = _change(*found, key)
        if change != seen:
            seen = change
            yield change
        if found[0].closed_at_ms is not None:
            return


def _change(record: InstanceRecord, events: bytes | None, key: str | None) -> Change:
    at_ms = record.stamp_ms if record.closed_at_ms is None else record.closed_at_ms
    return Change(
        id=record.id,
        state=record.state,
        execution=record.execution,
        turn=record.turn,
        custom_status=None if record.custom_status is None else decode(record.custom_status),
        last_event=None if events is None else _last_event(events),
        blocked=record.blocked,
        collation_key=key,
        at=dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC),
    )


def _last_event(events: bytes) -> str:
    fields: dict[str, Any] = msgspec.json.decode(encode_event(decode_events(events)[-1]))
    kind: str = fields["event"]
    return kind
