"""Runs a program of the samples (`tests.crash.program`) in a process of its own, which may be killed on the way."""

import signal
from pathlib import Path

from tests.forking.processes import run
from tests.scenarios.kinds import named


def was_killed(module: str, store: Path, name: str, *fault: object) -> bool:
    """Whether it died by SIGKILL; otherwise it has finished. Its bodies write to the file that has their ending."""
    outcome = run(f"{module}:main", named(store), name, store.with_suffix(".bodies"), *fault)
    assert outcome.code in (0, -signal.SIGKILL), outcome.complaints
    assert "database is locked" not in outcome.complaints
    return outcome.code != 0
