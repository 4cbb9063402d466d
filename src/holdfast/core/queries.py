"""Replies to queries and updates: their kinds, and their encoding."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

MAX_QUERIES: Final = 1_000
"""The largest number of unanswered queries in a store."""


class ReplyKind(StrEnum):
    """The outcome of a query or an update."""

    DONE = "done"
    """The handler returned; the data is its result."""
    FAILED = "failed"
    """The handler raised; the data is the failure."""
    UNKNOWN = "unknown"
    """There is no handler of that name; the data is the list of handlers."""
    REFUSED = "refused"
    """The query could not be run; the data is the failure with the reason."""
    NOT_NOW = "not_now"
    """The worker that claimed the query cannot answer it now; the sender retries."""
    REJECTED = "rejected"
    """The validator of an update raised; the data is the failure."""


class Reply(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A reply, as it is stored for the process that sent the query or update."""

    kind: ReplyKind
    data: msgspec.Raw = msgspec.Raw(b"null")


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Reply)


def encode_answer(answer: Reply) -> bytes:
    """A reply as it is stored."""
    return _encoder.encode(answer)


def decode_answer(data: bytes) -> Reply:
    """A stored reply."""
    return _decoder.decode(data)


def unknown_handler(handlers: Iterable[str]) -> Reply:
    """The reply to a query or update without a handler."""
    return Reply(ReplyKind.UNKNOWN, msgspec.Raw(msgspec.json.encode(sorted(handlers))))
