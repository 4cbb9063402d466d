"""Values to JSON and back: what is accepted comes back equal; the rest is refused with a path."""

import datetime as dt
import enum
import math
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
)

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import AnnotationError, PayloadError
from holdfast.payloads.encoding import decode, encode, payload_type
from holdfast.payloads.limits import MAX_DEPTH, MAX_INTEGER_DIGITS

T = TypeVar("T")
Cents = NewType("Cents", int)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Item:
    name: str
    price: float
    count: int = 1


@dataclass
class Order:
    items: list[Item]
    note: str | None = None
    extra: Any = None


@dataclass
class Node:
    value: int
    children: "list[Node]" = field(default_factory=list["Node"])


@dataclass(eq=False)
class WithoutEquality:
    number: int
    maybe: float | None = None


@dataclass
class SpecialItem(Item):
    colour: Colour = Colour.RED


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class Approved:
    by: str


@dataclass
class Rejected:
    by: str
    reason: str = ""


class Point(NamedTuple):
    x: int
    y: int = 0


class Options(TypedDict):
    name: str
    size: NotRequired[int]


class Circle(msgspec.Struct, tag=True):
    radius: float


class Square(msgspec.Struct, tag=True):
    side: float


MOMENT = dt.datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=dt.UTC)
ROUND_TRIPS: list[tuple[Any, Any]] = [
    (None, None),
    (None, Any),
    (True, bool),
    (7, int),
    (-(2**70), int),
    (10**4000, int),
    (1.5, float),
    (-0.0, float),
    (3, float),
    ("héllo \U0001f600 \\u0000", str),
    (b"\x00\xff", bytes),
    (Colour.BLUE, Colour),
    (Level.HIGH, Level),
    (uuid.UUID(int=5), uuid.UUID),
    (MOMENT, dt.datetime),
    (dt.datetime(2026, 1, 1), dt.datetime),  # noqa: DTZ001  naive ones stay naive
    (MOMENT.date(), dt.date),
    (MOMENT.time(), dt.time),
    (dt.timedelta(days=-3, microseconds=1), dt.timedelta),
    (Decimal("1.50"), Decimal),
    ((1, "a"), tuple[int, str]),
    ((1, 2, 3), tuple[int, ...]),
    ({1, 2}, set[int]),
    (frozenset({"a"}), frozenset[str]),
    ([1, None], list[int | None]),
    (None, Optional[int]),  # noqa: UP045  the old spelling is still written
    ("a", int | str),
    ("on", Literal["on", "off"]),
    ({1: "a"}, dict[int, str]),
    ({uuid.UUID(int=1): 1}, dict[uuid.UUID, int]),
    ({Colour.RED: 1}, dict[Colour, int]),
    ({Level.LOW: 1}, dict[Level, int]),
    ({"a": [1, 2.5, {"b": None}]}, Any),
    ({"a": 1}, Mapping[str, int]),
    ([1], Sequence[int]),
    (Order([Item("a", 1.0)], "n", {"k": [1]}), Order),
    (Node(1, [Node(2, [Node(3)])]), Node),
    (Box(MOMENT), Box[dt.datetime]),
    (Box([1]), Box[list[int]]),
    (Point(1, 2), Point),
    ({"name": "a"}, Options),
    ({"name": "a", "size": 3}, Options),
    (Circle(1.0), Circle | Square),
    (Cents(5), Cents),
    (5, Annotated[int, msgspec.Meta(ge=0)]),
    (Approved("me"), Approved | Rejected),
    (Rejected("me"), Approved | Rejected),
    (None, Approved | Rejected | None),
    ("2026-01-01", str | dt.date),
    (dt.date(2026, 1, 1), str | dt.date),
]


@pytest.mark.parametrize(("value", "annotation"), ROUND_TRIPS)
def test_a_value_comes_back_equal_and_of_its_annotated_type(value: Any, annotation: Any) -> None:
    back = decode(encode(value, annotation), annotation)
    assert back == value
    assert type(back) is (float if annotation is float else type(value))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def cyclic() -> Any:
    value: dict[str, Any] = {}
    value["self"] = [value]
    return value


