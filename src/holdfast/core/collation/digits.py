"""What a digit of the collation key says, and the moves from one to the next (K2).

The table here is the only source of legal moves; nothing else changes a digit.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final

WORD: Final = 15
"""K1: a key is padded to a multiple of this many digits."""


class Digit(IntEnum):
    """The status of one activity. 2, 1 and 0 are punctuation of keys and never a status."""

    PENDING = 9
    STARTED = 8
    ERRORED = 7
    COMPLETED = 6
    PAUSED = 5
    RELEASED = 4
    SKIPPED = 3
    AWAIT_CLOSES = 2
    AWAIT_OPENS = 1
    NOT_USED = 0

    @property
    def character(self) -> str:
        """The digit as it stands in a key."""
        return str(self.value)


class Move(StrEnum):
    """What can happen to an activity's digit."""

    START = "start"
    COMPLETE = "complete"
    FAIL = "fail"
    PASS_THROUGH = "pass_through"  # noqa: S105 - a move of the trigger, not a password
    PAUSE = "pause"
    RELEASE = "release"
    TIME_OUT = "time_out"
    SKIP = "skip"
    CANCEL = "cancel"


LEGAL_MOVES: Final[Mapping[tuple[Digit, Move], Digit]] = MappingProxyType(
    {
        (Digit.PENDING, Move.START): Digit.STARTED,
        (Digit.PENDING, Move.PASS_THROUGH): Digit.COMPLETED,
        (Digit.PENDING, Move.SKIP): Digit.SKIPPED,
        (Digit.PENDING, Move.CANCEL): Digit.SKIPPED,
        (Digit.STARTED, Move.COMPLETE): Digit.COMPLETED,
        (Digit.STARTED, Move.FAIL): Digit.ERRORED,
        (Digit.STARTED, Move.PAUSE): Digit.PAUSED,
        (Digit.STARTED, Move.CANCEL): Digit.ERRORED,
        (Digit.PAUSED, Move.RELEASE): Digit.RELEASED,
        (Digit.PAUSED, Move.TIME_OUT): Digit.ERRORED,
        (Digit.PAUSED, Move.CANCEL): Digit.ERRORED,
    }
)

STATUS: Final = frozenset({9, 8, 7, 6, 5, 4, 3})
"""The digits an activity can have."""
OPEN: Final = (Digit.PENDING, Digit.STARTED, Digit.PAUSED)
"""K5: a key with one of these is not complete."""
FINISHED: Final = (Digit.SKIPPED, Digit.RELEASED, Digit.COMPLETED, Digit.ERRORED)
"""K8: the digits that a cycle takes back to pending."""


def is_status(character: str) -> bool:
    """Whether a character of a key is the status of an activity."""
    return character.isascii() and character.isdigit() and int(character) in STATUS


def is_complete(digits: str) -> bool:
    """K5: nothing is pending, started or paused."""
    return not any(digit.character in digits for digit in OPEN)


def is_error(digits: str) -> bool:
    """Whether an activity errored."""
    return Digit.ERRORED.character in digits


def padded(digits: str) -> str:
    """K1: the digits, filled up with 0 to a multiple of fifteen."""
    return digits.ljust(-(-len(digits) // WORD) * WORD, Digit.NOT_USED.character)


MEANING: Final[Mapping[Digit, str]] = MappingProxyType(
    {
        Digit.PENDING: "pending",
        Digit.STARTED: "started",
        Digit.ERRORED: "errored",
        Digit.COMPLETED: "completed",
        Digit.PAUSED: "paused",
        Digit.RELEASED: "released",
        Digit.SKIPPED: "skipped",
        Digit.AWAIT_CLOSES: "await closes",
        Digit.AWAIT_OPENS: "await opens",
        Digit.NOT_USED: "not used",
    }
)
