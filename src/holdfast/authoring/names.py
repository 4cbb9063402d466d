"""Names and ids: short, printable, and without characters that look like others or change how text is shown."""

import unicodedata
from typing import Final

from holdfast.errors import InvalidId, InvalidOption
from holdfast.payloads.encoding import encode
from holdfast.payloads.limits import MESSAGE_LIMIT_CHARACTERS
from holdfast.payloads.limits import NAME_LIMIT_BYTES as LONGEST_BYTES

SHOWN_NAME_CHARACTERS: Final = 40
"""Of a name that is too long."""
_CONTROL: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control, format (bidirectional marks among them), surrogate, private, unassigned, line and paragraph separators."""


def checked_name(name: object, what: str) -> str:
    """`name` itself; an `InvalidId` that says what is wrong with it otherwise."""
    if not isinstance(name, str):
        raise InvalidId(f"the name of {what} must be a text, not {type(name).__name__}")
    if len(name) > LONGEST_BYTES:  # before anything looks at every character
        raise _too_long(name, what)
    if name.isascii() and name.isprintable() and name == name.strip() != "":
        return name  # most are like that
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


def checked_reason(reason: object) -> str:
    """Why something is ended, as it is stored; `InvalidOption` if it is no text, or a long one."""
    if reason is None:
        return ""
    if not isinstance(reason, str) or len(reason) > MESSAGE_LIMIT_CHARACTERS:
        shown = f"{len(reason):,} characters" if isinstance(reason, str) else type(reason).__name__
        raise InvalidOption(f"reason must be a text of at most {MESSAGE_LIMIT_CHARACTERS:,} characters, not {shown}")
    encode(reason, str, what="the reason")
    return reason
