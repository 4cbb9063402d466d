"""Pydantic models, alone and inside other types."""

import datetime as dt
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import annotated_types
import pydantic
import pytest

from holdfast.errors import AnnotationError, ArgumentError, PayloadError
from holdfast.payloads.encoding import decode, encode
from holdfast.payloads.signature import Signature


class Line(pydantic.BaseModel):
    price: Decimal
    at: dt.datetime | None = None
    weight: float | None = None


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    day: dt.date
    kind: str = pydantic.Field(alias="type")


@dataclass
class Basket:
    first: Line
    others: list[Line]
    named: dict[str, Line]


LINE = Line(price=Decimal("1.50"), at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (LINE, Line),
        ([LINE], list[Line]),
        (None, Line | None),
        ({"a": LINE}, dict[str, Line]),
        (Basket(LINE, [LINE], {"x": LINE}), Basket),
        (Strict(day=dt.date(2026, 1, 1), type="a"), Strict),
        (LINE, Line | Strict),
        (3, Line | int),
    ],
)
def test_a_model_comes_back_equal(value: Any, annotation: Any) -> None:
    assert decode(encode(value, annotation), annotation) == value


def test_a_mistyped_field_is_named_without_its_value() -> None:
    with pytest.raises(PayloadError) as caught:
        decode(b'[{"price":"1"},{"price":"secret"}]', list[Line])
    assert "field `price`" in str(caught.value)
    assert "$[1]" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "annotation", "path"),
    [
        (Basket(LINE, [Line(price=Decimal(1), weight=math.nan)], {}), Basket, "$.others[0]"),
        ([LINE, 3], list[Line], "$[1]"),
        ({"a": LINE}, Any, "$.a"),
        (type("Child", (Line,), {})(price=Decimal(1)), Line, "$"),
    ],
)
def test_a_model_that_would_change_is_refused(value: Any, annotation: Any, path: str) -> None:
    with pytest.raises(PayloadError) as caught:
        encode(value, annotation)
    assert f"at `{path}`" in str(caught.value)


def constrained(
    cents: Annotated[int, pydantic.Field(gt=0, le=100)],
    names: list[Annotated[str, pydantic.Field(min_length=2, pattern="^a")]] | None = None,
    share: Annotated[float, annotated_types.Interval(ge=0, lt=1)] = 0.5,
    note: Annotated[str, "of the sender", pydantic.Field(description="anything")] = "",
) -> Annotated[int, pydantic.Field(lt=5)]:
    del cents, names, share, note
    return 1


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"cents": 0}, "cents"),
        ({"cents": 101}, "cents"),
        ({"cents": 1, "names": ["ab", "b"]}, "names"),
        ({"cents": 1, "names": ["bb"]}, "names"),
        ({"cents": 1, "share": 1.0}, "share"),
        ({"cents": 1, "names": ["ab"], "share": 0.25, "note": "x"}, ""),
    ],
)
def test_constraints_of_a_parameter_are_checked_by_the_sender_and_by_the_receiver(
    given: dict[str, Any], wrong: str
) -> None:
    signature = Signature(constrained)
    if not wrong:
        assert signature.decode_arguments(signature.encode_arguments((), given)) == ((1, ["ab"], 0.25, "x"), {})
        return
    with pytest.raises(ArgumentError, match=f"argument `{wrong}`"):
        signature.encode_arguments((), given)
    with pytest.raises(ArgumentError, match=f"argument `{wrong}`"):
        signature.decode_arguments(json.dumps(given).encode())


def test_a_constraint_of_the_result_is_checked() -> None:
    with pytest.raises(PayloadError, match="<= 4"):
        Signature(constrained).encode_result(5)


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[int, pydantic.Field(strict=True)],
        Annotated[int, pydantic.AfterValidator(abs)],
        list[Annotated[int, annotated_types.Predicate(bool)]],
    ],
)
def test_a_constraint_that_cannot_be_checked_is_refused(annotation: Any) -> None:
    with pytest.raises(AnnotationError, match="not checked for a single parameter"):
        encode(3, annotation)


def test_a_field_as_the_default_of_a_parameter_is_refused() -> None:
    def takes(cents: int = pydantic.Field(gt=0)) -> None: ...

    with pytest.raises(AnnotationError, match=r"write `cents: Annotated\[TYPE, Field"):
        Signature(takes)
