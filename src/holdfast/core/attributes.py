"""Attributes: typed values of an instance that filters find it by (F1-F3).

A value is a text, an integer, a float, a bool, a time or a list of texts. It is stored as its type and one *key* for
each of its elements. Keys are texts, and comparing two keys byte by byte compares the values: every store finds the
same instances in the same order by one index. The first character of a key is the class of the value, so that texts,
numbers, bools and times are never equal to one another. An integer and a float with the same value have the same key.
"""

import datetime as dt
import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeAlias, cast

import msgspec

from holdfast.errors import InvalidAttribute

AttributeValue: TypeAlias = str | int | float | bool | dt.datetime | list[str]
"""The values that an attribute can have."""

MOST_ATTRIBUTES: Final = 50
MOST_STORED: Final = 4 * MOST_ATTRIBUTES
"""More are damage. The code and clients may each add some before they read those of the other (F10)."""
LONGEST_NAME: Final = 64
LONGEST_TEXT_BYTES: Final = 1_000
"""An index of PostgreSQL holds keys of about 2,700 bytes, with the name."""
MOST_TEXTS: Final = 50
SMALLEST_INTEGER: Final = -(2**63)
LARGEST_INTEGER: Final = 2**63 - 1
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
SHOWN: Final = 60
"""Characters of a wrong value in a message."""

TEXT_CLASS: Final = "t"
NUMBER_CLASS: Final = "n"
BOOL_CLASS: Final = "b"
TIME_CLASS: Final = "d"
EMPTY: Final = "e"
"""The only key of an empty list."""


class AttributeType(StrEnum):
    """The types of attributes, as they are stored."""

    TEXT = "text"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    DATETIME = "datetime"
    TEXTS = "texts"


