"""Histories that were recorded once replay for ever: with today's code, and on every Python that is installed."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.histories.samples import RECORDED, WORKFLOWS, replay
from tests.interpreters import interpreter

ROOT = Path(__file__).parents[2]


def test_G12_every_recorded_history_replays_with_todays_code() -> None:
    assert sorted(replay()) == sorted(path.stem for path in RECORDED.glob("*.jsonl"))
    assert {workflow.name for workflow in WORKFLOWS} <= set(replay())


@pytest.mark.slow
@pytest.mark.parametrize("minor", ["3.12", "3.13", "3.14"])
def test_G12_histories_of_one_python_replay_on_the_others(minor: str) -> None:
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"python{minor} is not installed here")
    done = subprocess.run(
        [python, "-W", "error", "-m", "tests.histories.samples", "replay"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(replay())
