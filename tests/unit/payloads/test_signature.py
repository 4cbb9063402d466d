"""Calls as payloads: bound, typed, and back."""

import datetime as dt
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Never, NoReturn, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import AnnotationError, ArgumentError, PayloadError
from holdfast.payloads.signature import Signature, input_hash

NOT_JSON = object()


@dataclass
class Order:
    card: str
    cents: int


@dataclass(frozen=True)
class Point:
    x: int


class Untagged(msgspec.Struct):
    either: Order | Point


async def charge(card: str, cents: int) -> str:
    return f"{card}{cents}"


async def ship(order: Order, /, when: dt.date, *, fast: bool = False, tag: Any = NOT_JSON) -> Order | None: ...


def optional(first: int, second: int | None = 2, third: int = 3) -> tuple[int, ...]:
    return (first, second or 0, third)


async def tokens(topic: str) -> AsyncIterator[dt.date]:
    yield dt.date(2026, 1, len(topic))


async def generated() -> AsyncGenerator[tuple[int, str], None]:
    yield (1, "a")


def items() -> Iterator[int]:
    yield 1


def make_bare() -> Any:
    def bare(anything: Any, other: Any = None) -> Any:
        return anything, other

    bare.__annotations__.clear()
    return bare


bare = make_bare()


async def no_arguments() -> None: ...


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "data"),
    [
        (no_arguments, (), {}, b"{}"),
        (charge, ("42", 7), {}, b'{"card":"42","cents":7}'),
        (charge, ("42",), {"cents": 7}, b'{"card":"42","cents":7}'),
        (charge, (), {"cents": 7, "card": "42"}, b'{"card":"42","cents":7}'),
        (optional, (1,), {}, b'{"first":1}'),
        (optional, (1, None), {}, b'{"first":1,"second":null}'),
        (optional, (1,), {"third": 5}, b'{"first":1,"third":5}'),
        (bare, ({"a": [1]},), {}, b'{"anything":{"a":[1]}}'),
        (
            ship,
            (Order("42", 7), dt.date(2026, 1, 2)),
            {"fast": True},
            b'{"order":{"card":"42","cents":7},"when":"2026-01-02","fast":true}',
        ),
    ],
)
def test_arguments_are_stored_by_name_and_come_back_typed(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], data: bytes
) -> None:
    signature = Signature.of(function)
    assert signature.encode_arguments(args, kwargs) == data
    again_args, again_kwargs = signature.decode_arguments(data)
    assert signature._signature.bind(*again_args, **again_kwargs) == signature._signature.bind(*args, **kwargs)


def test_an_argument_left_out_stays_out_and_none_does_not() -> None:
    signature = Signature.of(optional)
    args, kwargs = signature.decode_arguments(b'{"first":1}')
    assert optional(*args, **kwargs) == (1, 2, 3)
    args, kwargs = signature.decode_arguments(b'{"first":1,"second":null}')
    assert optional(*args, **kwargs) == (1, 0, 3)
    assert input_hash(b'{"first":1}') != input_hash(b'{"first":1,"second":null}')


@given(st.text("ab"), st.integers())
def test_the_same_call_has_the_same_hash_however_it_was_written(card: str, cents: int) -> None:
    signature = Signature.of(charge)
    by_position = signature.encode_arguments((card, cents))
    by_name = signature.encode_arguments((), {"cents": cents, "card": card})
    by_hand = signature.normalise(f' ["{card}", {cents}]'.encode())
    assert input_hash(by_position) == input_hash(by_name) == input_hash(by_hand)


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "parts"),
    [
        (charge, ("42",), {}, ("charge", "missing", "cents")),
        (charge, ("42", 1, 2), {}, ("charge", "too many")),
        (charge, ("42", 1), {"cent": 2}, ("charge", "cent")),
        (charge, ("42",), {"cent": 2}, ("charge() has no argument 'cent' (did you mean cents?)", "card, cents")),
        (charge, ("42", 1), {"cents": 2}, ("charge", "multiple values", "cents")),
        (charge, (42, 1), {}, ("charge()", "argument `card`", "expected str, found int")),
        (charge, ("42", float("nan")), {}, ("charge()", "argument `cents`", "found float")),
        (
            ship,
            (Order("4", cast("int", "x")), dt.date(2026, 1, 1)),
            {},
            ("ship()", "`order`", "`$.cents`", "found str"),
        ),
        (charge, (), {"card": "4", "cents": "x"}, ("charge()", "`cents`", "found str")),
        (bare, ({1, 2},), {}, ("bare()", "`anything`", "found set")),
    ],
)
def test_wrong_arguments_are_refused_with_function_and_argument(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], parts: tuple[str, ...]
) -> None:
    with pytest.raises(ArgumentError) as caught:
        Signature.of(function).encode_arguments(args, kwargs)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("function", "data", "parts"),
    [
        (charge, b'{"card":"4"}', ("charge()", "`cents`", "missing")),
        (charge, b'{"card":"4","cents":1,"tip":2}', ("charge", "no argument 'tip'")),
        (charge, b'{"card":"4","cents":"x"}', ("charge()", "`cents`", "Expected `int`, got `str`")),
        (ship, b'{"order":{"card":"4","cents":"x"},"when":"2026-01-01"}', ("`order`", "`$.cents`")),
        (charge, b'["4",1,2]', ("charge", "takes 2", "not 3")),
        (charge, b"3", ("charge()", "object by name")),
        (charge, b"", ("charge()", "object by name")),
        (charge, b"\x80\x04\x95", ("charge()", "object by name")),
        (charge, b'{"card":"\xff","cents":1}', ("charge()",)),
    ],
)
def test_a_payload_that_does_not_fit_the_function_is_refused(
    function: Any, data: bytes, parts: tuple[str, ...]
) -> None:
    with pytest.raises(ArgumentError) as caught:
        Signature.of(function).decode_arguments(data)
    for part in parts:
        assert part in str(caught.value)


