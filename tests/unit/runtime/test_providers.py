"""What is drawn by chance is drawn once."""

import os
import random  # noqa: TID251 - what a program may do with it

import pytest

from holdfast.runtime.providers import SEED_BITS, SystemProviders


def test_a_program_that_seeds_its_own_randomness_gets_other_seeds_all_the_same() -> None:
    drawn: set[int] = set()
    for _ in range(3):
        random.seed(1)
        drawn.add(SystemProviders().seed())
    assert len(drawn) == 3
    assert all(0 <= seed < 2**SEED_BITS for seed in drawn)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_W5_a_forked_process_draws_other_seeds_than_its_parent() -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(SystemProviders().seed()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(read, 100)) != SystemProviders().seed()
    os.close(read)
    os.close(write)
