"""``make demo``: a worker is killed in the middle of a step, another goes on, and every step is recorded once.

The same command, ``holdfast run``, is started twice in processes of its own. The first is ended by SIGKILL half-way
through the fourth of six steps. Which bodies really ran is read from a journal that they write themselves; whether the
store is sound is asked of the audit. Anything that is not as it should be ends the demo with exit code 1.
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
LOOK_SECONDS: Final = 0.01
PATIENCE_SECONDS: Final = 20.0


class DemoFailed(Exception):
    """Something did not go as promised."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the demo's files are, and how its processes are started."""

    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "demo.db"

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    def start_worker(self, console: Console, name: str, style: str) -> "Worker":
        """Start ``holdfast run`` in a process of its own, its lines shown with a name before them."""
        command = [sys.executable, "-m", "holdfast", "run", EXAMPLE, "--id", INSTANCE, "--store", str(self.store)]
        command += ["--input", json.dumps(INPUT)]
        environment = {**os.environ, "TRIP_JOURNAL": str(self.journal), "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"}
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        relay = threading.Thread(target=_relay, args=(process.stdout, console, name, style), daemon=True)
        relay.start()
        return Worker(process, relay)

    def lines(self) -> list[tuple[int, str, str]]:
        """The journal: process, began or ended, activity."""
        if not self.journal.exists():
            return []
        words = [line.split() for line in self.journal.read_text(encoding="utf-8").splitlines()]
        return [(int(process), what, activity) for process, what, activity in words]


@dataclass(frozen=True, slots=True)
class Worker:
    """A process, and the thread that shows what it prints."""

    process: "subprocess.Popen[str]"
    relay: threading.Thread

    def kill(self) -> None:
        """End it as a power cut would, and wait until all that it printed is shown."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.relay.join(PATIENCE_SECONDS)


def _relay(stream: IO[str] | None, console: Console, name: str, style: str) -> None:
    for line in stream or ():
        if line.strip() and not line.startswith("result"):
            console.print(Text.assemble((f"{name} ", style), line.rstrip()), soft_wrap=True)


def main() -> int:
    """Run the demo; the exit code says whether all went as promised."""
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-", ignore_cleanup_errors=True) as folder:
        try:
            play(console, Place(Path(folder)))
        except DemoFailed as error:
            console.print(Text.assemble(("The demo failed: ", "bold red"), str(error)), soft_wrap=True)
            return 1
    return 0


def play(console: Console, place: Place) -> None:
    """Kill, go on, and look at what happened."""
    clock = SystemClockAndIds()
    began_ms = clock.elapsed_ms()
    console.print(
        Text("A workflow of six steps. Its worker is about to be killed in the middle of the fourth.", "bold")
    )
    first = place.start_worker(console, "worker 1", "cyan")
    try:
        _wait_for(place, first.process, "began", KILLED_IN)
        threading.Event().wait(INTO_THE_STEP_SECONDS)
    finally:
        first.kill()
    killed_ms = clock.elapsed_ms()
    console.print(Text.assemble(("kill -9", "bold red"), f"  worker 1 died while {KILLED_IN} ran"))
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
    tell(console, total_ms=clock.elapsed_ms() - began_ms, recovery_ms=recovered_ms - killed_ms)


def check(place: Place, first: int, second: int) -> None:
    """The bodies ran as promised, the result is there, and the store is sound."""
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


def tell(console: Console, *, total_ms: int, recovery_ms: int) -> None:
    """What is to be learned from it."""
    once = ", ".join(step for step in STEPS if step != KILLED_IN)
    console.print(Text.assemble(("ran once   ", "bold green"), once), soft_wrap=True)
    console.print(
        Text.assemble(("ran again  ", "bold yellow"), f"{KILLED_IN}: killed half-way, its result is recorded once"),
        soft_wrap=True,
    )
    figures = f"{recovery_ms / 1000:.2f} s from the kill to the step running again, {total_ms / 1000:.1f} s in all"
    console.print(Text.assemble(("sound      ", "bold green"), f"the audit found nothing; {figures}"), soft_wrap=True)


def _wait_for(place: Place, process: "subprocess.Popen[str]", what: str, activity: str) -> None:
    """Until the journal has that line of that process."""
    pause = threading.Event()
    for _ in range(round(PATIENCE_SECONDS / LOOK_SECONDS)):
        if (process.pid, what, activity) in place.lines():
            return
        if process.poll() is not None:
            raise DemoFailed(f"the worker ended with code {process.returncode} before {activity}")
        pause.wait(LOOK_SECONDS)
    raise DemoFailed(f"{activity} did not begin within {PATIENCE_SECONDS:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
