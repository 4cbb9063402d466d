"""Small programs for the tests of forked processes."""

import os
import sys
import threading
from pathlib import Path

from tests.forking.processes import Process


def echo() -> None:
    """Says what it hears, between its arguments and a variable."""
    sys.stdout.write(f"{sys.argv[1:]} {sys.stdin.readline().strip()} {os.environ.get('VARIABLE')}\n")


def look() -> None:
    """Says which process it is, what it has imported that it should not, its threads, and what else is open."""
    unwanted = {"pytest", "_pytest", "hypothesis"} & set(sys.modules)
    there = [int(path.name) for path in Path("/proc/self/fd").iterdir()]  # the one that reads this is among them
    sys.stdout.write(f"{os.getpid()} {sorted(unwanted)} {threading.active_count()} {sorted(there)}\n")


def fail() -> None:
    raise ValueError("on purpose")


def hang() -> None:
    sys.stderr.write("it hangs\n")
    sys.stderr.flush()
    threading.Event().wait()


def have_a_child() -> None:
    """Asks for a process that hangs, says which and who forked it, and hangs."""
    with Process("tests.forking.samples:hang") as child:
        status = Path(f"/proc/{child.pid}/stat").read_text(encoding="ascii")
        parent = status.rpartition(")")[2].split()[1]
        sys.stdout.write(f"{child.pid} {parent}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    have_a_child()
