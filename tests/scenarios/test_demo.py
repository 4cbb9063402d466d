"""The demo does what it says, and says so within its time."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools import demo

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_worker_is_killed_and_another_finishes_with_one_body_run_again() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.demo"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("recorded before, not run again") == 3
    assert "kill -9  worker 1 died while rent_car ran" in done.stdout
    assert "ran once   find_flight, reserve_seat, book_hotel, charge_card," in done.stdout
    assert [line for line in done.stdout.splitlines() if len(line) > demo.COLUMNS] == []
    assert "ran again  rent_car" in done.stdout
    seconds = re.search(r"([\d.]+) s in all", done.stdout)
    assert seconds is not None
    assert float(seconds[1]) < 15


@pytest.mark.parametrize(
    ("journal", "complaint"),
    [
        ([], "the bodies ran"),
        ([(1, "began", step) for step in (demo.KILLED_IN, *demo.STEPS)], "worker 1 was not killed within rent_car"),
        (
            [(1, "began", step) for step in ("find_flight", "reserve_seat", "book_hotel", "rent_car")]
            + [(2, "began", step) for step in ("rent_car", "charge_card", "send_tickets")],
            "worker 2 did not run the last step",
        ),
    ],
)
def test_the_demo_complains_when_something_is_off(
    tmp_path: Path, journal: list[tuple[int, str, str]], complaint: str
) -> None:
    place = demo.Place(tmp_path)
    place.journal.write_text("".join(f"{a} {b} {c}\n" for a, b, c in journal), encoding="utf-8")
    with pytest.raises(demo.DemoFailed, match=complaint):
        demo.check(place, 1, 2)
