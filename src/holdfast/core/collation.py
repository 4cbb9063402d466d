"""The collation key: one digit for each activity of a flow, the whole job at a glance (K1-K8).

The digits stand in the order of the activity ids and are padded with 0. `Digit` and `LEGAL_MOVES` define what a digit
means and which moves are legal (K2); the flow scheduler in `core.flow` decides which move happens. A key belongs to one
version of a flow: its activities and their order are an `ActivityOrder`, which all keys of that version share.

Composite keys (K6) contain the keys of awaited children. Right after the digit of the activity that awaited a child
stand `1`, the child's composite key and `2`. Statuses are 3 to 9, so decoding is unambiguous: ``36636146636626`` is
``366366`` with ``466366`` inside its fifth digit.

Dimensions (K8) name the place of an activity in cycles and fan-outs. A flow begins in ``0/0``. Each round of a cycle
increments the number after the slash: ``0/1``, ``0/2``. An item of a fan-out opens a level of its own that begins with
its index: item 3 of a fan-out in ``0/1`` runs in ``0/1:3/0``. Every dimension has its own attempts and ledgers.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NewType

from holdfast.errors import CollationError, MalformedKey, UnknownActivity

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
        """The digit as a character of a key."""
        return str(self.value)


class Move(StrEnum):
    """The moves of a digit."""

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
"""K2: every legal move; nothing else changes a digit."""

STATUS: Final = frozenset({9, 8, 7, 6, 5, 4, 3})
"""The digits that are the status of an activity."""
OPEN: Final = (Digit.PENDING, Digit.STARTED, Digit.PAUSED)
"""K5: a key with one of these digits is not complete."""
FINISHED: Final = (Digit.SKIPPED, Digit.RELEASED, Digit.COMPLETED, Digit.ERRORED)
"""K8: the digits that a cycle resets to pending."""


def is_status(character: str) -> bool:
    """Whether a character of a key is the status of an activity."""
    return character.isascii() and character.isdigit() and int(character) in STATUS


def is_complete(digits: str) -> bool:
    """Whether no activity is pending, started or paused (K5)."""
    return not any(digit.character in digits for digit in OPEN)


def is_error(digits: str) -> bool:
    """Whether an activity errored."""
    return Digit.ERRORED.character in digits


def padded(digits: str) -> str:
    """The digits, padded with 0 to a multiple of fifteen (K1)."""
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


@dataclass(frozen=True, slots=True)
class ActivityOrder:
    """The activities of one version of a flow, in the order of their digits (K1: ascending code points)."""

    activities: tuple[str, ...]
    _positions: Mapping[str, int] = field(repr=False, compare=False)
    padding: str = field(default="", repr=False, compare=False)
    """The zeros that pad a key (K1)."""

    @classmethod
    def of(cls, ids: Iterable[str]) -> "ActivityOrder":
        """The order of these ids. An empty or repeated id, or no id at all, raises `CollationError`."""
        activities = tuple(sorted(ids))
        if not activities:
            raise CollationError("a collation key needs at least one activity")
        if not activities[0]:
            raise CollationError("an activity id cannot be empty")
        positions = {activity: position for position, activity in enumerate(activities)}
        if len(positions) != len(activities):
            twice = next(a for a, b in pairwise(activities) if a == b)
            raise CollationError(f"the activity id {twice!r} is there twice")
        digits = Digit.PENDING.character * len(activities)
        return cls(activities, positions, padded(digits).removeprefix(digits))

    @property
    def positions(self) -> Mapping[str, int]:
        """The position of every activity, in the order of the key."""
        return self._positions

    def position(self, activity: str) -> int:
        """The position of `activity`, from 0."""
        try:
            return self._positions[activity]
        except KeyError:
            raise UnknownActivity(
                f"there is no activity {activity!r}; there are {', '.join(self.activities)}"
            ) from None


@dataclass(frozen=True, slots=True)
class CollationKey:
    """One digit for each activity of a flow."""

    roster: ActivityOrder
    unpadded: str

    @classmethod
    def parse(cls, text: str, ids: Iterable[str]) -> "CollationKey":
        """Parse a key, with or without its padding."""
        roster = ActivityOrder.of(ids)
        count = len(roster.activities)
        full = len(padded("9" * count))
        if len(text) not in (count, full):
            raise MalformedKey(f"a key of {count} activities has {full} digits; {text!r} has {len(text)}")
        digits = text[:count]
        padding = text[count:]
        for activity, digit in zip(roster.activities, digits, strict=True):
            if not is_status(digit):
                raise MalformedKey(f"{digit!r}, at {activity!r} in {text!r}, is not the status of an activity (3 to 9)")
        if padding.strip("0"):
            raise MalformedKey(f"{text!r} has {count} activities, so 0 must follow its first {count} digits")
        return cls(roster, digits)

    @property
    def digits(self) -> Mapping[str, Digit]:
        """The status of every activity, in the order of the key."""
        return {a: Digit(int(d)) for a, d in zip(self.roster.activities, self.unpadded, strict=True)}

    @property
    def is_complete(self) -> bool:
        """Whether no activity is pending, started or paused (K5)."""
        return is_complete(self.unpadded)

    @property
    def is_error(self) -> bool:
        """Whether an activity errored. The key alone does not tell a caught failure from an uncaught one (K5)."""
        return is_error(self.unpadded)

    def __str__(self) -> str:
        return padded(self.unpadded)


OPENS: Final = Digit.AWAIT_OPENS.character
CLOSES: Final = Digit.AWAIT_CLOSES.character
PADDING: Final = Digit.NOT_USED.character
MAX_DEPTH: Final = 100
"""The largest depth of nested children; a deeper composite is refused."""


@dataclass(frozen=True, slots=True)
class Composite:
    """A key, with the composites of its children by the position of the activity that awaited them."""

    digits: str
    children: Mapping[int, tuple["Composite", ...]]

    def __str__(self) -> str:
        return compose(self.digits, self.children)


def compose(key: CollationKey | str, children: Mapping[str, Sequence[object]] | Mapping[int, Sequence[object]]) -> str:
    """Insert the composites of `children` after the digits of `key` that awaited them.

    The keys of `children` are activity ids, or positions from 0 (required if `key` is a string). Each child is a
    composite: a string, or an object whose `str` is one.
    """
    digits = str(key).rstrip(PADDING)
    if not digits or not all(map(is_status, digits)):
        raise MalformedKey(f"{str(key)!r} is not a collation key: every digit must be a status (3 to 9)")
    awaited = {_position(key, at, len(digits)): several for at, several in children.items()}
    pieces: list[str] = []
    for at, digit in enumerate(digits):
        pieces.append(digit)
        for child in awaited.get(at, ()):
            text = str(child).rstrip(PADDING)
            _decompose(text, depth=1)
            pieces += (OPENS, text, CLOSES)
    return "".join(pieces)


def decompose(text: str) -> Composite:
    """Parse a composite or a plain key. Any other string raises `MalformedKey` with the place of the error."""
    stripped = text.rstrip(PADDING)
    composite = _decompose(stripped, depth=0)
    if len(text) != len(stripped) and (composite.children or len(text) % WORD or len(text) - len(stripped) >= WORD):
        raise MalformedKey(f"the zeros after {stripped} must pad it to the next multiple of {WORD} digits")
    return composite


def _position(key: CollationKey | str, at: str | int, count: int) -> int:
    if isinstance(at, str):
        if isinstance(key, CollationKey):
            return key.roster.position(at)
        raise MalformedKey(f"a key that is a string has no activity {at!r}: pass the position, or a CollationKey")
    if not 0 <= at < count:
        raise MalformedKey(f"a key of {count} digits has no position {at}")
    return at


def _decompose(text: str, *, depth: int) -> Composite:
    composite, end = _read_composite(text, 0, depth)
    if end != len(text):
        raise MalformedKey(f"digit {end + 1} of {text!r} closes a child that was never opened")
    return composite


def _read_composite(text: str, start: int, depth: int) -> tuple[Composite, int]:
    if depth > MAX_DEPTH:
        raise MalformedKey(f"children nested more than {MAX_DEPTH} deep")
    digits: list[str] = []
    children: dict[int, tuple[Composite, ...]] = {}
    at = start
    while at < len(text) and text[at] != CLOSES:
        if text[at] != OPENS:
            if not is_status(text[at]):
                raise MalformedKey(f"{text[at]!r} at digit {at + 1} of {text!r} is not a status (3 to 9)")
            digits.append(text[at])
            at += 1
            continue
        if not digits:
            raise MalformedKey(f"digit {at + 1} of {text!r} opens a child that no activity awaited")
        child, end = _read_composite(text, at + 1, depth + 1)
        if end >= len(text):
            raise MalformedKey(f"the child opened at digit {at + 1} of {text!r} is never closed")
        awaiting = len(digits) - 1
        children[awaiting] = (*children.get(awaiting, ()), child)
        at = end + 1
    if not digits:
        raise MalformedKey(f"there is no digit at place {start + 1} of {text!r}")
    return Composite("".join(digits), children), at


Dimension = NewType("Dimension", str)

FIRST: Final = Dimension("0/0")
_LEVEL: Final = re.compile(r"(\d+)/(\d+)", re.ASCII)


def item_dimension(dimension: Dimension, item: int) -> Dimension:
    """The dimension of one item of a fan-out that runs in `dimension`."""
    if not all(_LEVEL.fullmatch(level) for level in dimension.split(":")):
        raise CollationError(f"{dimension!r} is not a dimension; examples are 0/2 and 0/2:5/0")
    if item < 0:
        raise CollationError(f"the items of a fan-out count from 0, not {item}")
    return Dimension(f"{dimension}:{item}/0")


def shown_place(node: str, dimension: str) -> str:
    """The text for an activity in a dimension: ``extract[1]`` is item 1, ``extract[1] 0/2`` item 1 in round three."""
    rounds, *items = dimension.split(":")
    index = "".join(f"[{item.partition('/')[0]}]" for item in items)
    return f"{node}{index}" if rounds in ("", FIRST) else f"{node}{index} {rounds}"
