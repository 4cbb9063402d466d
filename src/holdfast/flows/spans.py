"""Durations as flows have them: a number of seconds, or a text such as ``1h30m``."""

import math
import re
from typing import Final

from holdfast.authoring.durations import LONGEST_DAYS, LONGEST_SECONDS

UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
WHAT: Final = "a number of seconds or a text such as 30s, 2d or 1h30m"
_PART: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d|w)")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def is_span(text: str) -> bool:
    """Whether `text` is a duration and not an expression."""
    return _WHOLE.fullmatch(text) is not None


def span_ms(value: str | float, what: str, *, least_ms: int = 0) -> int:
    """`value` in milliseconds, rounded up; a `ValueError` that says what is wrong with it otherwise."""
    if isinstance(value, bool) or (isinstance(value, str) and not is_span(value)):
        raise ValueError(f"{what} must be {WHAT}, not {value!r}")
    if isinstance(value, str):
        length = sum(float(number) * UNITS_MS[unit] for number, unit in _PART.findall(value))
    else:
        length = value * 1_000
    if not math.isfinite(length) or not 0 <= length <= LONGEST_SECONDS * 1_000:
        raise ValueError(f"{what} must be 0 to {LONGEST_DAYS:,} days, not {value}")
    whole = math.ceil(round(length, 3))
    if whole < least_ms:
        raise ValueError(f"{what} must be longer than 0; leave it out for no limit")
    return whole


def show_span(length_ms: int) -> str | float:
    """The same as a person would write it: the largest units first, or a fraction of a second."""
    if length_ms == 0:
        return 0
    parts: list[str] = []
    for unit in ("w", "d", "h", "m", "s", "ms"):
        count, length_ms = divmod(length_ms, UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
