"""Composite keys: children inside their parent's key (K6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.collation import CollationKey, Composite, compose, decompose
from holdfast.errors import MalformedKey


def test_K6_the_examples_of_the_document_compose_and_decompose() -> None:
    assert compose("999969000000000", {4: ["466366000000000"]}) == "99996146636629"
    assert decompose("99996146636629") == Composite("999969", {4: (Composite("466366", {}),)})
    assert compose("366366", {4: ["466366"]}) == "36636146636626"
    assert decompose("36636146636626") == Composite("366366", {4: (Composite("466366", {}),)})


def test_K6_keys_compose_as_they_are_and_several_children_follow_one_digit() -> None:
    key = CollationKey.parse("66", ["a", "b"])
    text = compose(key, {"a": ["6", compose("66", {1: ["3"]})]})
    assert text == "61621661322" + "6"
    assert str(decompose(text)) == text
    assert [child.digits for child in decompose(text).children[0]] == ["6", "66"]


def composites(depth: int) -> st.SearchStrategy[Composite]:
    def with_children(digits: str) -> st.SearchStrategy[Composite]:
        if not depth:
            return st.just(Composite(digits, {}))
        several = st.lists(composites(depth - 1), min_size=1, max_size=2).map(tuple)
        children = st.dictionaries(st.integers(0, len(digits) - 1), several, max_size=2)
        return children.map(lambda found: Composite(digits, found))

    return st.text("3456789", min_size=1, max_size=6).flatmap(with_children)


@given(composites(5))
def test_K6_decoding_is_unambiguous_five_deep(composite: Composite) -> None:
    text = str(composite)
    assert decompose(text) == composite
    assert "0" not in text
    assert text.count("1") == text.count("2")


@given(st.text("0123456789", max_size=30))
def test_K6_any_digits_are_either_a_composite_or_refused(text: str) -> None:
    try:
        composite = decompose(text)
    except MalformedKey:
        return
    assert str(composite) == text.rstrip("0")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no digit at place 1"),
        ("000", "no digit at place 1"),
        ("1662", "no activity awaited"),
        ("6162", None),
        ("612", "no digit at place 3"),
        ("616", "never closed"),
        ("662", "never opened"),
        ("6a", "'a' at digit 2"),
        ("61602", "'0' at digit 4"),
        ("61" * 300, "more than 100 deep"),
    ],
)
def test_a_text_that_is_no_composite_is_refused_at_its_place(text: str, reason: str | None) -> None:
    if reason is None:
        decompose(text)
    else:
        with pytest.raises(MalformedKey, match=reason):
            decompose(text)


def test_composing_checks_digits_positions_and_children() -> None:
    with pytest.raises(MalformedKey, match="must be a status"):
        compose("6126", {})
    for wrong in (2, -1):
        with pytest.raises(MalformedKey, match=f"no position {wrong}"):
            compose("66", {wrong: ["6"]})
    with pytest.raises(MalformedKey, match="no activity 'a'"):
        compose("66", {"a": ["6"]})
    with pytest.raises(MalformedKey, match="must be a status"):
        compose("", {})
    with pytest.raises(MalformedKey, match="never closed"):
        compose("66", {0: ["616"]})


def test_K6_what_can_be_composed_can_be_decomposed_however_deep() -> None:
    text = "6"
    for _ in range(100):
        text = compose("6", {0: [text]})
    assert str(decompose(text)) == text
    with pytest.raises(MalformedKey, match="more than 100 deep"):
        compose("6", {0: [text]})


@pytest.mark.parametrize("text", ["8890000000000000", "3666630000", "61620"])
def test_padding_that_fills_no_word_is_refused(text: str) -> None:
    with pytest.raises(MalformedKey, match="multiple of 15"):
        decompose(text)
