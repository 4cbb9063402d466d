"""Pydantic models, alone and inside other types."""

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pydantic
import pytest

from holdfast.errors import PayloadError
from holdfast.payloads import decode, encode


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
