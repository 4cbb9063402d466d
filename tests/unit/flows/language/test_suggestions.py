"""What was probably meant: found for ordinary mistakes, and bounded for files that are made to be slow."""

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import product

import pytest

from holdfast.flows.language import problems
from holdfast.flows.language.problems import (
    LONGEST_COMPARED,
    MOST_NAMES_COMPARED,
    MOST_NAMES_SCANNED,
    MOST_SUGGESTIONS,
    Problems,
)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often names were compared, cheaply and really, and the length of the longest."""
    counted: Counter[str] = Counter()

    class Counting(SequenceMatcher[str]):
        def set_seq1(self, a: Sequence[str]) -> None:
            counted["longest"] = max(counted["longest"], len(a))
            super().set_seq1(a)

        def quick_ratio(self) -> float:
            counted["cheap"] += 1
            return super().quick_ratio()

        def ratio(self) -> float:
            counted["real"] += 1
            return super().ratio()

    monkeypatch.setattr(problems, "SequenceMatcher", Counting)
    return counted


@pytest.mark.parametrize("length", [LONGEST_COMPARED, 100])
def test_a_thousand_long_repetitive_names_are_not_all_compared(work: Counter[str], length: int) -> None:
    endings = ["".join(letters) for letters in product("ab", repeat=10)][:1_000]
    known = {"ab" * (length // 2 - 5) + ending for ending in endings}
    found = Problems()
    suggestions = [found.closest("ba" * (length // 2), known) for _ in range(2 * MOST_SUGGESTIONS)]
    assert work["real"] <= MOST_SUGGESTIONS * MOST_NAMES_COMPARED
    assert work["cheap"] <= MOST_SUGGESTIONS * len(known)
    assert work["longest"] <= LONGEST_COMPARED
    assert not any(suggestions[MOST_SUGGESTIONS:])


def test_of_very_many_names_only_some_are_looked_at(work: Counter[str]) -> None:
    Problems().closest("name_99999x", {f"name_{number}" for number in range(10_000, 30_000)})
    assert work["cheap"] <= MOST_NAMES_SCANNED
    assert work["real"] <= MOST_NAMES_COMPARED


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("strat", "start"),
        ("shop.chrage", "shop.charge"),
        ("shopping.pakc", "shopping.pack"),
        ("Start", "start"),
        ("nothing_like_it", ""),
        ("", ""),
        ("x" * 1_000, ""),
    ],
)
def test_what_was_meant_is_found(word: str, meant: str) -> None:
    known = {"start", "shop.charge", "shop.change_of_address", "shopping.pack", "stop"}
    assert Problems().closest(word, known) == meant
