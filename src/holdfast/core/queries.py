"""What comes back to those who ask a workflow something: a value, an error of its code, or why there is neither."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

MAX_QUERIES: Final = 1_000
"""Questions that may wait in a store at the same time."""


class ReplyKind(StrEnum):
    """How a question ended."""

    DONE = "done"
    """The handler returned. The data is its result."""
    FAILED = "failed"
    """The handler raised. The data is the failure."""
    UNKNOWN = "unknown"
    """There is no handler of that name. The data is a list of those there are."""
    REFUSED = "refused"
    """Nobody could be asked. The data is the failure that says why."""
    NOT_NOW = "not_now"
    """The worker that took the question cannot answer it now. It is to be put again."""
    REJECTED = "rejected"
    """The validator of an update raised. The data is the failure."""


class Reply(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An answer, as it travels from the process that has the code to the one that asked."""

    kind: ReplyKind
    data: msgspec.Raw = msgspec.Raw(b"null")


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Reply)


def encode_answer(answer: Reply) -> bytes:
    """An answer as it is stored."""
    return _encoder.encode(answer)


def decode_answer(data: bytes) -> Reply:
    """An answer from a store."""
    return _decoder.decode(data)


def unknown_handler(handlers: Iterable[str]) -> Reply:
    """The answer where there is no handler of that name."""
    return Reply(ReplyKind.UNKNOWN, msgspec.Raw(msgspec.json.encode(sorted(handlers))))