def test_a_positional_argument_after_one_left_out_is_refused() -> None:
    def function(first: int = 1, second: int = 2, /) -> None: ...

    with pytest.raises(ArgumentError, match="`second` is positional"):
        Signature.of(function).decode_arguments(b'{"second":3}')


def texts() -> str:
    return ""


def integers() -> int:
    return 0


@given(st.text(max_size=20) | st.sampled_from(["\\u0000", "a\0b", "\0", "\\\0", "x" * 200_000]))
def test_a_short_text_is_stored_and_refused_as_any_other(value: str) -> None:
    """Results of type str or int are not compared after encoding."""
    kept, quick = Signature.of(lambda: None), Signature.of(texts)
    if "\0" in value:
        with pytest.raises(PayloadError, match="NUL"):
            quick.encode_result(value)
    else:
        assert quick.encode_result(value) == kept.encode_result(value)
        assert quick.decode_result(quick.encode_result(value)) == value


@given(st.integers() | st.sampled_from([2**63, 2**64, -(2**63), 10**30]))
def test_an_integer_is_stored_as_any_other_value_and_nothing_else_passes_for_one(value: int) -> None:
    quick = Signature.of(integers)
    assert quick.encode_result(value) == str(value).encode()
    assert quick.decode_result(quick.encode_result(value)) == value
    for other in (True, "1", 1.5, None):
        with pytest.raises(PayloadError):
            quick.encode_result(other)


def test_results_are_typed_by_the_return_annotation() -> None:
    signature = Signature.of(optional)
    assert signature.decode_result(signature.encode_result((1, 2))) == (1, 2)
    with pytest.raises(PayloadError, match=r"the result of charge\(\).*expected str, found int"):
        Signature.of(charge).encode_result(3)
    with pytest.raises(PayloadError, match=r"the result of charge\(\) cannot be read"):
        Signature.of(charge).decode_result(b"3")
    assert Signature.of(no_arguments).encode_result(None) == b"null"


@pytest.mark.parametrize(("function", "item"), [(tokens, dt.date(2026, 1, 2)), (generated, (1, "a")), (items, 1)])
def test_the_result_of_a_generator_is_an_item(function: Any, item: Any) -> None:
    signature = Signature.of(function)
    assert signature.yields
    assert signature.decode_result(signature.encode_result(item)) == item


def test_a_generator_annotated_with_its_item_is_refused() -> None:
    async def wrong() -> AsyncIterator[str]:
        yield "a"

    wrong.__annotations__["return"] = str
    with pytest.raises(AnnotationError, match="AsyncIterator"):
        Signature.of(wrong)


def unresolvable(good: int, bad: int) -> None: ...


unresolvable.__annotations__["bad"] = "Nowhere"


def unstorable(good: int, bad: list[complex]) -> None: ...


def many(*numbers: int) -> None: ...


