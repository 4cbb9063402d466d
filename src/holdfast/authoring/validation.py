"""Checks of names, durations, deadlines and options that users pass, made where they are written.

A name or an id is short and printable, without control characters (`InvalidId`). Every other wrong value is an
`InvalidOption` that names the option, the allowed values and the given one.
"""

import math
import unicodedata
from collections.abc import Iterable
from datetime import datetime, timedelta
from types import EllipsisType
from typing import Final, TypeVar

from holdfast.core.children import NAME_LIMIT_BYTES as LONGEST_BYTES
from holdfast.core.deadlines import LONGEST_DAYS, LONGEST_SECONDS, Deadline
from holdfast.core.leases import LONGEST_LEASE_MS, SHORTEST_LEASE_MS
from holdfast.errors import InvalidId, InvalidOption
from holdfast.payloads.encoding import encode
from holdfast.payloads.limits import MESSAGE_LIMIT_CHARACTERS, shorten

Duration = float | timedelta


def checked_duration_ms(duration: object, what: str) -> int:
    """`duration` in milliseconds, rounded up."""
    given = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise InvalidOption(f"{what} must be a number of seconds or a timedelta, not {duration!r}")
    if not 0 <= given <= LONGEST_SECONDS:
        raise InvalidOption(f"{what} must be 0 to {LONGEST_DAYS} days, not {duration!r}")
    return math.ceil(round(given * 1000, 3))


def lease_milliseconds(duration: object, what: str) -> int:
    """The lease of a worker in milliseconds. The store would clamp other values to these bounds (W1)."""
    shortest, longest = SHORTEST_LEASE_MS / 1000, LONGEST_LEASE_MS / 1000
    given = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(given, bool) or not isinstance(given, int | float) or not shortest <= given <= longest:
        raise InvalidOption(f"{what} must be {shortest:g} to {longest:,.0f} seconds, not {duration!r}")
    return checked_duration_ms(given, what)


def checked_timeout_ms(duration: Duration | None, what: str, *, omitted: str = "no limit") -> int | None:
    """A time-out in milliseconds; None: `omitted` applies. Zero is refused, because no attempt could run."""
    if duration is None:
        return None
    length_ms = checked_duration_ms(duration, what)
    if length_ms == 0:
        raise InvalidOption(f"{what} must be longer than 0; leave it out for {omitted}")
    return length_ms


DeadlineOption = Duration | None | EllipsisType
"""Seconds or a timedelta; None: no deadline; omitted: that of the workflow."""


def start_deadline(own: Deadline | None, given: DeadlineOption) -> Deadline | None:
    """The deadline of a start: the given one, or that of the workflow. None if there is none, or it is not known."""
    if isinstance(given, EllipsisType):
        return own if own is not None and own.limit_ms is not None else None
    limit_ms = checked_timeout_ms(given, "deadline")
    return Deadline(limit_ms) if own is None else own._replace(limit_ms=limit_ms)


StartTime = datetime | Duration
"""A time with a time zone, or the seconds or the timedelta from now."""


def checked_start_ms(given: StartTime | None, now_ms: int) -> int | None:
    """The store time of `start_at`, in milliseconds. A time that has passed means at once."""
    if given is None:
        return None
    if not isinstance(given, datetime):
        return now_ms + checked_duration_ms(given, "start_at")
    if given.tzinfo is None or given.utcoffset() is None:
        raise InvalidOption(f"start_at must have a time zone, such as datetime.UTC, and {given!r} has none")
    return checked_start_time_ms(max(0, math.ceil(round(given.timestamp() * 1000, 3))), now_ms)


def checked_start_time_ms(at_ms: int, now_ms: int) -> int:
    """A store time before which a first turn is not taken."""
    if not 0 <= at_ms <= now_ms + LONGEST_SECONDS * 1000:
        raise InvalidOption(
            f"start_at must be a time since 1970 and at most {LONGEST_DAYS} days from now, not {at_ms} ms since 1970"
        )
    return at_ms


SHOWN_NAME_CHARACTERS: Final = 40
"""The shown part of a name that is too long."""
_CONTROL: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control, format (bidirectional marks among them), surrogate, private, unassigned, line and paragraph separators."""


def checked_name(name: object, what: str) -> str:
    """`name`, if it is valid; else an `InvalidId` with the reason."""
    if not isinstance(name, str):
        raise InvalidId(f"the name of {what} must be a string, not {type(name).__name__}")
    if len(name) > LONGEST_BYTES:  # before the checks of each character
        raise _too_long(name, what)
    if name.isascii() and name.isprintable() and name == name.strip() != "":
        return name  # most names
    if not name or name != name.strip():
        raise InvalidId(f"the name of {what} must not be empty or have spaces around it: {name!r}")
    for character in name:
        if unicodedata.category(character) in _CONTROL:
            raise InvalidId(f"the name of {what} must not contain {character!a}: {name!a}")
    if len(name.encode()) > LONGEST_BYTES:
        raise _too_long(name, what)
    return name


def _too_long(name: str, what: str) -> InvalidId:
    shown = name[:SHOWN_NAME_CHARACTERS]
    return InvalidId(f"the name of {what} must have at most {LONGEST_BYTES} bytes, and this has more: {shown!a}...")


RESERVED_VERSION: Final = "-"
"""Stores hold it for an instance that has not chosen its version yet."""


def checked_version(version: object) -> str:
    """`version`, if it is a valid version or empty; else an `InvalidId` with the reason."""
    if version == "":
        return ""
    checked = checked_name(version, "a version")
    if checked == RESERVED_VERSION:
        raise InvalidId(
            f"a version must not be {RESERVED_VERSION!r}, which stands for a version that is not chosen yet"
        )
    return checked


def checked_reason(reason: object) -> str:
    """The reason for an end, as it is stored; `InvalidOption` if it is no string, or too long."""
    if reason is None:
        return ""
    if not isinstance(reason, str) or len(reason) > MESSAGE_LIMIT_CHARACTERS:
        shown = f"{len(reason):,} characters" if isinstance(reason, str) else type(reason).__name__
        raise InvalidOption(f"reason must be a string of at most {MESSAGE_LIMIT_CHARACTERS:,} characters, not {shown}")
    encode(reason, str, what="the reason")
    return reason


T = TypeVar("T")
LARGEST: Final = 2**31 - 1
"""The largest value of an integer column in every store."""
SHOWN_OPTION_CHARACTERS: Final = 100


def checked_integer(value: object, what: str, *, least: int, most: int = LARGEST) -> int:
    """`value`, if it is an integer within the bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        shown = shorten(repr(value), SHOWN_OPTION_CHARACTERS)
        raise InvalidOption(f"{what} must be an integer from {least:,} to {most:,}, not {shown}")
    return value


def checked_bool(value: object, what: str) -> bool:
    """`value`, if it is True or False. A string such as "no" would count as true."""
    if not isinstance(value, bool):
        raise InvalidOption(f"{what} must be True or False, not {value!r}")
    return value


def checked_sequence(values: Iterable[T], what: str) -> tuple[T, ...]:
    """`values` as a tuple. A string is refused: its characters would be the items."""
    if not _is_list(values):
        raise InvalidOption(f"{what} takes a list, not {values!r}; write {what}=[...]")
    return tuple(values)


def _is_list(values: object) -> bool:
    return isinstance(values, Iterable) and not isinstance(values, str | bytes)


def checked_number(value: object, what: str) -> float:
    """`value`, if it is an integer or a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOption(f"{what} must be a number, not {value!r}")
    return value
