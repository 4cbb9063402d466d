"""Large payloads live in a table of their own; what is stored beside them carries a reference."""

from hashlib import sha256
from typing import Final, TypeVar

import msgspec

from holdfast.core.events import (
    ActivityCompleted,
    ActivityFailed,
    HistoryEvent,
    Payload,
    SideEffectRecorded,
    Started,
    WorkflowCompleted,
    WorkflowFailed,
    payload_of,
)
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.storage.changes import LargePayload

Event = TypeVar("Event", bound=HistoryEvent)

_PAYLOAD_FIELD: Final[dict[type[object], str]] = {
    Started: "input",
    ActivityCompleted: "result",
    ActivityFailed: "failure",
    SideEffectRecorded: "value",
    WorkflowCompleted: "result",
    WorkflowFailed: "failure",
}


def offload(event: Event, payloads: list[LargePayload]) -> Event:
    """`event` itself, or, when its payload is large, with a reference to it instead."""
    payload = payload_of(event)
    if payload is None or payload.reference or len(payload.data) <= INLINE_LIMIT_BYTES:
        return event
    data = bytes(payload.data)
    reference = sha256(data).hexdigest()
    payloads.append(LargePayload(reference=reference, data=data))
    return msgspec.structs.replace(event, **{_PAYLOAD_FIELD[type(event)]: Payload(reference=reference)})
