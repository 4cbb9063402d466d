"""The bounds of payloads, each with its name, and the check of their size (`PayloadLimit`).

A bound is looked at before anything is stored, so a payload that is refused leaves no trace.
"""

import logging
from typing import Final

from holdfast.errors import PayloadTooLarge

logger = logging.getLogger("holdfast")

KIBIBYTE: Final = 1024

MEBIBYTE: Final = KIBIBYTE * KIBIBYTE

PAYLOAD_LIMIT_BYTES: Final = 32 * MEBIBYTE
"""The largest payload where no other limit is given: the arguments of one call, one result, one event."""

UNRECORDED_LIMIT_BYTES: Final = 2 * MEBIBYTE
"""The limit of an execution whose history has none: it began in a release that had this one and counted base64."""

PAYLOAD_WARNING_BYTES: Final = 2 * MEBIBYTE
"""A larger payload is stored with a warning: every replay reads it again, and files belong elsewhere."""

LEAST_PAYLOAD_LIMIT_BYTES: Final = 16 * KIBIBYTE
MOST_PAYLOAD_LIMIT_BYTES: Final = 256 * MEBIBYTE
"""The range of `payload_limit`. A payload is in memory several times while it is written."""

RAISE_THE_LIMIT: Final = "raise payload_limit of the engine, worker or client"
"""What helps against a refusal, where the limit is that of the process."""

MOST_WARNINGS: Final = 1_000
"""How many different large payloads one worker or client warns of."""

INLINE_LIMIT_BYTES: Final = 16 * KIBIBYTE
"""Above this a store moves the payload into a side table, so that rows that are read often stay small."""

NAME_LIMIT_BYTES: Final = 255
"""What a name or an id may weigh."""

MAX_DEPTH: Final = 64
"""How deep arrays and objects may nest: every reader of JSON can follow that far with its stack."""

MAX_INTEGER_DIGITS: Final = 4_299
"""Python turns text of up to 4,300 characters into an integer, and the sign may be one of them."""

LOCATE_LIMIT_BYTES: Final = 256 * KIBIBYTE
"""Up to this size a refusal names the path; finding it is slow, and no sender may buy seconds of work."""

MESSAGE_LIMIT_CHARACTERS: Final = 8 * KIBIBYTE
TRACEBACK_LIMIT_CHARACTERS: Final = 16 * KIBIBYTE
TRACEBACK_LIMIT_FRAMES: Final = 50
"""The frames nearest to the error are kept."""
ARGUMENTS_LIMIT_BYTES: Final = 16 * KIBIBYTE
"""The arguments and attributes of one exception that are kept beside its message."""
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
    """The largest payload of an engine, worker or client. Above `PAYLOAD_WARNING_BYTES` it warns once for each name."""

    __slots__ = ("_counts_base64", "_warned", "largest_bytes", "quiet_bytes")

    def __init__(
        self, largest_bytes: int = PAYLOAD_LIMIT_BYTES, warned: set[str] | None = None, *, counts_base64: bool = False
    ) -> None:
        self._counts_base64 = counts_base64
        self.largest_bytes = largest_bytes
        self.quiet_bytes = min(largest_bytes, PAYLOAD_WARNING_BYTES)
        """Up to this size there is nothing to check: what runs in every step compares before it calls `checked`."""
        self._warned = set[str]() if warned is None else warned

    def of_execution(self, recorded_bytes: int) -> "PayloadLimit":
        """The limit that the history of an execution has, or 0. Its warnings count with those of this one."""
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
    """`text` itself, or its beginning and end with a remark of how much was left out between them."""
    if len(text) <= limit_characters:
        return text
    half = limit_characters // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n... {left_out:,} characters left out ...\n{text[-half:]}"
