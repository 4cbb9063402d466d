"""Large payloads live in a table of their own; what is stored beside them carries a reference.

An event names its payload in a field of its own. The input of an instance or of an attempt is a column of JSON; of a
large one the column has a mark that no JSON begins with, and the reference behind it.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, TypeVar

import msgspec

from holdfast.core.events import (
    ActivityCompleted,
    ActivityFailed,
    ActivityYielded,
    ChildCompleted,
    ChildFailed,
    ContinuedAsNew,
    EventReceived,
    HistoryEvent,
    Payload,
    SideEffectRecorded,
    Started,
    UpdateAccepted,
    UpdateCompleted,
    UpdateFailed,
    WorkflowCompleted,
    WorkflowFailed,
    payload_of,
    payloads_of,
)
from holdfast.core.flow.events import FanOutBegan, NodeCompleted, NodeFailed
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.storage.records import LargePayload

Event = TypeVar("Event", bound=HistoryEvent)

REFERENCE: Final = b'"reference":'
"""Stands in a stored message whose payload is large and has to be fetched (or, rarely, in a small one's data)."""
_REFERENCE: Final = re.compile(rb'"reference":"([0-9a-f]{64})"')

MARK: Final = b"@"
"""What an input begins with that is a reference."""

_PAYLOAD_FIELD: Final[dict[type[object], str]] = {
    Started: "input",
    ActivityCompleted: "result",
    ActivityFailed: "failure",
    SideEffectRecorded: "value",
    EventReceived: "value",
    WorkflowCompleted: "result",
    WorkflowFailed: "failure",
    ActivityYielded: "value",
    ContinuedAsNew: "input",
    ChildCompleted: "result",
    ChildFailed: "failure",
    UpdateAccepted: "input",
    UpdateCompleted: "result",
    UpdateFailed: "failure",
    NodeFailed: "failure",
    NodeCompleted: "output",
    FanOutBegan: "items",
}


def offload(event: Event, payloads: list[LargePayload]) -> Event:
    """`event` itself, or, when its payload is large, with a reference to it instead."""
    if isinstance(event, ActivityYielded) and event.more:
        return _with_values(event, [_aside(value, payloads) for value in event.values])
    payload = payload_of(event)
    if payload is None or (aside := _aside(payload, payloads)) is payload:
        return event
    return msgspec.structs.replace(event, **{_PAYLOAD_FIELD[type(event)]: aside})


def _aside(payload: Payload, payloads: list[LargePayload]) -> Payload:
    if payload.reference or len(payload.data) <= INLINE_LIMIT_BYTES:
        return payload
    large = large_payload(bytes(payload.data))
    payloads.append(large)
    return Payload(reference=large.reference)


def _with_values(event: Event, values: list[Payload]) -> Event:
    if all(value is before for value, before in zip(values, payloads_of(event), strict=True)):
        return event
    return msgspec.structs.replace(event, value=values[0], more=tuple(values[1:]))


def inline(event: Event, payloads: Mapping[str, bytes]) -> Event:
    """`event` with its payload in place, if it was named by its reference and is there."""
    if isinstance(event, ActivityYielded) and event.more:
        return _with_values(event, [_in_place(value, payloads) for value in event.values])
    payload = payload_of(event)
    if payload is None or (whole := _in_place(payload, payloads)) is payload:
        return event
    return msgspec.structs.replace(event, **{_PAYLOAD_FIELD[type(event)]: whole})


def _in_place(payload: Payload, payloads: Mapping[str, bytes]) -> Payload:
    data = payloads.get(payload.reference)
    return payload if data is None else Payload(msgspec.Raw(data))


def references_in(encoded: Iterable[object]) -> set[str]:
    """The references that stored events name; and, harmlessly, whatever in their data looks like one.

    A row that holds no bytes is damaged; whoever decodes it says so (G12).
    """
    return {found.decode() for data in encoded if isinstance(data, bytes) for found in _REFERENCE.findall(data)}


def large_payload(data: bytes) -> LargePayload:
    """Data for the side table. The same data has the same reference, so an instance has one copy of it."""
    return LargePayload(reference=sha256(data).hexdigest(), data=data)


def marked(reference: str) -> bytes:
    """What stands in the column of a large input."""
    return MARK + reference.encode()


def reference_of(stored: bytes) -> str:
    """The reference in the column of an input; empty if the input itself is there."""
    return stored[len(MARK) :].decode(errors="replace") if stored.startswith(MARK) else ""
