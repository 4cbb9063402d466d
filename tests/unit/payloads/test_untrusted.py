"""JSON from outside: refused for exactly the reasons that an independent slow reader finds."""

import json
import math
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import MalformedPayload, PayloadTooLarge
from holdfast.payloads.limits import LOCATE_LIMIT_BYTES, MAX_DEPTH, MAX_INTEGER_DIGITS
from holdfast.payloads.untrusted import check_untrusted, find_fault

LIMIT = 100_000


class RefusedError(Exception):
    """The model says no."""


def checked_pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(items)) != len(items):
        raise RefusedError
    return dict(items)


def checked_number(text: str) -> float:
    if not math.isfinite(float(text)) or max(map(len, re.findall("[0-9]+", text))) > MAX_INTEGER_DIGITS:
        raise RefusedError
    return float(text)


def refused_constant(_text: str) -> Any:
    raise RefusedError


def walk(value: Any, levels_left: int) -> None:
    kind = value.__class__
    if kind in (dict, list) and not levels_left:
        raise RefusedError
    if kind is str and (value.encode() is None or "\0" in value):
        raise RefusedError
    if kind is int and abs(value) >= 10**MAX_INTEGER_DIGITS:
        raise RefusedError
    if kind is list:
        for item in value:
            walk(item, levels_left - 1)
    if kind is dict:
        walk([*value, *value.values()], levels_left)


def model_accepts(data: bytes) -> bool:
    """The same question, answered by the standard library and a walk."""
    hooks: dict[str, Any] = {
        "object_pairs_hook": checked_pairs,
        "parse_float": checked_number,
        "parse_constant": refused_constant,
    }
    try:
        text = data.decode()
        walk(json.loads(text, **hooks), MAX_DEPTH)
    except (RefusedError, ValueError, RecursionError):
        return False
    return True


def scan_accepts(data: bytes) -> bool:
    try:
        check_untrusted(data, max_bytes=LIMIT)
    except MalformedPayload:
        return False
    return True


FRAGMENTS = [
    *'{}[]:," \n\\',
    '"a"',
    '"b":',
    '"a" :',
    '"a":1',
    "1",
    "-0",
    "1.5e3",
    "1e400",
    "-1e-400",
    "01",
    "1.",
    "true",
    "null",
    "NaN",
    "-Infinity",
    '"\\u0000"',
    '"\\\\u0000"',
    '"\\ud800"',
    '"\\ud83d\\ude00"',
    '"\\udc00"',
    '"\\ud800x"',
    '"\\u0061":2',
    '"\\"[{:"',
    '"\\\\"',
    "\x00",
    "é",
    '"é"',
    "\ufeff",
    '{"a":1,"a":2}',
    '{"a":1,"b":[{"a":1}]}',
]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join))
@example('{"a":1,"\\u0061":2}')
@example('{"a":1,"a" \n :2}')
@example('{"a":{"a":1},"b":"\\":"}')
@example('["\\ud800\\ud800"]')
@example('"\\ud800\\u0041"')
@example('["\ud7ff"]')
def test_the_scan_agrees_with_the_model_on_fragments(text: str) -> None:
    data = text.encode()
    assert scan_accepts(data) == model_accepts(data)
    assert find_fault(data) is None or not model_accepts(data)


@given(st.binary(max_size=20) | st.binary(max_size=10).map(lambda inner: b'["' + inner + b'"]'))
def test_the_scan_agrees_with_the_model_on_bytes(data: bytes) -> None:
    assert scan_accepts(data) == model_accepts(data)
    assert find_fault(data) is None or not model_accepts(data)


objects = st.recursive(
    st.sampled_from(["1", '"x"', '"]"', '"\\\\"', '"a\\":"', "null"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]")
        | st.lists(
            st.tuples(st.sampled_from(['"a"', '"b"', '"\\u0061"', '"c\\\\"', '"d\\"" ']), inner), max_size=3
        ).map(lambda items: "{" + ", ".join(f"{key}:{item}" for key, item in items) + "}")
    ),
    max_leaves=12,
)


@given(objects)
def test_the_scan_agrees_with_the_model_on_objects(text: str) -> None:
    data = text.encode()
    assert scan_accepts(data) == model_accepts(data) == (find_fault(data) is None)