REFUSED: list[tuple[Any, Any, str, str]] = [
    (math.nan, float, "$", "nan"),
    (math.inf, Any, "$", "inf"),
    ({"a": [1, -math.inf]}, Any, "$.a[1]", "-inf"),
    (math.nan, float | None, "$", "nan"),
    (Order([Item("a", 1), Item("b", math.nan)]), Order, "$.items[1].price", "nan"),
    (Order([Item("a", "x")]), Order, "$.items[0].price", "str"),  # type: ignore[arg-type]  # the point of it
    (WithoutEquality(1, math.nan), WithoutEquality, "$.maybe", "nan"),
    (Decimal("NaN"), Decimal, "$", "NaN"),
    ("x", int, "$", "str"),
    (True, int, "$", "bool"),
    (1, str, "$", "int"),
    (1.0, int, "$", "float"),
    (2**53 + 1, float, "$", "exactly"),
    (None, int, "$", "None"),
    ({1: 2}, Any, "$[<int>]", "key of type int"),
    ({1: 2}, dict, "$[<int>]", "key of type int"),
    ({"a": {None: 2}}, Any, "$.a[<NoneType>]", "key of type None"),
    ({"x": 1}, dict[int, int], "$.x", "str"),
    ({1, 2}, Any, "$", "set"),
    ({"a": (1, 2)}, Any, "$.a", "tuple"),
    ({1, 2}, list[int], "$", "set"),
    ([(1, 2)], list, "$[0]", "tuple"),
    ([1, "a"], list[int], "$[1]", "str"),
    ((1, 2, 3), tuple[int, int], "$", "length 3"),
    (b"x", Any, "$", "bytes"),
    (MOMENT, Any, "$", "datetime"),
    (MOMENT, dt.date, "$", "datetime"),
    (Item("a", 1), Any, "$", "Item"),
    (Order([], extra=[object()]), Order, "$.extra[0]", "object"),
    (SpecialItem("a", 1), Item, "$", "subclass"),
    (Point(1, "x"), Point, "$.y", "str"),  # type: ignore[arg-type]  # the point of it
    ({"name": "a", "sise": 1}, Options, "$.sise", "does not have"),
    ({"size": 1}, Options, "$.name", "nothing"),
    (object(), Any, "$", "object"),
    (lambda: 1, Any, "$", "function"),
    ([range(3)], Any, "$[0]", "range"),
    (10**MAX_INTEGER_DIGITS, int, "$", "digits"),
    ([-(10**MAX_INTEGER_DIGITS)], Any, "$[0]", "digits"),
    ([10**20_000], Any, "$[0]", "digits"),
    (cyclic(), Any, "$.self[0]", "contains itself"),
    ("a\ud800", str, "$", "surrogate"),
    ({"\udc00": 1}, Any, "$['\\udc00']", "surrogate"),
    ({"a": "b\0"}, Any, "$.a", "NUL"),
    (nested(MAX_DEPTH + 1), Any, "[0]", "deeper"),
    ("off?", Literal["on", "off"], "$", "str"),
    (Box("x"), Box[int], "$.content", "str"),
    (Approved(1), Approved | Rejected, "$.by", "int"),  # type: ignore[arg-type]  # the point of it
    (3, Approved | Rejected, "$", "int"),
]


@pytest.mark.parametrize(("value", "annotation", "path", "found"), REFUSED)
def test_what_would_not_come_back_is_refused_with_path_and_type(
    value: Any, annotation: Any, path: str, found: str
) -> None:
    with pytest.raises(PayloadError) as caught:
        encode(value, annotation, what="the result")
    message = str(caught.value)
    assert message.startswith("the result cannot be stored as JSON: at `$")
    assert f"{path}`" in message
    assert found in message
    assert "expected" in message


def test_the_deepest_value_that_is_allowed_is_accepted_with_brackets_in_its_strings() -> None:
    value = nested(MAX_DEPTH - 1)
    assert decode(encode([value, '[[[["\\' * 50])) == [value, '[[[["\\' * 50]


def test_the_longest_integer_that_is_allowed_is_accepted() -> None:
    value = -(10**MAX_INTEGER_DIGITS) + 1
    assert decode(encode(value, int), int) == value
    assert decode(encode("1" * 5000, str), str) == "1" * 5000


def test_a_class_without_equality_is_accepted_when_its_fields_fit() -> None:
    assert decode(encode(WithoutEquality(1), WithoutEquality), WithoutEquality).number == 1


def test_a_tuple_may_stand_for_a_list_and_arrives_as_annotated() -> None:
    assert decode(encode((1, 2), list[int]), list[int]) == [1, 2]
    assert decode(encode([1, 2], tuple[int, ...]), tuple[int, ...]) == (1, 2)
    assert decode(encode(frozenset({1}), set[int]), set[int]) == {1}


def test_none_and_nothing_are_told_apart() -> None:
    assert encode(None) == b"null"
    assert decode(b"null") is None
    with pytest.raises(PayloadError, match="empty"):
        decode(b"")


