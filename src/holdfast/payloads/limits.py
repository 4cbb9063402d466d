"""Limits of payloads, the check of their size (`PayloadLimit`), and linear-time checks of JSON bytes.

A limit is checked before anything is stored, so a refused payload leaves no trace.

The checks of JSON are meant for valid JSON; on other bytes they end without an exception, and their results mean
nothing. They use whole-buffer operations of `bytes`, which run at the speed of memory; a loop over characters in Python
is a hundred times slower. They share one idea: without escaped backslashes and escaped quotes, every remaining quote
opens or closes a string. So the text outside of strings is every second part between quotes, and removing two adjacent
quotes changes nothing for the rest.
"""

import logging
import re
from typing import Final

from holdfast.errors import PayloadTooLarge

logger = logging.getLogger("holdfast")

KIBIBYTE: Final = 1024

MEBIBYTE: Final = KIBIBYTE * KIBIBYTE

PAYLOAD_LIMIT_BYTES: Final = 32 * MEBIBYTE
"""The default limit of a payload: the arguments of one call, one result, one event."""

UNRECORDED_LIMIT_BYTES: Final = 2 * MEBIBYTE
"""The limit of an execution whose history has none: its release had this limit and counted base64."""

PAYLOAD_WARNING_BYTES: Final = 2 * MEBIBYTE
"""A larger payload is stored with a warning, because every replay reads it again."""

LEAST_PAYLOAD_LIMIT_BYTES: Final = 16 * KIBIBYTE
MOST_PAYLOAD_LIMIT_BYTES: Final = 256 * MEBIBYTE
"""The range of `payload_limit`. A payload is in memory several times while it is written."""

RAISE_THE_LIMIT: Final = "raise payload_limit of the engine, worker or client"
"""The advice for a refusal by the limit of the process."""

MOST_WARNINGS: Final = 1_000
"""The number of different large payloads of which one worker or client warns."""

INLINE_LIMIT_BYTES: Final = 16 * KIBIBYTE
"""A store moves a larger payload into a side table, so that rows that are read often stay small."""


MAX_DEPTH: Final = 64
"""How deep arrays and objects may nest: within the stack of every reader of JSON."""

MAX_INTEGER_DIGITS: Final = 4_299
"""Python turns text of up to 4,300 characters into an integer, and the sign may be one of them."""

LOCATE_LIMIT_BYTES: Final = 256 * KIBIBYTE
"""Up to this size a refusal names the path; finding it is slow, so that a sender cannot cause seconds of work."""

MESSAGE_LIMIT_CHARACTERS: Final = 8 * KIBIBYTE
TRACEBACK_LIMIT_CHARACTERS: Final = 16 * KIBIBYTE
TRACEBACK_LIMIT_FRAMES: Final = 50
"""The frames nearest to the error are stored."""
ARGUMENTS_LIMIT_BYTES: Final = 16 * KIBIBYTE
"""The arguments and attributes of one exception that are stored with its message."""
NOTES_LIMIT: Final = 16
FAILURES_LIMIT: Final = 20
"""Exceptions that one failure may hold: its causes and the members of groups, all counted together.

Each costs two levels of JSON at most, so a failure with the deepest arguments keeps within `MAX_DEPTH`.
"""
ARGUMENTS_MAX_DEPTH: Final = 16


def is_inline(data: bytes) -> bool:
    """Whether a store keeps `data` in the row itself."""
    return len(data) <= INLINE_LIMIT_BYTES


