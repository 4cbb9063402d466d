"""Durations as people give them: seconds or a timedelta, checked where they are written."""

import math
from datetime import timedelta
from typing import Final

from holdfast.core.liveness.lease import LONGEST_LEASE_MS, SHORTEST_LEASE_MS
from holdfast.errors import InvalidOption

Duration = float | timedelta
LONGEST_DAYS: Final = 36_500
LONGEST_SECONDS: Final = LONGEST_DAYS * 86_400


def milliseconds(duration: object, what: str) -> int:
    """`duration` in whole milliseconds, rounded up; what is no sensible duration is an `InvalidOption`."""
    given = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise InvalidOption(f"{what} must be a number of seconds or a timedelta, not {duration!r}")
    if not 0 <= given <= LONGEST_SECONDS:
        raise InvalidOption(f"{what} must be 0 to {LONGEST_DAYS} days, not {duration!r}")
    return math.ceil(round(given * 1000, 3))


def lease_milliseconds(duration: object, what: str) -> int:
    """Like `milliseconds`, for the lease of a worker. The store would clamp others to these bounds (W1)."""
    shortest, longest = SHORTEST_LEASE_MS / 1000, LONGEST_LEASE_MS / 1000
    given = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(given, bool) or not isinstance(given, int | float) or not shortest <= given <= longest:
        raise InvalidOption(f"{what} must be {shortest:g} to {longest:,.0f} seconds, not {duration!r}")
    return milliseconds(given, what)


def timeout_milliseconds(duration: Duration | None, what: str) -> int | None:
    """Like `milliseconds`, for a time-out: None is none at all, and zero would never let anything run."""
    if duration is None:
        return None
    length_ms = milliseconds(duration, what)
    if length_ms == 0:
        raise InvalidOption(f"{what} must be longer than 0; leave it out for no limit")
    return length_ms
