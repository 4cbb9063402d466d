"""Watching an instance: its changes as they are committed, here or in another process, until it is closed."""

import datetime as dt
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from holdfast.client.changes import ChangeSignal
from holdfast.core.events import decode_events, encode_event
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState
from holdfast.errors import InstanceNotFound
from holdfast.payloads.encoding import decode
from holdfast.storage.contract import InstanceNumber, InstanceRecord, Store


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance looked like after a commit."""

    id: str
    status: InstanceState
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
        return self.status in INSTANCE_FINAL


async def watch(store: Store, changes: ChangeSignal, number: InstanceNumber) -> AsyncGenerator[Change]:
    """The changes of one instance. Several that come together may be seen as one: the newest."""
    seen: Change | None = None
    may_be_flow = True
    async for _ in changes.looks():
        found = await store.glance(number)
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
        status=record.state,
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
