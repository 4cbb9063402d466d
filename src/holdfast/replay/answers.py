"""How an answer is made of what came of asking."""

from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.core.answers import Reply, ReplyKind
from holdfast.payloads.failures import failure_of

_encode: Final = msgspec.json.Encoder().encode


def failed(error: BaseException) -> Reply:
    """The answer of a handler that raised."""
    return Reply(ReplyKind.FAILED, msgspec.Raw(_encode(failure_of(error))))


def refused(error: BaseException) -> Reply:
    """The answer where nobody could be asked."""
    return Reply(ReplyKind.REFUSED, msgspec.Raw(_encode(failure_of(error))))


def unknown(handlers: Iterable[str]) -> Reply:
    """The answer where there is no handler of that name."""
    return Reply(ReplyKind.UNKNOWN, msgspec.Raw(_encode(sorted(handlers))))
