"""The hash of an input: equal inputs have equal hashes, whoever wrote the JSON (G3).

Two texts hash alike if they say the same: the order of keys, white space, escapes (``\\u00e9`` or the
letter) and the way to write a number (``1``, ``1.0``, ``1e0``) do not count. The hash is of the plaintext,
before any codec.

The hash is stored, so it must never change. The canonical form is that of version 1 and is fixed by tests
with known values: keys sorted, no white space, whole numbers without a point, other numbers in their
shortest form.
"""

import hashlib
import math
from typing import Final

import msgspec

from holdfast.errors import MalformedPayload

HASH_BYTES: Final = 32


def _whole_if_possible(text: str) -> int | float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return int(number) if number.is_integer() else number


_decode = msgspec.json.Decoder(float_hook=_whole_if_possible).decode
_encode = msgspec.json.Encoder(order="sorted").encode


def canonical_form(data: bytes) -> bytes:
    """The one text that all JSON with the content of `data` shares."""
    try:
        return _encode(_decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise MalformedPayload(f"an input that is no JSON has no hash: {error}") from error


def input_hash(data: bytes) -> bytes:
    """The SHA-256 of the canonical form: `HASH_BYTES` bytes that are equal if and only if the inputs are."""
    return hashlib.sha256(canonical_form(data)).digest()