class StoredAttribute(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A value as it is stored."""

    type: AttributeType
    keys: tuple[str, ...]


class AttributeChange(msgspec.Struct, frozen=True, gc=False):
    """A change of an attribute; None deletes it."""

    name: str
    value: StoredAttribute | None


Attributes: TypeAlias = Mapping[str, StoredAttribute]
"""The attributes of one instance by name."""


def changed_attributes(attributes: Attributes, changes: Iterable[AttributeChange]) -> dict[str, StoredAttribute]:
    """The attributes after some changes."""
    changed = dict(attributes)
    for change in changes:
        if change.value is None:
            changed.pop(change.name, None)
        else:
            changed[change.name] = change.value
    return changed


def checked_changes(values: object) -> tuple[AttributeChange, ...]:
    """The changes that a client asks for (F10): values by name, and None for each attribute to delete."""
    if not isinstance(values, Mapping):
        raise InvalidAttribute(f"set_attributes takes a mapping of names to values, not {type(values).__name__}")
    given = cast("Mapping[str, AttributeValue | None]", values)
    if not 1 <= len(given) <= MOST_ATTRIBUTES:
        raise InvalidAttribute(f"set_attributes takes 1 to {MOST_ATTRIBUTES} attributes, not {len(given):,}")
    return tuple(
        AttributeChange(checked_attribute_name(name), None if value is None else store_value(name, value))
        for name, value in given.items()
    )


def checked_attribute_name(name: object) -> str:
    """`name`, if an attribute can have it."""
    if not isinstance(name, str) or len(name) > LONGEST_NAME or not NAME.fullmatch(name):
        shown = name[:SHOWN] if isinstance(name, str) else name
        raise InvalidAttribute(
            f"the name of an attribute has 1 to {LONGEST_NAME} ASCII letters, digits, '_', '-' and '.', the first a "
            f"letter or '_', not {shown!a}"
        )
    return name


def check_number_of(attributes: Attributes) -> None:
    """`InvalidAttribute` if an instance cannot have so many."""
    if len(attributes) > MOST_ATTRIBUTES:
        raise InvalidAttribute(f"an instance has at most {MOST_ATTRIBUTES} attributes, not {len(attributes):,}")


def store_attributes(values: object) -> dict[str, StoredAttribute]:
    """The attributes of a start, as they are stored."""
    if not isinstance(values, Mapping):
        raise InvalidAttribute(f"attributes is a mapping of names to values, not {type(values).__name__}")
    given = cast("Mapping[str, AttributeValue]", values)
    stored = {checked_attribute_name(name): store_value(name, value) for name, value in given.items()}
    check_number_of(stored)
    return stored


def store_value(name: str, value: object) -> StoredAttribute:
    """The value of an attribute, as it is stored."""
    match value:
        case bool():
            return StoredAttribute(AttributeType.BOOL, (bool_key(value),))
        case int() if SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
            return StoredAttribute(AttributeType.INT, (number_key(int(value)),))
        case float() if math.isfinite(value):
            return StoredAttribute(AttributeType.FLOAT, (number_key(float(value)),))
        case str():
            return StoredAttribute(AttributeType.TEXT, (_checked_text_key(name, value),))
        case dt.datetime():
            return StoredAttribute(AttributeType.DATETIME, (_datetime_key(name, value),))
        case list() | tuple():
            return StoredAttribute(AttributeType.TEXTS, _texts(name, cast("Sequence[object]", value)))
        case int():
            raise InvalidAttribute(f"the attribute {name!r} is an integer beyond 64 bits, which no store can hold")
        case float():
            raise InvalidAttribute(f"the attribute {name!r} is {value}, which cannot be compared with other numbers")
        case _:
            raise InvalidAttribute(
                f"the attribute {name!r} must be a str, int, float, bool, datetime or a list of str, "
                f"not {type(value).__name__}"
            )


def read_value(stored: StoredAttribute) -> AttributeValue:
    """The value of a stored attribute; `ValueError` if its keys are not of its type."""
    keys = stored.keys
    if stored.type is AttributeType.TEXTS:
        return [] if keys == (EMPTY,) else [_of_class(key, TEXT_CLASS) for key in keys]
    if len(keys) != 1:
        raise ValueError(f"a value of type {stored.type} has one key, not {len(keys)}")
    [key] = keys
    match stored.type:
        case AttributeType.TEXT:
            return _of_class(key, TEXT_CLASS)
        case AttributeType.BOOL:
            return ("0", "1").index(_of_class(key, BOOL_CLASS)) == 1
        case AttributeType.DATETIME:
            return EPOCH + dt.timedelta(microseconds=_microseconds_of(key))
        case AttributeType.INT:
            nearest, rest = _number_of(key)
            return int(nearest) + rest
        case AttributeType.FLOAT:
            return _number_of(key)[0]


# ---------------------------------------------------------------- keys

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SIGN_BIT: Final = 1 << 63
_ALL_BITS: Final = (1 << 64) - 1
_REST_OFFSET: Final = 0x8000
_TIME_OFFSET: Final = 1 << 62
_NUMBER_DIGITS: Final = 16
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def text_key(text: str) -> str:
    return TEXT_CLASS + text


def bool_key(value: bool) -> str:
    return BOOL_CLASS + ("1" if value else "0")


def number_key(number: float) -> str:
    """The bits of the nearest float, so that they compare as the numbers do, and the difference from it.

    Rounding to the nearest float keeps the order, so of two integers with the same float the difference decides.
    """
    nearest = float(number)
    bits = int.from_bytes(struct.pack(">d", nearest + 0.0), "big")
    ordered = bits ^ (_ALL_BITS if bits & _SIGN_BIT else _SIGN_BIT)
    rest = number - int(nearest) if isinstance(number, int) else 0
    return f"{NUMBER_CLASS}{ordered:016x}{rest + _REST_OFFSET:04x}"


def time_key(microseconds: int) -> str:
    """The key of a time by the microseconds since 1970."""
    return f"{TIME_CLASS}{microseconds + _TIME_OFFSET:016x}"


def microseconds_of(moment: dt.datetime) -> int:
    """The microseconds between 1970 and a time that has a zone."""
    return (moment - EPOCH) // _MICROSECOND


def _number_of(key: str) -> tuple[float, int]:
    digits = _of_class(key, NUMBER_CLASS)
    ordered = int(digits[:_NUMBER_DIGITS], 16)
    bits = ordered ^ (_SIGN_BIT if ordered & _SIGN_BIT else _ALL_BITS)
    number: float = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    return number, int(digits[_NUMBER_DIGITS:], 16) - _REST_OFFSET


def _microseconds_of(key: str) -> int:
    return int(_of_class(key, TIME_CLASS), 16) - _TIME_OFFSET


def _of_class(key: str, kind: str) -> str:
    if not key.startswith(kind):
        raise ValueError(f"the key {key[:SHOWN]!a} does not begin with {kind!r}")
    return key.removeprefix(kind)


def _datetime_key(name: str, value: dt.datetime) -> str:
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidAttribute(
            f"the attribute {name!r} must have a time zone, such as datetime.UTC, and {value!r} has none"
        )
    return time_key(microseconds_of(value))


def _texts(name: str, values: Sequence[object]) -> tuple[str, ...]:
    """One key for each text; of equal texts the first."""
    if len(values) > MOST_TEXTS:
        raise InvalidAttribute(
            f"the attribute {name!r} is a list of {len(values):,} texts, and {MOST_TEXTS} are allowed"
        )
    keys: dict[str, None] = {}
    for value in values:
        if not isinstance(value, str):
            raise InvalidAttribute(f"the attribute {name!r} is a list of texts, and one is a {type(value).__name__}")
        keys[_checked_text_key(name, value)] = None
    return tuple(keys) or (EMPTY,)


def _checked_text_key(name: str, text: str) -> str:
    if "\0" in text:
        raise InvalidAttribute(f"the attribute {name!r} contains the character NUL, which not every store can hold")
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidAttribute(f"the attribute {name!r} contains half of a surrogate pair, which is no text") from None
    if length > LONGEST_TEXT_BYTES:
        raise InvalidAttribute(
            f"the attribute {name!r} is a text of {length:,} bytes, and {LONGEST_TEXT_BYTES:,} are allowed; longer "
            "values belong into the input, hf.state or the result"
        )
    return text_key(text)
