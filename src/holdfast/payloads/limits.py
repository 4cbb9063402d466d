"""The bounds of payloads, each with its name, and the check of their size.

A bound is looked at before anything is stored, so a payload that is refused leaves no trace.
"""

from typing import Final

from holdfast.errors import PayloadTooLarge

KIBIBYTE: Final = 1024

PAYLOAD_LIMIT_BYTES: Final = 2 * KIBIBYTE * KIBIBYTE
"""What one payload may weigh: the arguments of one call, one result, one event. Files belong elsewhere."""

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


def check_size(data: bytes, what: str, limit_bytes: int = PAYLOAD_LIMIT_BYTES) -> None:
    """Raise `PayloadTooLarge`, naming `what`, its size and the limit, if `data` is above the limit."""
    if len(data) > limit_bytes:
        raise PayloadTooLarge(
            f"{what} has {len(data):,} bytes and the limit is {limit_bytes:,}; "
            "store large data elsewhere and pass its key, or raise the limit"
        )


def shorten(text: str, limit_characters: int) -> str:
    """`text` itself, or its beginning and end with a remark of how much was left out between them."""
    if len(text) <= limit_characters:
        return text
    half = limit_characters // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n... {left_out:,} characters left out ...\n{text[-half:]}"
