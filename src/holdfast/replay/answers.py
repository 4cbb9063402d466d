"""How an answer is made of what came of asking."""

from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.core.answers import Answer, AnswerKind
from holdfast.payloads.failures import failure_of

_encode: Final = msgspec.json.Encoder().encode


def failed(error: BaseException) -> Answer:
    """The answer of a handler that raised."""
    return Answer(AnswerKind.FAILED, msgspec.Raw(_encode(failure_of(error))))


def refused(error: BaseException) -> Answer:
    """The answer where nobody could be asked."""
    return Answer(AnswerKind.REFUSED, msgspec.Raw(_encode(failure_of(error))))


def unknown(handlers: Iterable[str]) -> Answer:
    """The answer where there is no handler of that name."""
    return Answer(AnswerKind.UNKNOWN, msgspec.Raw(_encode(sorted(handlers))))
