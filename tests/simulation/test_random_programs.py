"""Random programs give the same result calm and with crashes, and the same commands when they are replayed."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulation.programs import program, value_of
from tests.simulation.sample import ACTIVITIES

from holdfast.testing.simulation.run import Job, simulate

numbers = st.integers(0, 50)
leaves: st.SearchStrategy[list[Any]] = st.one_of(
    st.tuples(st.sampled_from(["add", "flaky", "fail"]), numbers).map(list),
    st.tuples(st.just("sleep"), st.sampled_from([0, 0.01, 1, 300])).map(list),
)


def grow(children: st.SearchStrategy[list[Any]]) -> st.SearchStrategy[list[Any]]:
    several = st.lists(children, min_size=1, max_size=4)
    branches = st.tuples(st.sampled_from(["sequence", "gather", "group"]), several).map(
        lambda drawn: [drawn[0], *drawn[1]]
    )
    return branches | st.tuples(st.sampled_from(["within", "late"]), children).map(list)


trees = st.recursive(leaves, grow, max_leaves=8)


@settings(max_examples=60)
@given(trees, st.integers(0, 2**16), st.sampled_from([0, 1, 1_000]))
def test_G8_random_programs_end_as_the_oracle_says_calm_and_with_crashes(
    tree: list[Any], seed: int, cache_size: int
) -> None:
    job = Job("it", program, (tree,), value_of(tree))
    for crash_rate, max_crashes in ((0.0, 0), (0.15, 4)):
        report = simulate(
            seed, [job], ACTIVITIES, crash_rate=crash_rate, max_crashes=max_crashes, cache_size=cache_size
        )
        assert report.violations == []
