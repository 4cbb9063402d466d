"""Digits, moves and completeness of the collation key. The fox is the design document's own example."""

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.collation import LEGAL_MOVES, ActivityOrder, CollationKey, Move
from holdfast.core.flow.graph import Graph, GraphEdge
from holdfast.core.flow.scheduler import FlowScheduler
from holdfast.errors import CollationError, IllegalMove, MalformedKey, UnknownActivity

FOX = ["quick", "brown", "fox", "jumped", "slept", "ate"]
PATHS = {9: "", 8: "start", 7: "start fail", 6: "start complete", 5: "start pause", 4: "start pause release", 3: "skip"}
"""The moves that take a pending activity to each digit."""
names = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=100, unique=True)


def fresh(ids: Iterable[str]) -> CollationKey:
    """The key of a flow before anything has happened."""
    order = ActivityOrder.of(ids)
    return CollationKey(order, "9" * len(order.activities))


def scheduler(*ids: str) -> FlowScheduler:
    """A flow of these activities, all after the trigger `0`, which is not counted."""
    return FlowScheduler(Graph.of("0", dict.fromkeys(("0", *ids), "all"), [GraphEdge("0", each) for each in ids]))


def test_K1_digits_stand_in_the_order_of_code_points_and_are_padded_to_fifteen() -> None:
    key = fresh(FOX)
    assert key.roster.activities == ("ate", "brown", "fox", "jumped", "quick", "slept")
    assert str(key) == "999999000000000"
    assert fresh(["é", "Z", "a", "_"]).roster.activities == ("Z", "_", "a", "é")


@pytest.mark.parametrize(("count", "length"), [(1, 15), (15, 15), (16, 30), (40, 45), (100, 105)])
def test_K1_larger_flows_have_more_words_of_fifteen(count: int, length: int) -> None:
    key = fresh([f"a{number:03}" for number in range(count)])
    assert len(str(key)) == length
    assert str(key) == "9" * count + "0" * (length - count)


@given(names)
def test_K1_a_key_of_one_to_a_hundred_activities_reads_back_as_it_was_written(ids: list[str]) -> None:
    key = fresh(ids)
    assert CollationKey.parse(str(key), ids) == key
    assert CollationKey.parse(key.unpadded, reversed(ids)) == key
    assert list(key.digits) == sorted(ids)


# Written out by hand from the rule, not taken from the table under test.
K2 = {
    (9, "start"): 8,
    (8, "complete"): 6,
    (8, "fail"): 7,
    (9, "pass_through"): 6,
    (8, "pause"): 5,
    (5, "release"): 4,
    (5, "time_out"): 7,
    (9, "skip"): 3,
    (9, "cancel"): 3,
    (8, "cancel"): 7,
    (5, "cancel"): 7,
}


@pytest.mark.parametrize(("digit", "move"), list(itertools.product(range(3, 10), Move)))
def test_K2_every_digit_and_move_is_legal_exactly_as_the_rule_says(digit: int, move: Move) -> None:
    progress = scheduler("a", "b", "c")
    for each in PATHS[digit].split():
        progress.move("b", Move(each))
    assert progress.key[:4] == f"99{digit}9"
    if (digit, str(move)) in K2:
        progress.move("b", move)
        assert progress.key[:4] == f"99{K2[digit, str(move)]}9"
    else:
        with pytest.raises(IllegalMove, match="'b'"):
            progress.move("b", move)
        assert progress.key[:4] == f"99{digit}9"


def test_K2_two_completions_never_turn_completed_into_released() -> None:
    progress = scheduler("a")
    progress.move("a", Move.START)
    progress.move("a", Move.COMPLETE)
    with pytest.raises(IllegalMove, match="'a' is completed"):
        progress.move("a", Move.COMPLETE)


def test_K2_the_table_has_no_other_edges() -> None:
    assert {(int(digit), str(move)): int(after) for (digit, move), after in LEGAL_MOVES.items()} == K2


@given(st.text("3456789", min_size=1, max_size=40))
def test_K5_a_key_is_complete_when_no_digit_is_nine_eight_or_five(digits: str) -> None:
    key = CollationKey.parse(digits, [f"a{at:02}" for at in range(len(digits))])
    assert key.is_complete == (set(digits) <= set("3467"))
    assert key.is_error == ("7" in digits)


@pytest.mark.parametrize(
    ("text", "complete", "error"),
    [
        ("999969000000000", False, False),
        ("968969000000000", False, False),
        ("366863000000000", False, False),
        ("366663000000000", True, False),
        ("566366000000000", False, False),
        ("466366000000000", True, False),
        ("766366000000000", True, True),
    ],
)
def test_K7_the_examples_of_the_document_read_as_it_says(text: str, complete: bool, error: bool) -> None:
    key = CollationKey.parse(text, FOX)
    assert (str(key), key.is_complete, key.is_error) == (text, complete, error)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "0"),
        ("99", "has 2"),
        ("9990", "has 4"),
        ("999100000000000", "0 must follow"),
        ("929000000000000", "'2', at 'b'"),
        ("909000000000000", "'0', at 'b'"),
        ("9x9000000000000", "'x', at 'b'"),
        ("٩٩٩000000000000", "at 'a'"),
    ],
)
def test_a_text_that_is_no_key_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(MalformedKey, match=reason):
        CollationKey.parse(text, ["a", "b", "c"])


def test_ids_must_be_there_and_different() -> None:
    for ids, reason in [([], "at least one"), (["a", ""], "empty"), (["b", "a", "b"], "'b' is there twice")]:
        with pytest.raises(CollationError, match=reason):
            fresh(ids)
    with pytest.raises(UnknownActivity, match="no activity 'x'; there are 0, a, b"):
        scheduler("a", "b").move("x", Move.START)
