"""The check of JSON from outside, at the edges: HTTP, the command line, SQL.

msgspec accepts JSON that other readers refuse or understand differently. `check_untrusted` refuses it before
it is used: keys that occur twice in one object, more than 64 levels, a size above the
limit, text that is not UTF-8, NaN and infinities, numbers such as ``1e400``, integers of 4,300 digits, lone
surrogates, NUL.

Time is linear in the input and memory is bounded by a multiple of `max_bytes`. The answer comes from
operations that run in C over the whole text, at 30 to 70 MB/s for small records and 200 MB/s and more for
long strings on one core. Only a refusal reads the text again, up to `LOCATE_LIMIT_BYTES`: the `json` module
of Python finds the byte of an error of syntax, and `holdfast.payloads.diagnosis` the path of any other.

Duplicate keys are found by counting: the text is read and written again, which drops all but the last of
equal keys, and then has fewer keys than before.
"""

import json
from typing import Any, Final

import msgspec
from msgspec import inspect

from holdfast.errors import MalformedPayload, PayloadTooLarge
from holdfast.payloads.diagnosis import Mismatch, find_problem
from holdfast.payloads.limits import (
    LOCATE_LIMIT_BYTES,
    MAX_DEPTH,
    MAX_INTEGER_DIGITS,
    count_members,
    has_long_number,
    has_nul,
    is_deeper_than,
)

_TOO_LARGE: Final = 10**MAX_INTEGER_DIGITS
_TOO_DEEP: Final = f"it nests deeper than {MAX_DEPTH} levels"


class DuplicateKey:
    """Stands in a value for the second value of a key."""


def _value_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        found[key] = DuplicateKey() if key in found else value
    return found


def _integer(text: str) -> int:
    return int(text) if len(text.lstrip("-")) <= MAX_INTEGER_DIGITS else _TOO_LARGE


_reader: Final = json.JSONDecoder(object_pairs_hook=_value_of_pairs, parse_int=_integer)


def find_fault(data: bytes) -> str | None:
    """The first fault of `data` with its byte or its path, or None."""
    try:
        value = _reader.decode(data.decode())
    except UnicodeDecodeError as error:
        return f"it is not valid UTF-8 (byte {error.start})"
    except json.JSONDecodeError as error:
        return f"it is not valid JSON: {error.msg} (byte {len(error.doc[: error.pos].encode())})"
    except RecursionError:
        return _TOO_DEEP
    if is_deeper_than(MAX_DEPTH, data):
        return _TOO_DEEP
    problem = find_problem(value, inspect.AnyType())
    return None if problem is None else _reason(problem)


def _reason(problem: Mismatch) -> str:
    if problem.found == DuplicateKey.__name__:
        return f"at `{problem.path}`: a key that its object has already"
    return f"at `{problem.path}`: expected {problem.expected}, found {problem.found}"


_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


def check_untrusted(data: bytes, *, max_bytes: int) -> None:
    """Raise `PayloadTooLarge` or `MalformedPayload`, naming the place, unless `data` is sound JSON."""
    if len(data) > max_bytes:
        raise PayloadTooLarge(f"the JSON has {len(data):,} bytes and the limit is {max_bytes:,}; send less")
    if (reason := _why_unsound(data)) is None:
        return
    if len(data) <= LOCATE_LIMIT_BYTES:
        reason = find_fault(data) or reason
    raise MalformedPayload(f"the JSON is refused: {reason}; correct it and send it again")


def _why_unsound(data: bytes) -> str | None:
    try:
        value = _decode(data)
    except RecursionError:
        return _TOO_DEEP
    except UnicodeDecodeError:
        return "it is not valid UTF-8"
    except msgspec.DecodeError as error:
        return str(error)
    if is_deeper_than(MAX_DEPTH, data):
        return _TOO_DEEP
    if has_long_number(data):
        return f"a number with more than {MAX_INTEGER_DIGITS:,} digits"
    if has_nul(data):
        return "a NUL character"
    members = count_members(data)
    if members and members != count_members(_encode(value)):
        return "a key that its object has already"
    return None
