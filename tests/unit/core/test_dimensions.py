"""Dimensions of cycles and fan-outs (K8)."""

import pytest

from holdfast.core.collation import (
    FIRST,
    CollationKey,
    Dimension,
    Move,
    item_dimension,
    nearest,
    next_round,
    shown_place,
)
from holdfast.errors import CollationError


def test_K8_a_cycle_counts_its_rounds_and_a_fan_out_its_items() -> None:
    assert FIRST == "0/0"
    assert next_round(FIRST) == "0/1"
    assert next_round(next_round(FIRST)) == "0/2"
    assert item_dimension(next_round(FIRST), 3) == "0/1:3/0"
    assert next_round(item_dimension(FIRST, 3)) == "0/0:3/1"


@pytest.mark.parametrize(
    ("dimension", "shown"),
    [("", "pack"), ("0/0", "pack"), ("0/2", "pack 0/2"), ("0/0:1/0", "pack[1]"), ("0/2:17/0", "pack[17] 0/2")],
)
def test_K8_an_item_is_shown_by_its_index_and_a_round_where_it_is_not_the_first(dimension: str, shown: str) -> None:
    assert shown_place("pack", dimension) == shown


def test_K8_outputs_are_read_from_the_nearest_dimension() -> None:
    outputs = {Dimension("0/0"): "first", Dimension("0/2"): "third"}
    assert nearest(outputs, Dimension("0/2")) == "third"
    assert nearest(outputs, Dimension("0/1")) == "first"
    assert nearest(outputs, Dimension("0/9")) == "third"
    assert nearest(outputs, Dimension("0/1:4/0")) == "first", "an item sees the round it belongs to, not a later one"
    assert nearest({}, Dimension("0/1")) is None


def test_K8_items_of_a_fan_out_never_see_each_other() -> None:
    outputs = {Dimension("0/0:0/0"): "item 0", Dimension("0/0:1/0"): "item 1"}
    assert nearest(outputs, Dimension("0/0:1/0")) == "item 1"
    assert nearest(outputs, Dimension("0/0:2/0")) is None
    assert nearest(outputs, Dimension("0/0")) is None


def test_K8_a_fan_out_over_nothing_starts_and_completes() -> None:
    key = CollationKey.for_activities(["each"])
    assert key.move("each", Move.START).move("each", Move.COMPLETE).is_complete


@pytest.mark.parametrize("text", ["", "0", "0/", "a/0", "0/0:", "0/0:1", "-1/0", "0/0/0", "\u0660/\u0660"])
def test_what_is_no_dimension_is_refused(text: str) -> None:
    with pytest.raises(CollationError, match="is no dimension"):
        next_round(Dimension(text))


def test_items_count_from_zero() -> None:
    with pytest.raises(CollationError, match="from 0"):
        item_dimension(FIRST, -1)
