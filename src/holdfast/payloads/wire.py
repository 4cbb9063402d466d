"""Questions about JSON text that bytes operations answer in linear time, without building values.

All functions are meant for valid JSON; on other bytes they end and do not raise, and their answers mean
nothing. They use whole-buffer operations of `bytes` because those run at the speed of memory, where a loop
over characters in Python would be a hundred times slower.

The one idea behind all of them: without escaped backslashes and escaped quotes, every quote that is left
opens or closes a string. So what is outside of strings is every second part between quotes, and taking away
two quotes that stand side by side changes nothing for the rest.
"""

import re
from typing import Final

from holdfast.payloads.limits import MAX_DEPTH, MAX_INTEGER_DIGITS

ESCAPED_NUL: Final = b"\\u0000"
SHORTEST_SUSPECT_BYTES: Final = 2 * (MAX_DEPTH + 1)
"""Shorter JSON cannot nest too deep: every level costs two brackets."""

_WHITE_SPACE: Final = b" \t\n\r"
_ONE_KIND_OF_BRACKET: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET_OR_QUOTE: Final = bytes(code for code in range(256) if code not in b'[]{}"')
_DIGITS_AS_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")
_TOO_MANY_DIGITS: Final = b"0" * (MAX_INTEGER_DIGITS + 1)
_PEELED_LEVELS: Final = 8
_RUNS: Final = re.compile(rb"\[+|\]+")


def _without_escapes(data: bytes) -> bytes:
    """`data` without escaped backslashes and quotes; backslashes go first, so that what is left escapes."""
    if b"\\" in data:
        return data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return data


def _outside_strings(data: bytes) -> bytes:
    return b"".join(data.split(b'"')[::2])


def is_deeper_than(limit: int, data: bytes) -> bool:
    """Whether arrays and objects nest deeper than `limit`.

    With one kind of bracket, each replacement of ``[]`` by nothing takes away exactly the innermost level.
    After a few of them only towers are left, and those are few long runs of brackets, which can be counted
    one by one.
    """
    if data.count(b"[") + data.count(b"{") <= limit:
        return False
    brackets = _without_escapes(data).translate(_ONE_KIND_OF_BRACKET, _NO_BRACKET_OR_QUOTE).replace(b'""', b"")
    if b'"' in brackets:
        brackets = _outside_strings(brackets)
    peeled = 0
    while brackets and peeled < _PEELED_LEVELS:
        brackets = brackets.replace(b"[]", b"")
        peeled += 1
    depth = 0
    for run in _RUNS.findall(brackets):
        depth += len(run) if run[:1] == b"[" else -len(run)
        if depth + peeled > limit:
            return True
    return False if brackets else peeled > limit


def has_long_number(data: bytes) -> bool:
    """Whether a number has more than `MAX_INTEGER_DIGITS` digits in a row."""
    if len(data) <= MAX_INTEGER_DIGITS or _TOO_MANY_DIGITS not in data.translate(_DIGITS_AS_ZERO):
        return False
    return _TOO_MANY_DIGITS in _outside_strings(_without_escapes(data).translate(_DIGITS_AS_ZERO))


def has_nul(data: bytes) -> bool:
    """Whether a string contains NUL, which JSON can write only as an escape."""
    return ESCAPED_NUL in data and ESCAPED_NUL in data.replace(b"\\\\", b"")


def count_members(data: bytes) -> int:
    """How many keys the objects of `data` have together: only after a key does a colon follow a quote."""
    return _without_escapes(data).translate(None, _WHITE_SPACE).count(b'":')


def is_within_bounds(data: bytes) -> bool:
    """Whether `data`, valid JSON, keeps the bounds of depth and digits and has no NUL."""
    return not (has_nul(data) or is_deeper_than(MAX_DEPTH, data) or has_long_number(data))
