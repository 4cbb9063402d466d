"""Responses of an activity that yields: a value is a pending response, its return the final one (L4, L5, L12, L15)."""

from typing import Final

from holdfast.core.checks import require
from holdfast.core.ledger import MAX_RESPONSES, RESPONSE_ENTRY, RESPONSE_EXIT, Ledger, read_ledger

MAX_YIELDS: Final = MAX_RESPONSES - 1
"""L12: the last response that the digits can count is reserved for the end of the attempt."""


def room_for_yields(value: int) -> int:
    """How many more values an attempt with this ledger may yield."""
    return max(0, MAX_YIELDS - read_ledger(value).responses_entered)


def enter_pending(value: int, count: int) -> Ledger:
    """Enter `count` pending responses that arrived together (L4)."""
    digits = read_ledger(value)
    require(digits.leg1_concluded and not digits.leg2_closed, f"ledger {digits.text} takes no response")
    require(0 < count <= room_for_yields(value), f"ledger {digits.text} has no room for {count} more responses")
    return Ledger(value + count * RESPONSE_ENTRY)


def pass_pending(value: int, count: int) -> Ledger:
    """Enter and exit `count` pending responses that one turn applies (L4, L5)."""
    return Ledger(enter_pending(value, count) + count * RESPONSE_EXIT)


def values_delivered(before: int, ledger: int) -> int:
    """The number of durable values of an activity: `before` of earlier attempts, plus those of `ledger`."""
    return before + read_ledger(ledger).responses_entered
