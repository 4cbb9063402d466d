"""Every example runs as its page says, prints what it promises, and is in the index."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
INDEX = (EXAMPLES / "README.md").read_text("utf-8")
COMMANDS = re.findall(r"\| `((?:python|holdfast) .*?)` \|", INDEX)
WIDTH = 72

EXPECTED = {
    "examples/trip.py:book_trip": ["4 tickets sent to Ada"],
    "examples/order_saga.py": [
        "order-1: parcel to Main Street",
        "  -> the desk stays reserved for ever",
        "  released chair",
        "  the process dies in the refund",
        "  refunded receipt-4242-300",
        "order-3 failed: NoCourier('the moon')",
        "order-4 was cancelled: changed my mind",
    ],
    "examples/approval.py": [
        "engine opened; robot is waiting for a decision",
        "robot: approved by ann",
        "  mail to bob: reminder 2: the yacht",
        "yacht: refused: no answer",
    ],
    "examples/nightly/pipeline.py": [
        "  extracted north of monday, attempt 2",
        "monday: 8 rows of monday are in the warehouse",
        "tuesday: alert: -1 in 3 rows",
    ],
    "examples/agent.py": [
        "the process dies after 'degrees'",
        "recorded so far: Take sunglasses: 28 degrees",
        "answer: Take sunglasses: 28 degrees and sun in Lisbon .",
    ],
    "examples/parent_and_children.py": [
        "book-7: ['ONE', 'TWO', '(Unreadable)', '(too slow)']",
        "kelp is archived",
        "  book-7/1/4     chapter  CANCELLED",
    ],
    "examples/fastapi_service/run.py": [
        "PUT {'id': 'order-7', 'new': True}",
        "PUT {'id': 'order-7', 'new': False}",
        "PUT with another body: 409",
        "GET an unknown order: 404",
        "last change: {'state': 'COMPLETED', 'status': 'Your lamp is on its way'}",
    ],
    "examples/shell_executor.py": [
        "script: failed render",
        "script: completed render",
        "film-1: kelp.mp4",
        "attempts: 2",
    ],
    "examples/many_workers.py": ["60 jobs done, 180 results", "the others left with exit codes [0, 0]"],
}


def printed_by(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "error::DeprecationWarning:__main__"},
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def absolute(command: str, store: str = "") -> list[str]:
    """The command as the index has it, with paths that do not depend on the folder, and a real store."""
    words = [str(ROOT / word) if word.startswith("examples/") else word for word in shlex.split(command)]
    words = [store if word.startswith("postgresql://") else word for word in words]
    program = [sys.executable] if words[0] == "python" else [sys.executable, "-m", "holdfast"]
    return [*program, *words[1:]]


def example_of(command: str) -> str:
    return next(word for word in shlex.split(command) if word.startswith("examples/"))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=example_of)
def test_an_example_prints_what_happened(command: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    store: str = request.getfixturevalue("postgres").url if "postgresql://" in command else ""
    printed = printed_by(absolute(command, store), tmp_path)
    for line in EXPECTED[example_of(command)]:
        assert line in printed, printed
    if command.startswith("python"):
        assert max(map(len, printed.splitlines())) <= WIDTH, printed


@pytest.mark.slow
def test_the_saga_releases_the_chair_and_forgets_the_desk(tmp_path: Path) -> None:
    printed = printed_by([sys.executable, str(EXAMPLES / "order_saga.py")], tmp_path)
    assert "reserved desk" in printed
    assert "released desk" not in printed
    assert printed.count("released sofa") == 1
    assert printed.count("reserved bed") == printed.count("released bed")
    assert printed.count("charged 300") - printed.count("refunded") == 1, "order-1 was paid, the others paid back"


@pytest.mark.slow
def test_many_workers_take_a_sqlite_file_too(tmp_path: Path) -> None:
    printed = printed_by([sys.executable, str(EXAMPLES / "many_workers.py")], tmp_path)
    assert "60 jobs done, 180 results" in printed


def test_every_example_is_in_the_index_and_every_command_is_tested() -> None:
    files = {path.relative_to(EXAMPLES).parts[0] for path in EXAMPLES.rglob("*.py")}
    linked = {target.partition("/")[0] for target in re.findall(r"\| \[.*?\]\((.*?)\) \|", INDEX)}
    assert files - {"__pycache__"} == linked
    assert {example_of(command) for command in COMMANDS} == set(EXPECTED)


def test_an_example_fits_a_narrow_window_and_starts_nothing_when_imported() -> None:
    for path in EXAMPLES.rglob("*.py"):
        text = path.read_text("utf-8")
        assert max(map(len, text.splitlines())) <= WIDTH, path
        assert "asyncio.run(" not in text or 'if __name__ == "__main__":' in text or path.name == "trip.py", path
