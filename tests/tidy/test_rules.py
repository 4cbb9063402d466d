"""The rules of `docs/rules.md`: every citation names one, and every rule has a test that runs the engine."""

import pytest
from tools.citations import citations, engine_tests, in_text, rules

COUNTS = {"L": 15, "K": 11, "G": 19, "A": 15, "C": 15, "W": 11, "F": 10, "R": 39, "M": 6}
ELSEWHERE = {f"R{number}" for number in range(10, 14)}
"""Numbers that are reserved."""

WAITING: dict[str, str] = {}
"""Rules without a test of the engine, with the work that they wait for. The deltas of W3 wait for remote workers; its
other parts have tests."""


def test_the_page_has_every_rule_once_and_in_order() -> None:
    expected = [f"{letter}{number}" for letter, count in COUNTS.items() for number in range(1, count + 1)]
    assert list(rules()) == [rule for rule in expected if rule not in ELSEWHERE]


def test_every_citation_names_a_rule() -> None:
    known = rules()
    wrong = [f"{each.path}:{each.line} {each.rule}" for each in citations() if each.rule not in known]
    assert not wrong, "the rules are in docs/rules.md"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the fence (G1, L13).", ["G1", "L13"]),
        ("W1-W3, W5", ["W1", "W2", "W3", "W5"]),
        ("L1-12", [f"L{number}" for number in range(1, 13)]),
        ("# noqa: A002, C901, and B1, D5, 0xA1, A1b, W1.5, CLA1", []),
        (f"A{99}", [f"A{99}"]),
    ],
)
def test_a_citation_is_a_word_of_its_own(text: str, expected: list[str]) -> None:
    assert list(in_text(text)) == expected


@pytest.mark.parametrize("rule", [rule for rule in rules() if rule not in WAITING])
def test_a_rule_has_a_test_that_runs_the_engine(rule: str) -> None:
    assert engine_tests()[rule], f"no test of the engine has {rule} in its name"


def test_rules_that_wait_exist() -> None:
    assert WAITING.keys() <= rules().keys()
