"""The messages between a worker and its child process: JSON with a length in front, over a socket pair.

The worker sends a `Task`. The child prepares it (an import may take long), sends `Ready`, and calls the body when the
worker answers `Begin`. `Cancel` may come at any moment, also after the body has ended.
"""

from typing import Final

import msgspec

from holdfast.payloads.limits import MEBIBYTE, MOST_PAYLOAD_LIMIT_BYTES

LENGTH_BYTES: Final = 4
LONGEST_MESSAGE: Final = MOST_PAYLOAD_LIMIT_BYTES + MEBIBYTE


class BodyTask(msgspec.Struct, frozen=True, tag="task"):
    """Run this body."""

    module: str
    path: str
    """Of the main program, where the activity is defined there; empty otherwise."""
    name: str
    input: msgspec.Raw
    info: msgspec.Raw
    idempotency_key: str


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """W7: the body may begin before this moment of the clock that all processes of a machine share."""

    until_ms: int


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """The body should stop."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The body can begin."""


class BodyHeartbeat(msgspec.Struct, frozen=True, tag="beat"):
    """A heartbeat of the body."""

    details: msgspec.Raw = msgspec.Raw(b"null")


class BodyResult(msgspec.Struct, frozen=True, tag="result"):
    """The body returned; the data is encoded already."""

    data: msgspec.Raw


class BodyError(msgspec.Struct, frozen=True, tag="raised"):
    """The body raised: the failure, and the names of its type and of those it derives from."""

    failure: msgspec.Raw
    types: tuple[str, ...]
    is_cancelled: bool = False
    """It raised `asyncio.CancelledError`, or `hf.Cancelled`, which derives from it."""


ToChild = BodyTask | Begin | Cancel
FromChild = Ready | BodyHeartbeat | BodyResult | BodyError

_encoder: Final = msgspec.json.Encoder()
_to_child: Final[msgspec.json.Decoder[ToChild]] = msgspec.json.Decoder(ToChild)
_from_child: Final[msgspec.json.Decoder[FromChild]] = msgspec.json.Decoder(FromChild)


def framed(message: ToChild | FromChild) -> bytes:
    """A message as it is sent."""
    data = _encoder.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def decode_to_child(data: bytes) -> ToChild:
    """A message of the worker."""
    message: ToChild = _to_child.decode(data)
    return message


def decode_from_child(data: bytes) -> FromChild:
    """A message of a child."""
    message: FromChild = _from_child.decode(data)
    return message
