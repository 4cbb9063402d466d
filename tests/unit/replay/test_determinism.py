"""A program with the same order of timers takes the same steps: twice here, and on every Python (G10)."""

import os
import random  # noqa: TID251 - orders of firing are made from seeds
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.interpreters import interpreter
from tests.unit.replay import programs

FIRST_SEED = 0
SEEDS = 3000
OTHER_PYTHONS = [minor for minor in ("3.11", "3.12", "3.13", "3.14") if minor != "{}.{}".format(*sys.version_info)]

timeouts = st.none() | st.integers(0, 3)
leaves = st.tuples(st.sampled_from(programs.LEAVES), st.integers(0, 3))


def _branch(kind: str, timeout: int | None, members: list[programs.Program]) -> programs.Program:
    return (kind, timeout, *members)


def _grow(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    members = st.lists(children, max_size=4)
    branches = st.builds(_branch, st.sampled_from(programs.BRANCHES), timeouts, members)
    return branches | st.tuples(st.sampled_from(programs.WRAPPERS), timeouts, children)


@given(program=st.recursive(leaves, _grow, max_leaves=25), seed=st.integers(0, 2**32))
def test_G10_a_program_takes_the_same_steps_when_it_is_run_again(program: Any, seed: int) -> None:
    first = programs.trace_of(program, random.Random(seed))  # noqa: S311
    litter = [object() for _ in range(seed % 97)]  # The second run finds other addresses.
    second = programs.trace_of(program, random.Random(seed))  # noqa: S311
    # Only the first difference is shown: a full comparison of two long traces would take minutes.
    different = [pair for pair in zip_longest(first, second) if pair[0] != pair[1]]
    assert different[:1] == []
    del litter


@pytest.mark.slow
@pytest.mark.parametrize("minor", OTHER_PYTHONS)
def test_G10_programs_take_the_same_steps_on_another_python(minor: str) -> None:
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"python{minor} is not installed here")
    root = Path(__file__).parents[3]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}",
        "PYTHONHASHSEED": "random",
    }
    done = subprocess.run(
        [python, "-W", "error", programs.__file__, str(FIRST_SEED), str(SEEDS)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    theirs = dict(line.split() for line in done.stdout.splitlines())
    ours = {str(seed): programs.digest_of_seed(seed) for seed in range(FIRST_SEED, FIRST_SEED + SEEDS)}
    different = [seed for seed, digest in ours.items() if theirs[seed] != digest]
    assert different == [], f"these seeds differ on {python}; compare programs.trace_of_seed(seed)"
