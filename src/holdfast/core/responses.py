"""Responses to an attempt, told apart (L9-L11).

The ledger counts responses and cannot tell them apart. Each has a deterministic id, made of the activity and a number
that goes on across attempts, and its thread index is stored with it. The same id twice changes nothing and opens no
second thread.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.core.checks import parse_enum
from holdfast.core.ledger import Accepted, Ledger, Refused, enter_leg2, read_ledger
from holdfast.core.lifecycle import ATTEMPT_FINAL, AttemptState


@dataclass(frozen=True, slots=True)
class ResponseId:
    """Names one response for ever: a resend has the same."""

    activity: int
    number: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """This response came before, and has this thread index."""

    thread_index: int


ResponseVerdict = Accepted | Duplicate | Refused


def take_response(
    state: AttemptState | str, value: int, response: ResponseId, known: Mapping[ResponseId, int]
) -> tuple[Ledger, ResponseVerdict]:
    """Judge a response: by its id first (L11), then by the attempt's state (L9), then by the digits (L10, L12).

    `known` has the thread index of every response that was accepted before.
    """
    if response in known:
        return read_ledger(value).value, Duplicate(known[response])
    if parse_enum(AttemptState, state, "state of an attempt") in ATTEMPT_FINAL:
        return read_ledger(value).value, Refused.CLOSED
    return enter_leg2(value)
