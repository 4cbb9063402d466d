"""The benchmarks on PostgreSQL run, on a small scale."""

import subprocess
import sys

import pytest
from tests.postgres.processes import ENVIRONMENT, ROOT
from tests.postgres.server import Place


@pytest.mark.slow
@pytest.mark.parametrize(
    "sample",
    [
        "B1",
        "B1 bare",
        "ONE TURN",
        "B4",
        "CLAIM few",
        "EXPIRY",
        "ENGINES 2",
        "APART 2",
        "APART one at a time",
        "WAKE by a start",
    ],
)
def test_a_small_sample_of_a_benchmark_runs(postgres: Place, sample: str) -> None:
    words = ["--sample", sample, "--scale", "0.02", "--url", postgres.server, "--schema", postgres.schema]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.postgres", *words],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
