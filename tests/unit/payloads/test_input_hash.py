"""Equal inputs have equal hashes, however their JSON is written (G3)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import MalformedPayload
from holdfast.payloads.signature import canonical_form, input_hash

plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text('aé"\\'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abé"), inner),
    max_leaves=20,
)


def shuffled(value: Any) -> Any:
    if value.__class__ is dict:
        return {key: shuffled(value[key]) for key in reversed(value)}
    if value.__class__ is list:
        return [shuffled(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return float(value)
    return value


@given(plain_json)
def test_G3_order_white_space_escapes_and_number_forms_do_not_count(value: Any) -> None:
    one = json.dumps(value, ensure_ascii=True, indent=2).encode()
    other = json.dumps(shuffled(value), ensure_ascii=False, separators=(",", ":")).encode()
    assert input_hash(one) == input_hash(other)
    assert len(input_hash(one)) == 32


@given(plain_json, plain_json)
def test_G3_different_inputs_have_different_hashes(one: Any, other: Any) -> None:
    same = input_hash(json.dumps(one).encode()) == input_hash(json.dumps(other).encode())
    assert same == (json.dumps(plain(one), sort_keys=True) == json.dumps(plain(other), sort_keys=True))


def plain(value: Any) -> Any:
    if value.__class__ is dict:
        return {key: plain(item) for key, item in value.items()}
    if value.__class__ is list:
        return [plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def test_the_canonical_form_is_fixed_because_hashes_are_stored() -> None:
    data = b'{"b": [1.0, 1e2, -0.0, 0.10, 1e-7, 12345678901234567890, 1e22], '
    data += b'"a": "\\u00e9\\n\\/", "\\u00e9": null}'
    form = '{"a":"é\\n/","b":[1,100,0,0.1,1e-7,12345678901234567890,10000000000000000000000],"é":null}'
    assert canonical_form(data) == form.encode()
    assert input_hash(b"{}").hex() == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_none_is_not_the_same_as_nothing() -> None:
    assert input_hash(b'{"a":null}') != input_hash(b"{}")


@pytest.mark.parametrize("data", [b"", b"{", b"1e400", b'"\xff"', b"[" * 100_000, b"NaN"])
def test_what_is_no_json_has_no_hash(data: bytes) -> None:
    with pytest.raises(MalformedPayload):
        input_hash(data)
