"""The progress of ``holdfast verify``: a line on a terminal, nothing where nobody looks."""

import asyncio
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.commands import sql

import holdfast as hf
from holdfast.cli.bar import bar_text


@pytest.mark.parametrize("columns", [0, 5, 20, 40, 72, 200])
def test_the_bar_is_never_wider_than_the_terminal(columns: int) -> None:
    assert len(bar_text(999_999, 1_000_000, columns)) <= max(0, columns - 1)


def test_the_bar_has_the_part_and_the_counts() -> None:
    assert bar_text(0, 0, 72) == f"[{'#' * 40}] 100%  0 of 0 instances"
    assert bar_text(250, 1_000, 72) == f"[{'#' * 10}{'.' * 30}]  25%  250 of 1,000 instances"
    assert bar_text(7, 1, 72).startswith(f"[{'#' * 40}] 100%"), "instances that came meanwhile"


@pytest.mark.slow
def test_the_bar_is_on_a_terminal_only(tmp_path: Path) -> None:
    path = tmp_path / "it.db"

    async def make() -> None:
        async with hf.Engine(path):
            pass

    asyncio.run(make())
    assert sql(path, "SELECT count(*) FROM instances") == [(0,)]
    command = [sys.executable, "-m", "holdfast", "verify", "--store", str(path)]
    seen: dict[str, bytes] = {}
    for option in ("", "--json"):
        ours, theirs = pty.openpty()
        done = subprocess.run(
            [*command, *([option] if option else [])], stdout=subprocess.PIPE, stderr=theirs, check=True
        )
        os.close(theirs)
        os.set_blocking(ours, False)
        try:
            seen[option] = os.read(ours, 10_000)
        except (BlockingIOError, OSError):
            seen[option] = b""
        os.close(ours)
        assert b"#" not in done.stdout
    assert b"100%  0 of 0 instances" in seen[""]
    assert seen["--json"] == b""
    piped = subprocess.run(command, capture_output=True, check=True)
    assert piped.stderr == b""
