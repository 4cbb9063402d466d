"""The collation key itself: digits by activity, and guarded moves (K1, K2, K5, K8).

A key is immutable; a move gives the next one. It belongs to one version of a flow: the activities and their order
are fixed in its `Roster`, which all keys of that version share.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from holdfast.core.collation.digits import (
    FINISHED,
    LEGAL_MOVES,
    MEANING,
    Digit,
    Move,
    is_complete,
    is_error,
    is_status,
    padded,
)
from holdfast.core.words import word
from holdfast.errors import CollationError, IllegalMove, MalformedKey, UnknownActivity


@dataclass(frozen=True, slots=True)
class ActivityOrder:
    """The activities of one version of a flow, in the order of their digits (K1: ascending code points)."""

    activities: tuple[str, ...]
    _positions: Mapping[str, int] = field(repr=False, compare=False)
    padding: str = field(default="", repr=False, compare=False)
    """What fills a key up (K1)."""

    @classmethod
    def of(cls, ids: Iterable[str]) -> "ActivityOrder":
        """Rank the ids. An empty or repeated one, or none at all, is a `CollationError`."""
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
        """The rank of every activity, in the order of the key."""
        return self._positions

    def position(self, activity: str) -> int:
        """The rank of `activity`, from 0."""
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
    def for_activities(cls, ids: Iterable[str]) -> "CollationKey":
        """The key of a flow nothing of which has happened yet: all pending."""
        roster = ActivityOrder.of(ids)
        return cls(roster, Digit.PENDING.character * len(roster.activities))

    @classmethod
    def parse(cls, text: str, ids: Iterable[str]) -> "CollationKey":
        """Read a key as it is stored or shown, with or without its padding."""
        roster = ActivityOrder.of(ids)
        count = len(roster.activities)
        full = len(padded("9" * count))
        if len(text) not in (count, full):
            raise MalformedKey(f"a key of {count} activities has {full} digits; {text!r} has {len(text)}")
        digits, padding = text[:count], text[count:]
        for activity, digit in zip(roster.activities, digits, strict=True):
            if not is_status(digit):
                raise MalformedKey(f"{digit!r}, at {activity!r} in {text!r}, is not the status of an activity (3 to 9)")
        if padding.strip("0"):
            raise MalformedKey(f"{text!r} has {count} activities, so 0 must follow its first {count} digits")
        return cls(roster, digits)

    def move(self, activity: str, move: Move | str) -> "CollationKey":
        """The key after `move` of `activity`; on a digit that does not allow it, an `IllegalMove` (K2)."""
        move = word(Move, move, "move of an activity")
        position = self.roster.position(activity)
        digit = Digit(int(self.unpadded[position]))
        after = LEGAL_MOVES.get((digit, move))
        if after is None:
            raise IllegalMove(
                f"{activity!r} is {MEANING[digit]} ({int(digit)}), so it cannot {str(move).replace('_', ' ')}"
            )
        return self._with(position, after)

    def reset(self, activities: Iterable[str]) -> "CollationKey":
        """K8: take finished activities back to pending for the next dimension of a cycle."""
        key = self
        for activity in activities:
            digit = key.digit(activity)
            if digit not in FINISHED and digit is not Digit.PENDING:
                raise IllegalMove(
                    f"{activity!r} is {MEANING[digit]} ({int(digit)}), so a cycle cannot run it again yet"
                )
            key = key._with(key.roster.position(activity), Digit.PENDING)
        return key

    def digit(self, activity: str) -> Digit:
        """The status of one activity."""
        return Digit(int(self.unpadded[self.roster.position(activity)]))

    @property
    def digits(self) -> Mapping[str, Digit]:
        """The status of every activity, in the order of the key."""
        return {a: Digit(int(d)) for a, d in zip(self.roster.activities, self.unpadded, strict=True)}

    @property
    def is_complete(self) -> bool:
        """K5: nothing is pending, started or paused."""
        return is_complete(self.unpadded)

    @property
    def is_error(self) -> bool:
        """Whether an activity errored. The key alone cannot say whether the failure was caught (K5)."""
        return is_error(self.unpadded)

    def __str__(self) -> str:
        return padded(self.unpadded)

    def _with(self, position: int, digit: Digit) -> "CollationKey":
        text = self.unpadded
        return CollationKey(self.roster, f"{text[:position]}{int(digit)}{text[position + 1 :]}")
