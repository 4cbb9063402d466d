"""Large payloads are stored in a table of their own; events and inputs carry a reference.

A value of type `bytes` is a JSON string in base64. A large one is stored as raw bytes, which are a quarter smaller, and
encoded again when it is read, so that code outside of the store sees no difference. Its reference has a prefix: a
release without this feature finds no payload, and blocks the instance instead of failing it.

An event has its payload in a field of its own. The input of an instance or of an attempt is a column of JSON; for a
large input the column has a mark with which no JSON begins, followed by the reference.
"""

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final, TypeVar

import msgspec

from holdfast.core.history import ActivityYielded, HistoryEvent, Payload, payload_of, payloads_of
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.storage.records import LargePayload

AnyHistoryEvent = TypeVar("AnyHistoryEvent", bound=HistoryEvent)

REFERENCE: Final = b'"reference":'
"""Occurs in a stored message with a large payload (or, rarely, in the data of a small one)."""
_REFERENCE: Final = re.compile(rb'"reference":"((?:bytes-)?[0-9a-f]{64})"')
RAW: Final = "bytes-"
"""The prefix of the reference of a payload that is stored as raw bytes and not as JSON."""
QUOTE: Final = b'"'
_GROUP_CHARACTERS: Final = 4
_GROUP_BYTES: Final = 3
"""Base64 writes three bytes as four characters."""

MARK: Final = b"@"
"""The first byte of an input column that has a reference."""

INPUT: Final = "input"
"""The field of an event with arguments. They are in a column, too, under the same reference."""


def offload(event: AnyHistoryEvent, payloads: list[LargePayload]) -> AnyHistoryEvent:
    """`event` itself, or, if its payload is large, a copy with a reference. The payload is appended to `payloads`."""
    if isinstance(event, ActivityYielded) and event.more:
        return _with_values(event, [_aside(value, payloads, large_value) for value in event.values])
    payload = payload_of(event)
    if payload is None:
        return event
    field = event.payload_field
    aside = _aside(payload, payloads, large_payload if field == INPUT else large_value)
    return event if aside is payload else msgspec.structs.replace(event, **{field: aside})


def _aside(payload: Payload, payloads: list[LargePayload], stored: Callable[[bytes], LargePayload]) -> Payload:
    if payload.reference or len(payload.data) <= INLINE_LIMIT_BYTES:
        return payload
    large = stored(bytes(payload.data))
    payloads.append(large)
    return Payload(reference=large.reference)


def _with_values(event: AnyHistoryEvent, values: list[Payload]) -> AnyHistoryEvent:
    if all(value is before for value, before in zip(values, payloads_of(event), strict=True)):
        return event
    return msgspec.structs.replace(event, value=values[0], more=tuple(values[1:]))


def inline(event: AnyHistoryEvent, payloads: Mapping[str, bytes]) -> AnyHistoryEvent:
    """`event` with its payload in place of the reference, if `payloads` has it."""
    if isinstance(event, ActivityYielded) and event.more:
        return _with_values(event, [_in_place(value, payloads) for value in event.values])
    payload = payload_of(event)
    if payload is None or (whole := _in_place(payload, payloads)) is payload:
        return event
    return msgspec.structs.replace(event, **{event.payload_field: whole})


def _in_place(payload: Payload, payloads: Mapping[str, bytes]) -> Payload:
    data = payloads.get(payload.reference)
    return payload if data is None else Payload(msgspec.Raw(data))


def references_in(encoded: Iterable[object]) -> set[str]:
    """The references in stored events, and any data that looks like one, which does no harm.

    A row that is not of type bytes is damaged; decoding it raises the error (G12).
    """
    return {found.decode() for data in encoded if isinstance(data, bytes) for found in _REFERENCE.findall(data)}


def large_value(data: bytes) -> LargePayload:
    """As `large_payload`, for results and values of events: bytes in base64 are stored as raw bytes."""
    raw = _bytes_in(data)
    return large_payload(data) if raw is None else LargePayload(reference=RAW + sha256(raw).hexdigest(), data=raw)


def _bytes_in(data: bytes) -> bytes | None:
    """The bytes that a JSON string encodes, if encoding them gives exactly this string again."""
    if not data.startswith(QUOTE) or len(data) % _GROUP_CHARACTERS != len(b'""'):
        return None
    text = data[1:-1]
    try:
        raw = a2b_base64(text, strict_mode=True)
    except ValueError:
        return None
    last_group = raw[-(len(raw) % _GROUP_BYTES or _GROUP_BYTES) :]  # the only group with several encodings
    return raw if text.endswith(b2a_base64(last_group, newline=False)) else None


def read_stored(reference: str, data: bytes) -> bytes:
    """The JSON of a payload, as it was before it was stored."""
    return b'"%b"' % b2a_base64(data, newline=False) if reference.startswith(RAW) else data


def is_hash_of(reference: str, data: bytes) -> bool:
    """Whether `data` is the payload of this reference."""
    return sha256(data).hexdigest() == reference.removeprefix(RAW)


def large_payload(data: bytes) -> LargePayload:
    """A row of the side table. The same data has the same reference, so an instance has one copy of it."""
    return LargePayload(reference=sha256(data).hexdigest(), data=data)


def marked(reference: str) -> bytes:
    """The column value of a large input."""
    return MARK + reference.encode()


def reference_of(stored: bytes) -> str:
    """The reference in an input column; empty if the column has the input itself."""
    return stored[len(MARK) :].decode(errors="replace") if stored.startswith(MARK) else ""
