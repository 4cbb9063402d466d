"""Attributes as they are stored: bounds, types, and keys that compare as the values do (F1, F3)."""

import datetime as dt
import enum
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.attributes import (
    EMPTY,
    AttributeType,
    StoredAttribute,
    checked_attribute_name,
    number_key,
    read_value,
    store_attributes,
    store_value,
)
from holdfast.errors import InvalidAttribute

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-5, 5).map(lambda offset: 2**53 + offset),
)
TIMES = st.datetimes(timezones=st.just(dt.UTC))


class Plan(enum.StrEnum):
    PRO = "pro"


class Old(str, enum.Enum):  # noqa: UP042 - older programs have such enums
    PRO = "pro"


@given(st.one_of(TEXTS, NUMBERS, st.booleans(), TIMES, st.lists(TEXTS, max_size=5, unique=True)))
def test_F1_a_value_is_read_as_it_was_stored(value: Any) -> None:
    found = read_value(store_value("v", value))
    assert found == value
    assert type(found) is type(value)


@given(NUMBERS, NUMBERS)
def test_F3_keys_of_numbers_compare_as_the_numbers_do(one: float, other: float) -> None:
    assert (number_key(one) < number_key(other)) == (one < other)
    assert (number_key(one) == number_key(other)) == (one == other)


@given(st.one_of(st.tuples(TEXTS, TEXTS), st.tuples(TIMES, TIMES)))
def test_F3_keys_of_texts_and_times_compare_as_the_values_do(pair: tuple[Any, Any]) -> None:
    one, other = pair
    keys = [store_value("v", value).keys[0].encode() for value in pair]
    assert (keys[0] < keys[1]) == (one < other)
    assert (keys[0] == keys[1]) == (one == other)


def test_F3_zeroes_are_equal_and_classes_differ() -> None:
    assert number_key(0) == number_key(-0.0) == number_key(0.0)
    values: list[object] = ["1", 1, True, dt.datetime(1970, 1, 1, tzinfo=dt.UTC), []]
    stored = [store_value("v", value).keys for value in values]
    assert len({key[0][0] for key in stored}) == 5
    assert stored[-1] == (EMPTY,)


def test_F1_enums_are_stored_as_their_values_and_a_list_has_no_text_twice() -> None:
    assert read_value(store_value("v", Plan.PRO)) == "pro"
    assert read_value(store_value("v", Old.PRO)) == "pro"
    assert read_value(store_value("v", ["b", "a", "b"])) == ["b", "a"]
    assert read_value(store_value("v", ("b",))) == ["b"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**63, "beyond 64 bits"),
        (-(2**63) - 1, "beyond 64 bits"),
        (10**5_000, "beyond 64 bits"),
        (math.nan, "cannot be compared"),
        (math.inf, "cannot be compared"),
        ("a\0", "NUL"),
        ("a\ud800", "surrogate"),
        ("ä" * 501, "1,002 bytes"),
        (dt.datetime(2026, 1, 1), "must have a time zone"),  # noqa: DTZ001 - wrong on purpose
        (dt.date(2026, 1, 1), "not date"),
        (None, "not NoneType"),
        (b"bytes", "not bytes"),
        ({"a": 1}, "not dict"),
        ({"a"}, "not set"),
        ([1], "one is a int"),
        (["a", None], "one is a NoneType"),
        (["a"] * 51, "a list of 51 texts"),
        (["a\0"], "NUL"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_F1_any_other_value_is_refused(value: object, message: str) -> None:
    with pytest.raises(InvalidAttribute, match=message):
        store_value("v", value)


@pytest.mark.parametrize("name", ["", "1a", "a b", "é", "a\0", "a" * 65, "-a", ".a", "a;", 7, None])
def test_F1_a_name_is_short_and_plain(name: object) -> None:
    with pytest.raises(InvalidAttribute, match="the name of an attribute has 1 to 64"):
        checked_attribute_name(name)


def test_F1_an_instance_has_at_most_fifty_attributes() -> None:
    assert len(store_attributes({f"a{number}": number for number in range(50)})) == 50
    with pytest.raises(InvalidAttribute, match="at most 50 attributes, not 51"):
        store_attributes({f"a{number}": number for number in range(51)})
    with pytest.raises(InvalidAttribute, match="is a mapping of names to values, not list"):
        store_attributes(["a"])
    for name in ("_", "a.b-c_1", "a" * 64):
        assert checked_attribute_name(name) == name


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (AttributeType.TEXT, ("n0",)),
        (AttributeType.TEXT, ("ta", "tb")),
        (AttributeType.BOOL, ("b2",)),
        (AttributeType.INT, ("nxyz",)),
        (AttributeType.DATETIME, ("d",)),
        (AttributeType.TEXTS, ("n1",)),
    ],
)
def test_F1_keys_of_another_type_are_found(kind: AttributeType, keys: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_value(StoredAttribute(kind, keys))
