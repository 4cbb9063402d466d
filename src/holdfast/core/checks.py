"""Checks of invariants and of strings from outside.

`require` raises in every mode of Python; an ``assert`` disappears under ``-O``. `parse_enum` converts strings from SQL,
HTTP and the command line to enum members: the core compares enums, and each of its public functions converts its
arguments first, so that a caller with plain strings gets the same decisions.
"""

from enum import Enum
from typing import TypeVar

from holdfast.errors import InvariantBroken, UnknownWord


def require(condition: bool, why: str) -> None:
    """Raise `InvariantBroken` with `why` unless `condition` holds."""
    if not condition:
        raise InvariantBroken(why)


Word = TypeVar("Word", bound=Enum)


def parse_enum(kind: type[Word], given: Word | str, what: str) -> Word:
    """The member of `kind` with the value `given`; `UnknownWord` with the known values if there is none."""
    if isinstance(given, kind):
        return given
    try:
        return kind(given)
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        raise UnknownWord(f"{given!r} is not a valid {what}; use one of {known}") from None