class PayloadLimit:
    """The payload limit of an engine, worker or client. Above `PAYLOAD_WARNING_BYTES` it warns once for each name."""

    __slots__ = ("_counts_base64", "_warned", "largest_bytes", "quiet_bytes")

    def __init__(
        self, largest_bytes: int = PAYLOAD_LIMIT_BYTES, warned: set[str] | None = None, *, counts_base64: bool = False
    ) -> None:
        self._counts_base64 = counts_base64
        self.largest_bytes = largest_bytes
        self.quiet_bytes = min(largest_bytes, PAYLOAD_WARNING_BYTES)
        """Up to this size there is nothing to check: hot paths compare it before they call `checked`."""
        self._warned = set[str]() if warned is None else warned

    def of_execution(self, recorded_bytes: int) -> "PayloadLimit":
        """The limit that the history of an execution records, 0 for none. Both share their warnings."""
        if recorded_bytes == self.largest_bytes:
            return self
        return PayloadLimit(recorded_bytes or UNRECORDED_LIMIT_BYTES, self._warned, counts_base64=recorded_bytes == 0)

    def size_of(self, data: bytes, value: object = None) -> int:
        """The bytes of `data` that count. A `value` of type `bytes` counts as it is and not as base64 (decision 31)."""
        if not isinstance(value, bytes | bytearray) or self._counts_base64 or data[:1] != b'"':
            return len(data)
        return len(value)

    def checked(self, data: bytes, what: str, advice: str = RAISE_THE_LIMIT, *, value: object = None) -> bytes:
        """`data` itself; `PayloadTooLarge`, naming `what`, its size and the limit, if it is above the limit.

        `value` is what `data` was made of, where the store may keep it as bytes.
        """
        size_bytes = self.size_of(data, value)
        if size_bytes > self.largest_bytes:
            raise PayloadTooLarge(
                f"{what} has {size_bytes:,} bytes, and payload_limit is {self.largest_bytes:,}; "
                f"store large data elsewhere and pass its key, or {advice}"
            )
        if size_bytes > PAYLOAD_WARNING_BYTES and what not in self._warned and len(self._warned) < MOST_WARNINGS:
            self._warned.add(what)
            logger.warning(
                "%s has %s bytes. Payloads above %s bytes make every replay slow: "
                "store large data elsewhere and pass its key",
                what,
                f"{size_bytes:,}",
                f"{PAYLOAD_WARNING_BYTES:,}",
            )
        return data


def shorten(text: str, limit_characters: int) -> str:
    """`text` itself, or its beginning and end with the number of characters left out between them."""
    if len(text) <= limit_characters:
        return text
    half = limit_characters // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n... {left_out:,} characters left out ...\n{text[-half:]}"


ESCAPED_NUL: Final = b"\\u0000"
SHORTEST_SUSPECT_BYTES: Final = 2 * (MAX_DEPTH + 1)
"""Shorter JSON cannot nest too deep: every level needs two brackets."""

_WHITE_SPACE: Final = b" \t\n\r"
_ONE_KIND_OF_BRACKET: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET_OR_QUOTE: Final = bytes(code for code in range(256) if code not in b'[]{}"')
_DIGITS_AS_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")
_TOO_MANY_DIGITS: Final = b"0" * (MAX_INTEGER_DIGITS + 1)
_PEELED_LEVELS: Final = 8
_RUNS: Final = re.compile(rb"\[+|\]+")


def _without_escapes(data: bytes) -> bytes:
    """`data` without escaped backslashes and quotes; backslashes first, so that the rest escapes."""
    if b"\\" in data:
        return data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return data


def _outside_strings(data: bytes) -> bytes:
    return b"".join(data.split(b'"')[::2])


def is_deeper_than(limit: int, data: bytes) -> bool:
    """Whether arrays and objects nest deeper than `limit`.

    With one kind of bracket, each removal of ``[]`` removes exactly the innermost level. After a few removals
    only deep towers are left: few long runs of brackets, which are counted one by one.
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
    """The number of keys of all objects of `data`: a colon follows a quote only after a key."""
    return _without_escapes(data).translate(None, _WHITE_SPACE).count(b'":')


def is_within_bounds(data: bytes) -> bool:
    """Whether `data`, valid JSON, is within the limits of depth and digits and has no NUL."""
    return not (has_nul(data) or is_deeper_than(MAX_DEPTH, data) or has_long_number(data))
