"""What a worker and its child process say to each other: JSON with a length in front, over a socket pair."""

from typing import Final

import msgspec

LENGTH_BYTES: Final = 4
LONGEST_MESSAGE: Final = 64 * 1024 * 1024


class Task(msgspec.Struct, frozen=True, tag="task"):
    """Run this body."""

    module: str
    path: str
    """Of the main program, where the activity is defined there; empty otherwise."""
    name: str
    input: msgspec.Raw
    info: msgspec.Raw
    idempotency_key: str


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The body says that it lives."""

    details: msgspec.Raw = msgspec.Raw(b"null")


class Result(msgspec.Struct, frozen=True, tag="result"):
    """The body returned; the data is encoded already."""

    data: msgspec.Raw


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """The body raised: the failure, and the names of its type and of those it derives from."""

    failure: msgspec.Raw
    types: tuple[str, ...]


FromChild = Beat | Result | Raised

_encoder: Final = msgspec.json.Encoder()
decode_task: Final = msgspec.json.Decoder(Task).decode
_from_child: Final[msgspec.json.Decoder[FromChild]] = msgspec.json.Decoder(FromChild)


def framed(message: Task | FromChild) -> bytes:
    """A message as it is sent."""
    data = _encoder.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def decode_from_child(data: bytes) -> FromChild:
    """What a child said."""
    message: FromChild = _from_child.decode(data)
    return message
