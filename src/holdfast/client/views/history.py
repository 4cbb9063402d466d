"""Histories as files: the stable form in which one is exported, kept with a program's tests, and replayed.

``{"holdfast_history": 1, "id": ..., "workflow": ..., "execution": 1, "turns": [[event, ...], ...]}``: a list of events
for each turn, each as it is stored, with large values in place. Lines with one such list each are read, too.

Watching an instance: its changes as they are committed, here or in another process, until it is closed.
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
        """What happened, in order."""
        return [event for turn in self.turns for event in decode_events(bytes(turn))]


def export(instance_id: str, workflow: str, execution: int, turns: list[list[HistoryEvent]]) -> str:
    """The text of a history."""
    encoded = [msgspec.Raw(encode_events(turn)) for turn in turns]
    history = ExportedHistory(id=instance_id, workflow=workflow, execution=execution, turns=encoded)
    return msgspec.json.format(msgspec.json.encode(history)).decode() + "\n"


def parse(text: str) -> tuple[ExportedHistory, list[HistoryEvent]]:
    """A history from its text, in either form; `MalformedPayload` if it is none."""
    try:
        if text.lstrip().startswith("["):
            history = ExportedHistory(
                id="", workflow="", turns=[msgspec.Raw(line.encode()) for line in text.splitlines() if line.strip()]
            )
        else:
            history = msgspec.json.decode(text, type=ExportedHistory)
        events = history.events()
    except (msgspec.DecodeError, UnicodeError) as error:
        raise MalformedPayload(f"this is no exported history: {error}") from error
    if history.holdfast_history != FORM:
        raise MalformedPayload(f"a history of form {history.holdfast_history}; this release reads form {FORM}")
    if not events or not isinstance(events[0], Started):
        raise MalformedPayload("this is no exported history: it does not begin with the start of a workflow")
    return history, events


class Change(Stateful, frozen=True, kw_only=True):
    """What an instance looked like after a commit."""

    id: str
    execution: int
    turn: int
    """How many turns of this execution are committed."""
    custom_status: Any = None
    """What its code said last with `hf.set_status`."""
    last_event: str | None = None
    """The kind of the last event in its history, such as `activity_completed`."""
    blocked: str | None = None
    """Why it is parked, if it is."""
    collation_key: str | None = None
    """Of a flow: where each of its activities is, at this commit or one after it. Code has none that is stored."""
    at: dt.datetime
    """The time of the last message that it has handled, or of its end."""

    @property
    def is_closed(self) -> bool:
        """Whether this is the last one."""
        return self.state in INSTANCE_FINAL


async def watch(store: Store, changes: ChangeSignal, number: InstanceNumber) -> AsyncGenerator[Change]:
    """The changes of one instance. Several that come together may be seen as one: the newest."""
    seen: Change | None = None
    may_be_flow = True
    async for _ in changes.rounds():
        found = await store.read_latest(number)
        if found is None:
            raise InstanceNotFound(f"instance number {number} is gone")
        key = await store.read_key(number) if may_be_flow else None
        may_be_flow = key is not None or not found[0].turn  # the first turn says
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