@pytest.mark.parametrize(
    ("data", "annotation", "part"),
    [
        (b'{"items":[{"name":"a","price":1},{"name":"b","price":"x"}]}', Order, "$.items[1].price"),
        (b'{"items":[{"name":"a"}]}', Order, "price` - at `$.items[0]`"),
        (b'"x"', int, "Expected `int`, got `str` - at `$`"),
        (b"1e400", Any, "out of range"),
        (b"[1", Any, "truncated"),
        (b'"\xff"', str, "not valid UTF-8"),
        (b"\x80\x04\x95", Any, "malformed"),
        (b"[" * 100_000, Any, "nested too deep"),
        (b'{"by":"me"}', Approved | Rejected, "2 members"),
        (b"3", Approved | Rejected, "no member"),
    ],
)
def test_json_that_does_not_fit_is_refused_with_field_and_path(data: bytes, annotation: Any, part: str) -> None:
    with pytest.raises(PayloadError) as caught:
        decode(data, annotation, what="the input")
    assert str(caught.value).startswith("the input cannot be read: ")
    assert part in str(caught.value)


def test_a_bare_value_of_a_tagged_union_is_read_when_only_one_member_fits() -> None:
    assert decode(b'"2026-13-01"', str | dt.date) == "2026-13-01"
    either: Any = Approved | list[int] | Box[str] | None | bool | dict[str, float]
    assert decode(b'{"radius":1}', either) == {"radius": 1}


@pytest.mark.parametrize("annotation", [complex, list[complex], "Missing", Sequence[type], 3, dict[str, range]])
def test_a_type_that_cannot_be_stored_is_refused_when_it_is_first_seen(annotation: Any) -> None:
    with pytest.raises(AnnotationError):
        payload_type(annotation)


def test_a_type_is_worked_out_once() -> None:
    assert payload_type(list[Item]) is payload_type(list[Item])
    assert payload_type(Literal[1]) is not payload_type(Literal[True])


def test_an_annotation_that_cannot_be_hashed_still_works() -> None:
    assert decode(encode(1, Annotated[int, ["note"]]), Annotated[int, ["note"]]) == 1


def test_an_error_in_user_code_is_reported_as_a_payload_error() -> None:
    @dataclass
    class Strict:
        number: int

        def __post_init__(self) -> None:
            if self.number < 0:
                raise KeyError("negative")

    with pytest.raises(PayloadError, match="KeyError"):
        decode(b'{"number":-1}', Strict)


def test_pydantic_is_not_imported_by_holdfast() -> None:
    program = "import sys, holdfast.payloads.encoding as p; p.encode(1, int); sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


plain_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('ab"\\[{é', max_size=3), inner),
    max_leaves=20,
)


@given(plain_json)
def test_any_plain_json_comes_back_equal(value: Any) -> None:
    assert decode(encode(value)) == value


@given(st.dictionaries(st.integers(), st.sets(st.decimals(allow_nan=False, allow_infinity=False))))
def test_keys_and_sets_come_back_by_their_annotation(value: dict[int, set[Decimal]]) -> None:
    assert decode(encode(value, dict[int, set[Decimal]]), dict[int, set[Decimal]]) == value


@given(st.datetimes(timezones=st.just(dt.UTC)), st.timedeltas(dt.timedelta(-10_000), dt.timedelta(10_000)))
def test_times_come_back_to_the_microsecond(moment: dt.datetime, span: dt.timedelta) -> None:
    annotation = tuple[dt.datetime, dt.timedelta]
    assert decode(encode((moment, span), annotation), annotation) == (moment, span)


@given(st.recursive(plain_json | st.floats(), lambda inner: st.lists(inner) | st.tuples(inner), max_leaves=10))
def test_a_value_is_accepted_only_if_it_comes_back_equal(value: Any) -> None:
    try:
        data = encode(value)
    except PayloadError:
        return
    assert decode(data) == value


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (dict[int | str, str], {1: "a", "1": "b"}),
        (dict[float | str, str], {"1.5": "a", 1.5: "b"}),
        (list[dict[int | str, int]], [{"x": 1, 7: 2, "7": 3}]),
    ],
)
def test_keys_that_are_one_key_in_json_are_refused(annotation: Any, value: Any) -> None:
    with pytest.raises(
        PayloadError, match=r"expected keys that differ in JSON, found a second .*; use keys of one type"
    ):
        encode(value, annotation)


def test_keys_of_a_union_that_differ_in_json_are_stored() -> None:
    assert encode({1: "a", "b": "c"}, dict[int | str, str]) == b'{"1":"a","b":"c"}'
