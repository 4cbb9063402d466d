"""Large payloads live in a table of their own; what is stored beside them carries a reference.

A value of type `bytes` is a JSON string in base64. A large one is stored as the bytes that it stands for, a quarter
less, and is written in base64 again when it is read: nothing outside of the store sees the difference. Its reference
has a prefix, so that a release that does not know this finds no payload, and blocks the instance instead of failing it.

An event names its payload in a field of its own. The input of an instance or of an attempt is a column of JSON; of a
large one the column has a mark that no JSON begins with, and the reference behind it.
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
"""Stands in a stored message whose payload is large and has to be fetched (or, rarely, in a small one's data)."""
_REFERENCE: Final = re.compile(rb'"reference":"((?:bytes-)?[0-9a-f]{64})"')
RAW: Final = "bytes-"
"""What the reference of a payload begins with that is stored as bytes and not as JSON."""
QUOTE: Final = b'"'
_GROUP_CHARACTERS: Final = 4
_GROUP_BYTES: Final = 3
"""Base64 writes three bytes as four characters."""

MARK: Final = b"@"
"""What an input begins with that is a reference."""

INPUT: Final = "input"
"""The field of an event that has arguments. A column has them, too, under the same reference."""


def offload(event: AnyHistoryEvent, payloads: list[LargePayload]) -> AnyHistoryEvent:
    """`event` itself, or, when its payload is large, with a reference to it instead."""
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
    """`event` with its payload in place, if it was named by its reference and is there."""
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
    """The references that stored events name; and, harmlessly, whatever in their data looks like one.

    A row that holds no bytes is damaged; whoever decodes it says so (G12).
    """
    return {found.decode() for data in encoded if isinstance(data, bytes) for found in _REFERENCE.findall(data)}


def large_value(data: bytes) -> LargePayload:
    """As `large_payload`, for results and values of events: of bytes in base64 the bytes themselves are stored."""
    raw = _bytes_in(data)
    return large_payload(data) if raw is None else LargePayload(reference=RAW + sha256(raw).hexdigest(), data=raw)


def _bytes_in(data: bytes) -> bytes | None:
    """The bytes that a JSON string stands for, if writing them in base64 gives exactly this string again."""
    if not data.startswith(QUOTE) or len(data) % _GROUP_CHARACTERS != len(b'""'):
        return None
    text = data[1:-1]
    try:
        raw = a2b_base64(text, strict_mode=True)
    except ValueError:
        return None
    last_group = raw[-(len(raw) % _GROUP_BYTES or _GROUP_BYTES) :]  # the only one that can be written in several ways
    return raw if text.endswith(b2a_base64(last_group, newline=False)) else None


def read_stored(reference: str, data: bytes) -> bytes:
    """The JSON of a payload, as it was before it was stored."""
    return b'"%b"' % b2a_base64(data, newline=False) if reference.startswith(RAW) else data


def is_hash_of(reference: str, data: bytes) -> bool:
    """Whether `data` is what was stored under this reference."""
    return sha256(data).hexdigest() == reference.removeprefix(RAW)


def large_payload(data: bytes) -> LargePayload:
    """Data for the side table. The same data has the same reference, so an instance has one copy of it."""
    return LargePayload(reference=sha256(data).hexdigest(), data=data)


def marked(reference: str) -> bytes:
    """What stands in the column of a large input."""
    return MARK + reference.encode()


def reference_of(stored: bytes) -> str:
    """The reference in the column of an input; empty if the input itself is there."""
    return stored[len(MARK) :].decode(errors="replace") if stored.startswith(MARK) else ""
