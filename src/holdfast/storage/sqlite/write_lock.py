"""The write lock between processes: one process writes at a time, in turn, without SQLITE_BUSY.

Two `flock` locks on files beside the store give a fair order. A single lock has no queue: the process that releases it
takes it again first, and the others starve. Here one process waits on the second file (the gate) while another holds
the first; a process that releases the first has to wait behind the one at the gate. The system releases both locks when
their holder dies.

`flock` has no time limit. A thread that must not wait long (`take` with `soon`) waits at the gate for a datagram, which
every release sends to the one address of the gate; if there is none, the datagram is dropped. Without it, as between
containers with network namespaces of their own, the wait ends after a millisecond.

The lock of a process that is stopped in the middle of a commit (SIGSTOP, a debugger, a frozen container) cannot be
taken over safely. Reads continue; writers wait until that process continues or dies. A monitor thread, which sleeps
while there is no wait, logs one warning for each long wait, with the process that holds the lock.
"""

import fcntl
import logging
import os
import select
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.background import BackgroundThread, Duty
from holdfast.errors import StoreError

logger = logging.getLogger("holdfast")

TICK_SECONDS: Final = 1.0
WARN_AFTER_TICKS: Final = 5
"""The ticks after which a wait is logged."""
LOCKS: Final = Path("/proc/locks")
LOCK_SUFFIX: Final = "-lock"
STOPPED_STATES: Final = ("T", "t")
PID_FIELD: Final = 4
FILE_FIELD: Final = 5


class LockWait(NamedTuple):
    """A wait for the lock, and the tick of the monitor at which it began."""

    lock: Path
    since_tick: int


class LockWaitMonitor:
    """Watches the waits of this process. Beginning and ending a wait cost next to nothing."""

    def __init__(self) -> None:
        self._waits: dict[int, LockWait] = {}
        self._tick = 0
        self._warned: set[LockWait] = set()
        self._has_waits = threading.Event()
        self._pid = 0

    def begin(self, waiter: int, lock: Path) -> None:
        """Record that `waiter` waits for the lock on a file."""
        if self._pid != os.getpid():  # the first wait, or the first after a fork, which leaves threads behind
            self._pid = os.getpid()
            self._waits = {}
            self._has_waits = threading.Event()
            BackgroundThread(Duty.LOCK_WAITS, self._run, is_stopped=lambda: False).start()
        self._waits[waiter] = LockWait(lock, self._tick)
        self._has_waits.set()

    def end(self, waiter: int) -> None:
        """Remove the wait, and log its end if it was logged."""
        wait = self._waits.pop(waiter)
        if wait in self._warned:
            self._warned.discard(wait)
            logger.warning("the wait for %s is over, and writing goes on", wait.lock)

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self._has_waits.wait()
            pause.wait(TICK_SECONDS)
            self._tick += 1
            waits = list(self._waits.values())
            if not waits:
                self._has_waits.clear()
                if self._waits:  # a wait that began since the list was read
                    self._has_waits.set()
            for wait in waits:
                if self._tick - wait.since_tick >= WARN_AFTER_TICKS and wait not in self._warned:
                    self._warned.add(wait)
                    warn(wait.lock)


waits_for_other_programs: Final[set[Path]] = set()
"""Stores whose write lock a writer of this process holds while it waits for a transaction of another program. That
wait is logged by itself, with its cause (`foreign_writes`)."""


def warn(lock: Path) -> None:
    """Log the process that holds the lock, as far as the system knows it."""
    pid = holder_of(lock)
    if pid == os.getpid() and lock.with_name(lock.name.removesuffix(LOCK_SUFFIX)) in waits_for_other_programs:
        return
    who = "another process has it" if pid is None else f"process {pid} has it{_how_it_is(pid)}"
    logger.warning(
        "writing waits for %s: %s. Reading goes on. Writing goes on by itself when that process goes on or ends",
        lock,
        who,
    )


