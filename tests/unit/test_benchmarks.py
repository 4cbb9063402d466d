"""The bare limit writes the store's own statements; this finds out at once when the two drift apart."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("sample", ["B1 bare", "B2 bare", "B1", "B2"])
def test_a_small_sample_of_a_benchmark_runs(sample: str) -> None:
    command = [sys.executable, "-m", "benchmarks", "--sample", sample, "--scale", "0.02"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
