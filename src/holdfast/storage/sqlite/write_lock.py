"""The queue between processes: one of them writes at a time, in turn, and nobody sees "database is locked".

Two locks of the operating system on files beside the store make a turnstile. A lock by itself has no queue: whoever
releases it is first to take it again, and the others starve. Here one waits at the gate (the second file) while another
is inside (the first); who comes out has to go behind the one at the gate. Both are released when their holder dies,
however it dies.

Says who is in the way when a writer waits long for its turn.

The write lock of a process that is stopped in the middle of a commit (SIGSTOP, a debugger, a frozen container) cannot
be taken from it safely. Readers go on; writers wait, and all goes on by itself when that process goes on or dies. What
can be done is to say so: one thread, which sleeps while nobody waits, watches all who do, and warns once for each wait.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.background import BackgroundThread, Duty
from holdfast.errors import StoreError

logger = logging.getLogger("holdfast")

TICK_SECONDS: Final = 1.0
WARN_AFTER_TICKS: Final = 5
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
            self._pid = os.getpid()
            self._waits = {}
            self._somebody_waits = threading.Event()
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
                if self._tick - wait.since_tick >= WARN_AFTER_TICKS and wait not in self._warned:
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


lock_waits: Final = LockWaitMonitor()
"""One for the process: it has one thread, however many stores are open."""

FILE_MODE: Final = 0o600
REOPENINGS: Final = 10
"""Of a lock file that is removed again and again. SQLite's own lock still admits one writer at a time then."""


class WriteLock:
    """Held around every write transaction and checkpoint. Each connection that writes has one of its own."""

    def __init__(self, store: Path) -> None:
        self._inside = LockFile(store.with_name(store.name + "-lock"))
        self._gate = LockFile(store.with_name(store.name + "-gate"))

    def close(self) -> None:
        self._inside.close()
        self._gate.close()

    def take(self, *, wait: bool) -> bool:
        """Take the lock, in turn. Without `wait` the answer may be no; with it, waits however long it takes.

        A lock on a file that was removed excludes only those who opened it before: it is taken on the new file instead.
        """
        for _ in range(REOPENINGS):
            if not self._take(wait=wait):
                return False
            if self._inside.is_in_place() or not self._inside.reopen():
                break
        return True

    def _take(self, *, wait: bool) -> bool:
        if self._try():
            return True
        if not wait:
            return False
        if not self._gate.is_in_place():
            self._gate.reopen()
        waiter, gate = self._inside.descriptor, self._gate.descriptor
        lock_waits.begin(waiter, self._inside.path)
        try:
            fcntl.flock(gate, fcntl.LOCK_EX)
            try:
                fcntl.flock(waiter, fcntl.LOCK_EX)
            finally:
                fcntl.flock(gate, fcntl.LOCK_UN)
        finally:
            lock_waits.end(waiter)
        return True

    def _try(self) -> bool:
        at_once = fcntl.LOCK_EX | fcntl.LOCK_NB
        inside, gate = self._inside.descriptor, self._gate.descriptor
        try:
            fcntl.flock(gate, at_once)
        except BlockingIOError:
            return False
        try:
            fcntl.flock(inside, at_once)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(gate, fcntl.LOCK_UN)
        return True

    def release(self) -> None:
        fcntl.flock(self._inside.descriptor, fcntl.LOCK_UN)

    @contextmanager
    def held(self) -> Generator[None]:
        """Wait for the lock, however long those before us need."""
        self.take(wait=True)
        try:
            yield
        finally:
            self.release()


class LockFile:
    """A file beside the store that is empty, and only locked. It may be removed: it is made again."""

    __slots__ = ("_identity", "descriptor", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._open(os.O_CREAT)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror}") from error

    def close(self) -> None:
        os.close(self.descriptor)

    def is_in_place(self) -> bool:
        """Whether others who open it open this one."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - half the price of Path.stat, for each group
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def reopen(self) -> bool:
        """Open the file that is there now; make it if it is missing. False if that fails: the old one stays open."""
        old = self.descriptor
        try:
            try:
                self._open(os.O_CREAT | os.O_EXCL)
                logger.warning("%s was removed while it was in use, and was made again", self.path)
            except FileExistsError:  # somebody else has made it, and logged it
                self._open(os.O_CREAT)
        except OSError:
            return False
        os.close(old)
        return True

    def _open(self, flags: int) -> None:
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | flags, FILE_MODE)
        found = os.fstat(self.descriptor)
        self._identity = (found.st_dev, found.st_ino)
