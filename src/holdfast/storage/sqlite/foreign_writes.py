"""Programs that are not Holdfast and write to a SQLite file: waits for their transactions, and detection of their rows.

Processes of Holdfast queue on `WriteLock` before they write. Another program only takes SQLite's own lock, so a group
may find that lock held. On the event loop's thread it does not wait: the group is written on the writer's thread, which
retries until the lock is free. A long wait is logged once, with the process that holds the lock.

`ForeignWriteProbe` detects rows that other programs insert (C2-C4). ``PRAGMA data_version`` of the writer's connection
changes when any other connection has committed, and not for the writer's own commits. If it has changed, the tables are
searched for new rows. Neither read leaves a transaction open.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.errors import HoldfastError
from holdfast.storage.sqlite.write_lock import FILE_FIELD, LOCKS, PID_FIELD, waits_for_other_programs

logger = logging.getLogger("holdfast")

BUSY_TIMEOUT_MS: Final = 60_000
"""How long a writer waits for the transaction of another program before its group fails."""
PAUSE_MS: Final = 5
SHORT_PAUSE_MS: Final = 0.05
SHORT_PAUSES: Final = 400
"""The first pauses: the transaction of a client that keeps them short is over in a millisecond or two."""
WARN_AFTER_MS: Final = 5_000
WRITE_LOCK_BYTE: Final = 120
"""Of the shared memory: a writer locks it exclusively. The number is part of SQLite's file format."""
KIND_FIELD: Final = 3
RANGE_FIELDS: Final = slice(6, 8)
PROBE_SECONDS: Final = 0.24
"""The interval of the probe. A row is found within 250 ms, with the latency of the event loop."""


class ForeignLock(Exception):
    """Another program holds SQLite's write lock, and this thread may not wait for it. Nothing was written."""


class ForeignLockWait:
    """The busy handler of a connection that writes. SQLite calls it while another program holds its lock.

    It counts its own pauses instead of reading a clock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pause = threading.Event()
        self.may_wait = True
        """False on the event loop's thread."""
        self.is_waiting = False
        """Whether the last call has waited; `end` resets it."""
        self._has_warned = False

    def __call__(self, earlier_calls: int) -> bool:
        """Whether SQLite tries again."""
        short = min(earlier_calls, SHORT_PAUSES)
        waited_ms = short * SHORT_PAUSE_MS + (earlier_calls - short) * PAUSE_MS
        if not self.may_wait or waited_ms >= BUSY_TIMEOUT_MS:
            waits_for_other_programs.discard(self._path)
            return False
        self.is_waiting = True
        waits_for_other_programs.add(self._path)
        if waited_ms >= WARN_AFTER_MS and not self._has_warned:
            self._has_warned = True
            holder = holder_of_write_lock(self._path)
            logger.warning(
                "writing waits for a transaction of another program on %s: %s has SQLite's write lock. Reading goes "
                "on. Programs that write to the file should keep their transactions short",
                self._path,
                "a process that is not known" if holder is None else _described(holder),
            )
        self._pause.wait((SHORT_PAUSE_MS if earlier_calls < SHORT_PAUSES else PAUSE_MS) / 1000)
        return True

    def end(self) -> None:
        """The lock was free after a wait. Logs it if the wait was logged."""
        self.is_waiting = False
        waits_for_other_programs.discard(self._path)
        if self._has_warned:
            self._has_warned = False
            logger.warning("the transaction of another program on %s is over, and writing goes on", self._path)


def holder_of_write_lock(store: Path) -> int | None:
    """The process that holds SQLite's write lock on a store; None if the system does not know it."""
    try:
        inode = str(store.with_name(f"{store.name}-shm").stat().st_ino)
        lines = LOCKS.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if fields[1:2] != ["POSIX"] or fields[KIND_FIELD] != "WRITE":
            continue
        if fields[FILE_FIELD].rpartition(":")[2] == inode:
            first, last = fields[RANGE_FIELDS]
            if int(first) <= WRITE_LOCK_BYTE and (last == "EOF" or int(last) >= WRITE_LOCK_BYTE):
                pid = int(fields[PID_FIELD])
                return pid if pid > 0 else None
    return None


def _described(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({name})"


class ForeignWriteProbe:
    """Calls a function, on the event loop, when other programs may have inserted rows."""

    def __init__(
        self,
        read_version: Callable[[], int | None],
        has_new_rows: Callable[[], bool],
        inserted: Callable[[str | None], None],
    ) -> None:
        """`read_version` returns None while the writer's connection is in use on another thread."""
        self._read_version = read_version
        self._has_new_rows = has_new_rows
        self._inserted = inserted
        self._version: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer."""
        self._timer = asyncio.get_running_loop().call_later(PROBE_SECONDS, self._look)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self.start()
        try:
            version = self._read_version()
            is_same = version is not None and version == self._version
            self._version = version
            has_rows = not is_same and self._has_new_rows()
        except HoldfastError as error:  # the store was replaced or is being closed; commits report it
            logger.debug("new rows of other programs could not be detected: %s", error)
            self._version = None
            return
        if has_rows:
            self._inserted(None)
