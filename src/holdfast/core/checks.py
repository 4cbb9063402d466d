"""Checks of what must always hold. Unlike ``assert`` they stay when Python runs with ``-O``.

Words from outside (SQL, HTTP, the command line) as members of our enums, or a typed error that lists what is known.

The core compares enums. A caller who has plain text, as a database driver has, gets the same decisions: each public
function reads its words here first.
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
    """The member of `kind` that `given` names."""
    if isinstance(given, kind):
        return given
    try:
        return kind(given)
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        raise UnknownWord(f"{given!r} is no {what}; there are {known}") from None
