"""Large values of type bytes: stored as they are, and read as the JSON that they were."""

from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.storage.large_payloads import RAW, is_hash_of, large_value, read_stored, references_in


@given(st.binary(max_size=200))
def test_bytes_are_stored_as_they_are(raw: bytes) -> None:
    data = msgspec.json.encode(raw)
    large = large_value(data)
    assert large.data == raw
    assert large.reference == RAW + sha256(raw).hexdigest()
    assert read_stored(large.reference, large.data) == data
    assert is_hash_of(large.reference, large.data)
    assert not is_hash_of(large.reference, large.data + b"x")


@given(st.text(alphabet='AQgwPx4/+= \\"\n-_é', max_size=12) | st.lists(st.integers()) | st.none())
def test_whatever_is_stored_is_read_as_the_same_json(value: object) -> None:
    data = msgspec.json.encode(value)
    large = large_value(data)
    assert read_stored(large.reference, large.data) == data
    assert is_hash_of(large.reference, large.data)


@pytest.mark.parametrize("text", ["QR==", "QUJ=", "QQ=", "QQ", "====", "QQ==QQ==", "QU JD", "QUJD\n"])
def test_text_that_base64_would_write_in_another_way_stays_text(text: str) -> None:
    data = msgspec.json.encode(text)
    assert large_value(data).data == data


def test_both_kinds_of_references_are_found() -> None:
    plain = large_value(b'{"a":1}').reference
    raw = large_value(b'"QUJD"').reference
    stored = msgspec.json.encode([{"reference": plain}, {"reference": raw}, {"reference": "bytes-12"}])
    assert references_in([stored]) == {plain, raw}
