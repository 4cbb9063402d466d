"""The order of versions (R5), against a model that compares in words."""

from functools import cmp_to_key
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.versions import in_order, newest_version, version_key

NUMBERED = st.lists(st.integers(0, 12).map(str), min_size=1, max_size=3).map(".".join)
VERSIONS = st.one_of(
    NUMBERED,
    st.sampled_from(["", "beta", "1.beta", "v2", "1..2", ".", "1.", "01", "1.0", "\u0662", "2\u00b2"]),
    st.text(max_size=4),
)


def parts_of(version: str) -> list[int] | None:
    """The integers of a version whose parts are all digits."""
    parts = version.split(".")
    return [int(part) for part in parts] if all(part and set(part) <= set("0123456789") for part in parts) else None


def compare(one: str, other: str) -> int:
    """The rule, case by case."""
    if one == other:
        return 0
    if "" in (one, other):
        return -1 if one == "" else 1
    mine, theirs = parts_of(one), parts_of(other)
    if (mine is None) != (theirs is None):
        return -1 if mine is None else 1
    if mine is not None and theirs is not None and mine != theirs:
        return -1 if mine < theirs else 1
    return -1 if one < other else 1


@given(st.lists(VERSIONS, min_size=1, max_size=6, unique=True))
def test_R5_versions_are_ordered_as_the_rule_says(versions: list[str]) -> None:
    expected = sorted(versions, key=cmp_to_key(compare))
    assert in_order(versions) == expected
    assert newest_version(versions) == expected[-1]


@given(VERSIONS, VERSIONS)
def test_R5_the_order_is_total(one: str, other: str) -> None:
    assert (version_key(one) == version_key(other)) == (one == other)


def test_R5_known_orders() -> None:
    ordered = ["", "10.beta", "beta", "v2", "01", "1", "1.0", "1.2", "1.10", "2", "10"]
    for shuffled in [ordered[::-1], ordered[3:] + ordered[:3], *list(permutations(ordered[-4:]))]:
        assert in_order(shuffled) == [version for version in ordered if version in shuffled]
