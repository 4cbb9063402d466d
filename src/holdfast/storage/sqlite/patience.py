"""Says who is in the way when a writer waits long for its turn.

The write lock of a process that is stopped in the middle of a commit (SIGSTOP, a debugger, a frozen container) cannot
be taken from it safely. Readers go on; writers wait, and all goes on by itself when that process goes on or dies. What
can be done is to say so: one thread, which sleeps while nobody waits, watches all who do, and warns once for each wait.
"""

import logging
import os
import threading
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.background import BackgroundThread, Duty

logger = logging.getLogger("holdfast")

TICK_SECONDS: Final = 1.0
PATIENCE_TICKS: Final = 5
"""After so many ticks a wait is worth a warning."""
LOCKS: Final = Path("/proc/locks")
STOPPED_STATES: Final = ("T", "t")
PID_FIELD: Final = 4
FILE_FIELD: Final = 5


class LockWait(NamedTuple):
    """Somebody wants to write, since a tick of the watch."""

    lock: Path
    since_tick: int


class LockWaitMonitor:
    """Knows who waits. Beginning and ending a wait cost next to nothing."""

    def __init__(self) -> None:
        self._waits: dict[int, LockWait] = {}
        self._tick = 0
        self._warned: set[LockWait] = set()
        self._somebody_waits = threading.Event()
        self._pid = 0

    def begin(self, waiter: int, lock: Path) -> None:
        """`waiter` waits for the lock on a file from now on."""
        if self._pid != os.getpid():  # the first wait, or the first after a fork, which leaves threads behind
            self._pid, self._waits, self._somebody_waits = os.getpid(), {}, threading.Event()
            BackgroundThread(Duty.LOCK_WAITS, self._run, is_stopped=lambda: False).start()
        self._waits[waiter] = LockWait(lock, self._tick)
        self._somebody_waits.set()

    def end(self, waiter: int) -> None:
        """It waits no more."""
        wait = self._waits.pop(waiter)
        if wait in self._warned:
            self._warned.discard(wait)
            logger.warning("the wait for %s is over, and writing goes on", wait.lock)

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self._somebody_waits.wait()
            pause.wait(TICK_SECONDS)
            self._tick += 1
            waits = list(self._waits.values())
            if not waits:
                self._somebody_waits.clear()
                if self._waits:  # who came meanwhile must not be overlooked
                    self._somebody_waits.set()
            for wait in waits:
                if self._tick - wait.since_tick >= PATIENCE_TICKS and wait not in self._warned:
                    self._warned.add(wait)
                    warn(wait.lock)


def warn(lock: Path) -> None:
    """Name the process that has the lock, if the system tells."""
    pid = holder_of(lock)
    who = "another process has it" if pid is None else f"process {pid} has it{_how_it_is(pid)}"
    logger.warning(
        "writing waits for %s: %s. Reading goes on. Writing goes on by itself when that process goes on or ends",
        lock,
        who,
    )


def holder_of(lock: Path) -> int | None:
    """The process that has the lock on a file; None if the system does not tell."""
    try:
        inode = str(lock.stat().st_ino)
        lines = LOCKS.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if len(fields) > FILE_FIELD and fields[1] == "FLOCK" and fields[FILE_FIELD].rpartition(":")[2] == inode:
            pid = int(fields[PID_FIELD])
            return pid if pid > 0 else None
    return None


def _how_it_is(pid: int) -> str:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""
    return " and is stopped (kill -CONT lets it go on)" if state in STOPPED_STATES else ""


watch: Final = LockWaitMonitor()
"""One for the process: it has one thread, however many stores are open."""