def holder_of(lock: Path) -> int | None:
    """The process that holds the lock on a file; None if the system does not know it."""
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
"""One monitor and one thread for the process, however many stores are open."""

FILE_MODE: Final = 0o600
SOON_MS: Final = 1
"""How long `take` waits with `soon`. The holder may be stopped, and the thread that waits has other work."""
RELEASED: Final = b"!"
REOPENINGS: Final = 10
"""The limit for a lock file that is removed repeatedly. SQLite's own lock still admits one writer at a time."""


class WriteLock:
    """Held around every write transaction and checkpoint. Each connection that writes has one of its own."""

    def __init__(self, store: Path) -> None:
        self._inside = LockFile(store.with_name(store.name + LOCK_SUFFIX))
        self._gate = LockFile(store.with_name(store.name + "-gate"))
        self._signal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def close(self) -> None:
        self._signal.close()
        self._inside.close()
        self._gate.close()

    def take(self, *, wait: bool, soon: bool = False) -> bool:
        """Take the lock, in turn. With `wait` it waits without limit. Without it, it returns False if the lock is held;
        with `soon` if it is still held after a millisecond, or another process waits for it.

        A lock on a removed file excludes only processes that opened it before, so it is taken on the new file instead.
        """
        for _ in range(REOPENINGS):
            if not self._take(wait=wait, soon=soon):
                return False
            if self._inside.is_in_place() or not self._inside.reopen():
                break
        return True

    def _take(self, *, wait: bool, soon: bool) -> bool:
        if self._try(soon=soon):
            return True
        if not wait:
            return False
        if not self._gate.is_in_place():
            self._gate.reopen()
        waiter = self._inside.descriptor
        gate = self._gate.descriptor
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

    def _try(self, *, soon: bool) -> bool:
        gate = self._gate
        if not gate.try_lock():
            return False
        try:
            return self._inside.try_lock() or (soon and self._take_soon())
        finally:
            fcntl.flock(gate.descriptor, fcntl.LOCK_UN)

    def _take_soon(self) -> bool:
        """Wait for the release of the lock. The gate is taken, so no other process uses its address."""
        inside = self._inside
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            try:
                own.bind(self._gate.address)
            except OSError:
                return False
            if inside.try_lock():  # it was released before the address was bound
                return True
            released = select.poll()
            released.register(own, select.POLLIN)
            released.poll(SOON_MS)
        return inside.try_lock()

    def release(self) -> None:
        fcntl.flock(self._inside.descriptor, fcntl.LOCK_UN)
        with suppress(OSError):  # no process waits for the datagram
            self._signal.sendto(RELEASED, self._gate.address)

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold the lock inside the block. Waits for it without a limit."""
        self.take(wait=True)
        try:
            yield
        finally:
            self.release()


class LockFile:
    """An empty file beside the store that is only locked. If it was removed, it is created again."""

    __slots__ = ("_identity", "address", "descriptor", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._open(os.O_CREAT)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror}") from error

    def close(self) -> None:
        os.close(self.descriptor)

    def try_lock(self) -> bool:
        """Lock the file if it is not locked."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_in_place(self) -> bool:
        """Whether the path still names the open file."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - half the price of Path.stat, for each group
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def reopen(self) -> bool:
        """Open the file at the path, and create it if it is missing. False if that fails: the old one stays open."""
        old = self.descriptor
        try:
            try:
                self._open(os.O_CREAT | os.O_EXCL)
                logger.warning("%s was removed while it was in use, and was made again", self.path)
            except FileExistsError:  # another process has created it, and logged it
                self._open(os.O_CREAT)
        except OSError:
            return False
        os.close(old)
        return True

    def _open(self, flags: int) -> None:
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | flags, FILE_MODE)
        found = os.fstat(self.descriptor)
        self._identity = (found.st_dev, found.st_ino)
        self.address = f"\0holdfast-{found.st_dev:x}-{found.st_ino:x}"
        """In the abstract namespace: no file, and the same for all processes that have the lock file open."""