def named(**numbers: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (unresolvable, ("unresolvable()", "parameter `bad`", "Nowhere")),
        (unstorable, ("unstorable()", "parameter `bad`", "complex")),
        (many, ("many()", "*numbers", "list")),
        (named, ("named()", "**numbers", "dict")),
        (print, ("function or method",)),
    ],
)
def test_a_function_that_cannot_be_stored_is_refused_at_registration(function: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(AnnotationError) as caught:
        Signature.of(function)
    for part in parts:
        assert part in str(caught.value)


def test_a_method_is_bound_without_self() -> None:
    class Shop:
        async def sell(self, cents: int) -> int:
            return cents

    assert Signature.of(Shop().sell).encode_arguments((3,)) == b'{"cents":3}'


def test_an_annotation_of_a_closure_that_cannot_be_resolved_names_its_parameter() -> None:
    """As with ``from __future__ import annotations`` and a class that is defined inside a function."""
    captured = 3

    def takes(number: int, order: Any) -> int:
        del order
        return number + captured

    takes.__annotations__["order"] = "Missing"
    with pytest.raises(AnnotationError, match=r"annotation of parameter `order` cannot be resolved.*'Missing'.*module"):
        Signature(takes)


def test_a_function_that_never_returns_has_no_result() -> None:
    def refuses() -> NoReturn:
        raise LookupError

    async def never() -> Never:
        raise LookupError

    for function in (refuses, never):
        with pytest.raises(PayloadError, match="expected None, found int"):
            Signature(function).encode_result(7)


@pytest.mark.parametrize(
    ("annotation", "hint"),
    [
        (Untagged, "tag=True"),
        (list[Untagged], "tag=True"),
        (Annotated[list[Order | Point], msgspec.Meta(min_length=1)], "tag=True"),
        (complex, "use a dataclass"),
        (list[NoReturn], "use a dataclass"),
        (dict[tuple[int, int], str], "keys of type tuple.*list of pairs"),
        (list[dict[Point, str]], "keys of type Point.*list of pairs"),
        (dict[str | None, int], "keys of type None.*list of pairs"),
        (dict[bool, int], "keys of type bool.*list of pairs"),
    ],
)
def test_an_annotation_that_cannot_be_stored_is_refused_with_a_hint_that_fits(annotation: Any, hint: str) -> None:
    def takes(value: Any) -> None: ...

    takes.__annotations__["value"] = annotation
    with pytest.raises(AnnotationError, match=hint) as refused:
        Signature(takes)
    assert str(refused.value).startswith(f"{takes.__qualname__}(): parameter `value`: ")
    assert ("union" in str(refused.value)) == (hint == "tag=True")


def test_keys_that_no_annotation_allows_are_refused_with_another_remedy() -> None:
    with pytest.raises(ArgumentError, match="found a key of type tuple; use a list of pairs, or use str keys"):
        Signature(make_bare()).encode_arguments(({(1, 2): "x"},))
    with pytest.raises(ArgumentError, match="found a key of type int; annotate the dict with its key type"):
        Signature(make_bare()).encode_arguments(({1: "x"},))


def test_arguments_with_unions_inside_come_back_typed_also_without_names() -> None:
    def function(either: Order | Point, several: list[Order | Point] | None = None) -> None: ...

    signature = Signature.of(function)
    data = b'{"either":{"x":1},"several":[{"card":"42","cents":7}]}'
    assert signature.decode_arguments(data) == ((Point(1), [Order("42", 7)]), {})
    assert signature.decode_arguments(b'{"either":{"x":1},"several":null}') == ((Point(1), None), {})
    with pytest.raises(ArgumentError, match="argument `either` cannot be read: no member"):
        signature.decode_arguments(b'{"either":{"y":1}}')


@pytest.mark.parametrize(
    ("annotation", "data", "value"),
    [
        (bytes, b'"AAE="', b"\0\1"),
        (bytearray, b'"AAE="', b"\0\1"),
        (bytes | None, b'"AAE="', b"\0\1"),
        (bytes | None, b"null", None),
        (Annotated[bytes, msgspec.Meta(max_length=9)], b'"AAE="', b"\0\1"),
        (Annotated[bytes | None, msgspec.Meta(description="an image")], b'"AAE="', b"\0\1"),
        (str, b'"AAE="', None),
        (Any, b'"AAE="', None),
        (list[bytes], b'["AAE="]', None),
        (Order, b'{"card":"42","cents":7}', None),
        (Order | Point, b'{"$type":"Point","value":{"x":1}}', None),
    ],
)
def test_only_a_result_that_is_bytes_is_decoded_for_its_size(annotation: Any, data: bytes, value: Any) -> None:
    def function() -> Any: ...

    function.__annotations__["return"] = annotation
    assert Signature.of(function).decode_bytes(data) == value
