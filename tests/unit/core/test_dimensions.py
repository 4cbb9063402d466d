"""Dimensions of cycles and fan-outs (K8)."""

import pytest

from holdfast.core.collation import FIRST, Dimension, item_dimension, shown_place
from holdfast.errors import CollationError


def test_K8_a_fan_out_counts_its_items() -> None:
    assert FIRST == "0/0"
    assert item_dimension(Dimension("0/1"), 3) == "0/1:3/0"
    assert item_dimension(item_dimension(FIRST, 3), 0) == "0/0:3/0:0/0"


@pytest.mark.parametrize(
    ("dimension", "shown"),
    [("", "pack"), ("0/0", "pack"), ("0/2", "pack 0/2"), ("0/0:1/0", "pack[1]"), ("0/2:17/0", "pack[17] 0/2")],
)
def test_K8_an_item_is_shown_by_its_index_and_a_round_where_it_is_not_the_first(dimension: str, shown: str) -> None:
    assert shown_place("pack", dimension) == shown


@pytest.mark.parametrize("text", ["", "0", "0/", "a/0", "0/0:", "0/0:1", "-1/0", "0/0/0", "\u0660/\u0660"])
def test_what_is_no_dimension_is_refused(text: str) -> None:
    with pytest.raises(CollationError, match="is not a dimension"):
        item_dimension(Dimension(text), 0)


def test_items_count_from_zero() -> None:
    with pytest.raises(CollationError, match="from 0"):
        item_dimension(FIRST, -1)