@given(st.lists(st.integers(1, 70), min_size=1, max_size=5))
def test_the_deepest_tower_decides(heights: list[int]) -> None:
    towers = ",".join('{"a":[' * (height // 2) + "]}" * (height // 2) or "1" for height in heights)
    data = f"[{towers}]".encode()
    assert scan_accepts(data) == model_accepts(data)


REFUSED = [
    (b'{"order":[{"a":1},{"a":1,"b":2,"a":3}]}', "at `$.order[1].a`: a key that its object has already"),
    (b"[" * 65 + b"]" * 65, "nests deeper than 64 levels"),
    (b'{"a":' * 66 + b"1" + b"}" * 66, "nests deeper than 64 levels"),
    (b"[" * LIMIT, "nests deeper than 64 levels"),
    (b'["a\xff"]', "not valid UTF-8 (byte 3)"),
    (b"[NaN]", "at `$[0]`: expected a finite float, found nan"),
    (b'{"x":-Infinity}', "at `$.x`: expected a finite float, found -inf"),
    (b"[1,1e400]", "at `$[1]`: expected a finite float, found inf"),
    (b"1" * 4300, "expected at most 4,299 digits"),
    (b'{"x":-' + b"1" * 4300 + b"}", "at `$.x`: expected at most 4,299 digits"),
    (b"1." + b"1" * 4300, "more than 4,299 digits"),
    (b'["\\ud800"]', "at `$[0]`: expected str, found str with a lone surrogate"),
    (b'{"a":"\\u0000"}', "at `$.a`: expected str, found str with a NUL character"),
    (b'{"\\u0000":1}', "found str with a NUL character"),
    (b'["\x00"]', "Invalid control character at (byte 2)"),
    (b"\x00", "not valid JSON: Expecting value (byte 0)"),
    (b"", "not valid JSON: Expecting value (byte 0)"),
    (b"[1,]", "not valid JSON"),
    ('["é" 2]'.encode(), "not valid JSON: Expecting ',' delimiter (byte 6)"),
    (b"{} {}", "not valid JSON: Extra data (byte 3)"),
    (b'{"a" 1}', "not valid JSON: Expecting ':' delimiter (byte 5)"),
    (b"{a:1}", "not valid JSON: Expecting property name enclosed in double quotes (byte 1)"),
    (b"\x80\x04\x95\x01", "not valid UTF-8"),
]


@pytest.mark.parametrize(("data", "part"), REFUSED)
def test_each_kind_of_bad_json_is_named_with_its_place(data: bytes, part: str) -> None:
    with pytest.raises(MalformedPayload) as caught:
        check_untrusted(data, max_bytes=LIMIT)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("tail", "part"),
    [
        (b'{"a":1,"a":2}', "a key that its object has already"),
        (b"[" * 64 + b"]" * 64, "nests deeper"),
        (b"[" * 10_000, "nests deeper"),
        (b'"\\u0000"', "NUL"),
        (b"NaN", "invalid character"),
        (b'"\xff"', "not valid UTF-8"),
        (b"1" * 4300, "4,299 digits"),
    ],
)
def test_a_large_text_is_refused_with_the_reason_and_without_the_search_for_the_path(tail: bytes, part: str) -> None:
    padding = b'"' + b"x" * LOCATE_LIMIT_BYTES + b'"'
    with pytest.raises(MalformedPayload, match=part):
        check_untrusted(b"[" + padding + b"," + tail + b"]", max_bytes=10 * LOCATE_LIMIT_BYTES)


def test_a_text_above_the_limit_is_refused_unread() -> None:
    with pytest.raises(PayloadTooLarge, match="11 bytes and the limit is 10"):
        check_untrusted(b"x" * 11, max_bytes=10)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 64 + b"]" * 64,
        b"1" * 4299,
        b'"' + b"1" * 5000 + b'"',
        b'"' + b"[{" * 500 + b'"',
        b'"\\\\u0000"',
    ],
)
def test_what_only_looks_bad_is_accepted(data: bytes) -> None:
    check_untrusted(data, max_bytes=LIMIT)
