"""``make demo``: a worker is killed in the middle of a step, another continues, and each step is recorded once.

The demo starts ``holdfast run`` twice, in two processes, and ends the first by SIGKILL in the middle of the fourth of
six steps. The bodies of the activities write a journal, from which the demo counts how often each ran; an audit checks
the store. The demo exits with code 1 if a count or the store is wrong. Its output fits `COLUMNS` columns.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import IO, Final

from rich.console import Console
from rich.text import Text

from holdfast.audit.auditor import audit
from holdfast.runtime.platform import SystemClockAndIds

ROOT: Final = Path(__file__).parents[1]
EXAMPLE: Final = "examples/trip.py:book_trip"
INPUT: Final = {"traveller": "Ada", "city": "Lisbon"}
INSTANCE: Final = "ada-lisbon"
STEPS: Final = ("find_flight", "reserve_seat", "book_hotel", "rent_car", "charge_card", "send_tickets")
KILLED_IN: Final = "rent_car"
INTO_THE_STEP_SECONDS: Final = 0.15
POLL_SECONDS: Final = 0.01
PATIENCE_SECONDS: Final = 20.0
COLUMNS: Final = 72
LABEL_COLUMNS: Final = 11
"""The width of the labels before the lines of the summary."""


class DemoFailed(Exception):
    """The demo did not behave as it promises."""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder with the store and the journal of a demo."""

    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "demo.db"

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    def start_worker(self, console: Console, name: str, style: str) -> "Worker":
        """Starts ``holdfast run`` in a process, and prints its lines with a name before them."""
        command = [sys.executable, "-m", "holdfast", "run", EXAMPLE, "--id", INSTANCE, "--store", str(self.store)]
        command += ["--input", json.dumps(INPUT)]
        environment = {
            **os.environ,
            "TRIP_JOURNAL": str(self.journal),
            "PYTHONIOENCODING": "utf-8",
            "NO_COLOR": "1",
            "COLUMNS": str(COLUMNS - len(name) - 1),
        }
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        relay = threading.Thread(target=_relay, args=(process.stdout, console, name, style), daemon=True)
        relay.start()
        return Worker(process, relay)

    def lines(self) -> list[tuple[int, str, str]]:
        """The lines of the journal: process, `began` or `ended`, activity."""
        if not self.journal.exists():
            return []
        words = [line.split() for line in self.journal.read_text(encoding="utf-8").splitlines()]
        return [(int(process), what, activity) for process, what, activity in words]


@dataclass(frozen=True, slots=True)
class Worker:
    """A process, and the thread that prints its output."""

    process: "subprocess.Popen[str]"
    relay: threading.Thread

    def kill(self) -> None:
        """Ends the process as a power cut would, and waits until its output is printed."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.relay.join(PATIENCE_SECONDS)


def _relay(stream: IO[str] | None, console: Console, name: str, style: str) -> None:
    for line in stream or ():
        if line.strip() and not line.startswith("result"):
            console.print(Text.assemble((f"{name} ", style), line.rstrip()), soft_wrap=True)


def main() -> int:
    """Runs the demo, and returns its exit code."""
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="demo-", ignore_cleanup_errors=True) as folder:
        try:
            play(console, Place(Path(folder)))
        except DemoFailed as error:
            console.print(Text.assemble(("The demo failed: ", "bold red"), str(error)), soft_wrap=True)
            return 1
    return 0


def play(console: Console, place: Place) -> None:
    """Kills a worker, lets another continue, checks the outcome and prints a summary."""
    clock = SystemClockAndIds()
    began_ms = clock.elapsed_ms()
    console.print(Text("A workflow of six steps, whose worker is killed in the fourth.", "bold"))
    first = place.start_worker(console, "worker 1", "cyan")
    try:
        _wait_for(place, first.process, "began", KILLED_IN)
        threading.Event().wait(INTO_THE_STEP_SECONDS)
    finally:
        first.kill()
    killed_ms = clock.elapsed_ms()
    console.print(Text.assemble(("kill -9  ", "bold red"), f"worker 1 died while {KILLED_IN} ran"))
    second = place.start_worker(console, "worker 2", "magenta")
    try:
        _wait_for(place, second.process, "began", KILLED_IN)
        recovered_ms = clock.elapsed_ms()
        code = second.process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise DemoFailed(f"worker 2 did not end within {PATIENCE_SECONDS:.0f} s") from error
    finally:
        second.kill()
    if code != 0:
        raise DemoFailed(f"worker 2 ended with code {code}")
    check(place, first.process.pid, second.process.pid)
    summarize(console, total_ms=clock.elapsed_ms() - began_ms, recovery_ms=recovered_ms - killed_ms)


def check(place: Place, first: int, second: int) -> None:
    """Raises `DemoFailed` unless each body ran as often as promised, the last step ended, and the store is sound."""
    begun = Counter(activity for _, what, activity in place.lines() if what == "began")
    expected = {step: 2 if step == KILLED_IN else 1 for step in STEPS}
    if begun != expected:
        raise DemoFailed(f"the bodies ran {dict(begun)}, and not {expected}")
    interrupted = [activity for process, what, activity in place.lines() if process == first and what == "began"]
    if interrupted[-1] != KILLED_IN or (first, "ended", KILLED_IN) in place.lines():
        raise DemoFailed(f"worker 1 was not killed within {KILLED_IN}, but after {interrupted}")
    if (second, "ended", STEPS[-1]) not in place.lines():
        raise DemoFailed("worker 2 did not run the last step")
    problems = audit(place.store)
    if problems:
        raise DemoFailed("; ".join(map(str, problems)))


def summarize(console: Console, *, total_ms: int, recovery_ms: int) -> None:
    """Prints the steps that ran once, the step that ran again, and the times."""
    once = ", ".join(step for step in STEPS if step != KILLED_IN)
    _print_labelled(console, "ran once", "bold green", once)
    _print_labelled(console, "ran again", "bold yellow", f"{KILLED_IN}: killed half-way, its result is recorded once")
    figures = f"{recovery_ms / 1000:.2f} s from the kill to the step running again, {total_ms / 1000:.1f} s in all"
    _print_labelled(console, "sound", "bold green", f"the audit found no problems; {figures}")


def _print_labelled(console: Console, label: str, style: str, text: str) -> None:
    """Prints a label, and the text in lines beside it."""
    first, *others = wrap(text, COLUMNS - LABEL_COLUMNS)
    console.print(Text.assemble((label.ljust(LABEL_COLUMNS), style), first), soft_wrap=True)
    for line in others:
        console.print(Text(" " * LABEL_COLUMNS + line), soft_wrap=True)


def _wait_for(place: Place, process: "subprocess.Popen[str]", what: str, activity: str) -> None:
    """Polls the journal until it has a line of the process."""
    pause = threading.Event()
    for _ in range(round(PATIENCE_SECONDS / POLL_SECONDS)):
        if (process.pid, what, activity) in place.lines():
            return
        if process.poll() is not None:
            raise DemoFailed(f"the worker ended with code {process.returncode} before {activity}")
        pause.wait(POLL_SECONDS)
    raise DemoFailed(f"{activity} did not begin within {PATIENCE_SECONDS:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
