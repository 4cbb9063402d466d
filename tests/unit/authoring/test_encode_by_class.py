"""Values that a sender without annotations encodes: events, queries and updates by name."""

import collections
import dataclasses
from typing import Any

import pytest

from holdfast.authoring.events import encoded_event
from holdfast.client.queries import encoded_arguments
from holdfast.errors import AnnotationError
from holdfast.payloads.limits import PayloadLimit


@dataclasses.dataclass
class Parcel:
    weight: int


class Mapping(dict[str, Any]):
    pass


class Row(list[Any]):
    pass


def event_value(value: object) -> bytes:
    return encoded_event("e", value)[1]


def argument(value: object) -> bytes:
    return encoded_arguments((value,), "the arguments", PayloadLimit())[1:-1]


@pytest.mark.parametrize("encode", [event_value, argument])
@pytest.mark.parametrize(
    ("value", "data"),
    [(None, b"null"), (1, b"1"), ("x", b'"x"'), ({"a": [1]}, b'{"a":[1]}'), (Parcel(3), b'{"weight":3}')],
)
def test_G6_a_value_is_encoded_by_its_class(encode: Any, value: object, data: bytes) -> None:
    assert encode(value) == data


@pytest.mark.parametrize("encode", [event_value, argument])
@pytest.mark.parametrize("value", [Mapping(a=1), Row([1]), collections.OrderedDict({"a": 1}), collections.Counter("a")])
def test_G6_a_subclass_of_a_json_type_is_refused(encode: Any, value: object) -> None:
    with pytest.raises(AnnotationError, match="cannot be stored as JSON"):
        encode(value)
