"""Digits, moves and completeness of the collation key. The fox is the design document's own example."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.core.collation import LEGAL_MOVES, CollationKey, Digit, Move
from holdfast.errors import CollationError, IllegalMove, MalformedKey, UnknownActivity

FOX = ["quick", "brown", "fox", "jumped", "slept", "ate"]
names = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=100, unique=True)


def test_K1_digits_stand_in_the_order_of_code_points_and_are_padded_to_fifteen() -> None:
    key = CollationKey.for_activities(FOX)
    assert key.roster.activities == ("ate", "brown", "fox", "jumped", "quick", "slept")
    assert str(key) == "999999000000000"
    assert CollationKey.for_activities(["é", "Z", "a", "_"]).roster.activities == ("Z", "_", "a", "é")


@pytest.mark.parametrize(("count", "length"), [(1, 15), (15, 15), (16, 30), (40, 45), (100, 105)])
def test_K1_larger_flows_have_more_words_of_fifteen(count: int, length: int) -> None:
    key = CollationKey.for_activities([f"a{number:03}" for number in range(count)])
    assert len(str(key)) == length
    assert str(key) == "9" * count + "0" * (length - count)


@given(names)
def test_K1_a_key_of_one_to_a_hundred_activities_reads_back_as_it_was_written(ids: list[str]) -> None:
    key = CollationKey.for_activities(ids)
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
    key = CollationKey.parse(f"6{digit}3", ["a", "b", "c"])
    if (digit, str(move)) in K2:
        assert key.move("b", move).unpadded == f"6{K2[digit, str(move)]}3"
    else:
        with pytest.raises(IllegalMove, match="'b'"):
            key.move("b", move)
    assert key.unpadded == f"6{digit}3"


def test_K2_two_completions_never_turn_completed_into_released() -> None:
    key = CollationKey.for_activities(["a"]).move("a", Move.START).move("a", Move.COMPLETE)
    with pytest.raises(IllegalMove, match="'a' is completed"):
        key.move("a", Move.COMPLETE)


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


def test_K7_the_fox_walks_through_the_documented_keys() -> None:
    key = CollationKey.for_activities(FOX).move("quick", Move.PASS_THROUGH)
    assert str(key) == "999969000000000"
    key = key.move("brown", Move.START).move("brown", Move.COMPLETE).move("fox", Move.START)
    assert str(key) == "968969000000000"
    key = key.move("fox", Move.COMPLETE)
    jumped = key.move("jumped", Move.START).move("slept", Move.SKIP).move("ate", Move.SKIP)
    assert str(jumped) == "366863000000000"
    assert str(jumped.move("jumped", Move.COMPLETE)) == "366663000000000"
    slept = key.move("jumped", Move.SKIP).move("slept", Move.START).move("slept", Move.COMPLETE)
    eating = slept.move("ate", Move.START)
    paused = eating.move("ate", Move.PAUSE)
    assert str(paused) == "566366000000000"
    assert str(paused.move("ate", Move.RELEASE)) == "466366000000000"
    assert str(eating.move("ate", Move.FAIL)) == "766366000000000"


def test_K8_a_cycle_takes_finished_digits_back_and_refuses_what_is_active() -> None:
    key = CollationKey.parse("3467968", list("abcdefg"))
    assert key.reset(["a", "b", "c", "d", "e"]).unpadded == "9999968"
    with pytest.raises(IllegalMove, match="'g' is started"):
        key.reset(["f", "g"])
    with pytest.raises(IllegalMove, match="paused"):
        CollationKey.parse("5", ["a"]).reset(["a"])


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
            CollationKey.for_activities(ids)
    with pytest.raises(UnknownActivity, match="no activity 'x'; there are a, b"):
        CollationKey.for_activities(["a", "b"]).move("x", Move.START)


class KeyAgainstADictionary(RuleBasedStateMachine):
    """The model is a dictionary of words; the key has to agree digit by digit, and refuse what K2 refuses."""

    @initialize(ids=names)
    def begin(self, ids: list[str]) -> None:
        self.key = CollationKey.for_activities(ids)
        self.model = dict.fromkeys(ids, 9)

    @rule(data=st.data(), move=st.sampled_from(Move), again=st.booleans())
    def move(self, data: st.DataObject, move: Move, again: bool) -> None:
        activity = data.draw(st.sampled_from(sorted(self.model)))
        for _ in range(2 if again else 1):
            expected = K2.get((self.model[activity], str(move)))
            try:
                self.key = self.key.move(activity, move)
            except IllegalMove:
                assert expected is None
            else:
                assert expected is not None
                self.model[activity] = expected

    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        members = data.draw(st.sets(st.sampled_from(sorted(self.model))))
        try:
            self.key = self.key.reset(members)
        except IllegalMove:
            assert {8, 5} & {self.model[member] for member in members}
        else:
            assert not {8, 5} & {self.model[member] for member in members}
            self.model.update(dict.fromkeys(members, 9))

    @invariant()
    def the_key_says_what_the_dictionary_says(self) -> None:
        assert {activity: int(digit) for activity, digit in self.key.digits.items()} == self.model
        assert self.key.is_complete == (not {9, 8, 5} & set(self.model.values()))
        assert all(isinstance(digit, Digit) for digit in self.key.digits.values())


TestKeyAgainstADictionary = KeyAgainstADictionary.TestCase
