"""Options as people give them, checked where they are written: an `InvalidOption` names what makes no sense."""

from collections.abc import Iterable
from typing import Final, TypeVar

from holdfast.errors import InvalidOption
from holdfast.payloads.limits import shorten

T = TypeVar("T")
LARGEST: Final = 2**31 - 1
"""More than anybody needs, and every store has a column for it."""
SHOWN_OPTION_CHARACTERS: Final = 100


def whole_number(value: object, what: str, *, least: int, most: int = LARGEST) -> int:
    """`value`, if it is a whole number within the bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        shown = shorten(repr(value), SHOWN_OPTION_CHARACTERS)
        raise InvalidOption(f"{what} must be a whole number from {least:,} to {most:,}, not {shown}")
    return value


def switch(value: object, what: str) -> bool:
    """`value`, if it is True or False. A text such as "no" would count as true."""
    if not isinstance(value, bool):
        raise InvalidOption(f"{what} must be True or False, not {value!r}")
    return value


def several(values: Iterable[T], what: str) -> tuple[T, ...]:
    """`values` as a tuple. A single text is not several: it would be taken letter by letter."""
    if not _is_several(values):
        raise InvalidOption(f"{what} takes a list, not {values!r}; write {what}=[...]")
    return tuple(values)


def _is_several(values: object) -> bool:
    return isinstance(values, Iterable) and not isinstance(values, str | bytes)


def number(value: object, what: str) -> float:
    """`value`, if it is a number of any kind."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOption(f"{what} must be a number, not {value!r}")
    return value
