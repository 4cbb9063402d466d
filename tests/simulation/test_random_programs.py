"""Random programs give the same result calm and with crashes, and the same commands when they are replayed."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulation.leaves import LEAVES, STREAMS
from tests.simulation.programs import jobs_of, named
from tests.simulation.sample import ACTIVITIES
from tests.support.examples import examples

from holdfast.testing.simulation.simulation import simulate

leaves: st.SearchStrategy[list[Any]] = st.tuples(st.sampled_from(sorted(LEAVES)), st.integers(0, 20)).map(list)


def grow(children: st.SearchStrategy[list[Any]]) -> st.SearchStrategy[list[Any]]:
    several = st.lists(children, min_size=1, max_size=4)
    branches = st.tuples(st.sampled_from(["sequence", "gather", "group"]), several).map(
        lambda drawn: [drawn[0], *drawn[1]]
    )
    families = st.tuples(st.sampled_from(["child", "orphan"]), st.lists(children, min_size=1, max_size=2)).map(
        lambda drawn: [drawn[0], "", *drawn[1]]
    )
    return branches | families | st.tuples(st.sampled_from(["within", "late"]), children).map(list)


EXAMPLES = examples(dev=10, ci=60, nightly=1_000)
"""Each is two simulated runs: few in `make check`, more in `make test`, many in `make nightly`."""

stories = st.lists(st.recursive(leaves, grow, max_leaves=8), min_size=1, max_size=3).map(named)


@settings(max_examples=EXAMPLES)
@given(stories, st.integers(0, 2**16), st.sampled_from([0, 1, 1_000]), st.booleans())
def test_G8_random_programs_end_as_the_oracle_says_calm_and_with_crashes(
    chapters: list[list[Any]], seed: int, cache_size: int, cancel: bool
) -> None:
    jobs = jobs_of(chapters, cancel=cancel)
    for crash_rate, max_crashes in ((0.0, 0), (0.15, 4)):
        report = simulate(
            seed, jobs, [*ACTIVITIES, *STREAMS], crash_rate=crash_rate, max_crashes=max_crashes, cache_size=cache_size
        )
        assert report.violations == []
