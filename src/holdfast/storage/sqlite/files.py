"""Keeps an open store and its files together: prevents the loss of the WAL, and detects it where it cannot.

SQLite's own locks do not survive a second SQLite library in the process, nor a program that opens and closes its
database file by itself: POSIX drops all locks of a process on a file when it closes any descriptor of that file. Then
the next connection that closes takes itself for the last one and deletes the WAL, and commits go into a file without
a name. Two measures:

- A guard holds the two locks that forbid this as locks of an open file description, which closing another descriptor
  does not drop: the shared lock on the database, and that on the shared memory of the WAL.
- Before and after each write the files at their paths are compared with those that were opened. If one was removed or
  replaced, nothing more is written or acknowledged (`StoreReplaced`).
"""

import fcntl
import logging
import os
import struct
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.errors import StoreError, StoreReplaced
from holdfast.fork import generation

logger = logging.getLogger("holdfast")

PENDING_BYTE: Final = 0x40000000
"""Of the database: an exclusive lock on it blocks new connections. The numbers are part of SQLite's file format."""
SHARED_FIRST: Final = PENDING_BYTE + 2
SHARED_SIZE: Final = 510
"""Of the database: every connection has a shared lock on these; the last one to close locks them exclusively."""
DEAD_MAN_SWITCH: Final = 128
"""Of the shared memory: every process has a shared lock on it; the first one to open locks it exclusively."""
SET_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)
"""Linux only. Elsewhere a lost WAL is detected, not prevented."""
FLOCK: Final = "hhqqi4x"
"""``struct flock``: type, whence, start, length, process."""

Identity = tuple[int, int]


class Condition(NamedTuple):
    """When a database file was written last, and its size."""

    changed_ns: int
    size: int


class FileGuard:
    """Locks on the files of one store, for all connections of this process.

    Its descriptors are closed after the last of these connections: closing one earlier would drop SQLite's own locks.
    """

    def __init__(self, path: str) -> None:
        self.users = 0
        self.is_held = False
        self.is_lost = False
        """The files that it was made for are no longer at their paths."""
        self.is_shared = False
        """A second SQLite library of this process has opened the database."""
        self._database = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._memory = -1

    def hold(self, memory: str) -> None:
        """Forbid others to delete the WAL, or to begin a new shared memory. Both must be open in this process."""
        if self._memory < 0:
            self._memory = os.open(memory, os.O_RDWR | os.O_CLOEXEC)
        self.is_held = _lock(self._database, fcntl.F_RDLCK, SHARED_FIRST, SHARED_SIZE) and _lock(
            self._memory, fcntl.F_RDLCK, DEAD_MAN_SWITCH, 1
        )

    def release(self) -> None:
        """Allow the last connection of this process to delete the WAL, if no other process has it open."""
        if self._memory >= 0:
            _lock(self._database, fcntl.F_UNLCK, SHARED_FIRST, SHARED_SIZE)
            _lock(self._memory, fcntl.F_UNLCK, DEAD_MAN_SWITCH, 1)
        self.is_held = False

    def close(self) -> None:
        os.close(self._database)
        if self._memory >= 0:
            os.close(self._memory)

    @contextmanager
    def without_newcomers(self) -> Generator[bool]:
        """Prevent every process from opening a connection inside the block. Yields False if that is not possible."""
        is_locked = _lock(self._database, fcntl.F_WRLCK, PENDING_BYTE, 1)
        try:
            yield is_locked
        finally:
            if is_locked:
                _lock(self._database, fcntl.F_UNLCK, PENDING_BYTE, 1)

    def is_alone(self) -> bool:
        """Whether no other process has the database open. It stays so inside `without_newcomers`."""
        if not _lock(self._database, fcntl.F_UNLCK, SHARED_FIRST, SHARED_SIZE):
            return False
        asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, SHARED_FIRST, SHARED_SIZE, 0)
        try:  # the locks of this process do not count
            found: int = struct.unpack(FLOCK, fcntl.fcntl(self._database, fcntl.F_GETLK, asked))[0]
        finally:
            _lock(self._database, fcntl.F_RDLCK, SHARED_FIRST, SHARED_SIZE)
        return found == fcntl.F_UNLCK


_guards: Final[dict[tuple[int, Identity], FileGuard]] = {}
"""By the process, counted in forks, and the identity of the database."""
_guards_lock: Final = threading.RLock()


class StoreFiles:
    """The database, the WAL and the shared memory of one open store."""

    def __init__(self, path: Path) -> None:
        """Before a connection is opened. The database exists."""
        self._paths = self._database, self._wal, self._memory = str(path), f"{path}-wal", f"{path}-shm"
        self._identities: tuple[Identity, ...] = ()
        self._condition = Condition(0, 0)
        self._detecting = threading.Lock()
        self.failure = ""
        """The message of the loss of a file; empty while there is none."""
        _watch_second_libraries()
        with _guards_lock:
            try:
                self._key = (generation(), _identity(path.stat()))
                guard = _guards.get(self._key) or FileGuard(self._database)
            except OSError as error:
                raise StoreError(f"{path} cannot be opened: {error.strerror}") from error
            if guard.is_lost:
                raise StoreError(f"{path} is still open in this process with files that were removed: close that first")
            guard.users += 1
            self._guard = _guards[self._key] = guard

    def hold(self) -> None:
        """Begin to guard and compare the files. A connection to the tables is open."""
        try:
            with _guards_lock:
                self._guard.hold(self._memory)
            self._identities = tuple(_identity(Path(each).stat()) for each in self._paths)
            self.note()
        except OSError as error:
            raise StoreError(f"{error.filename or self._database} cannot be opened: {error.strerror}") from error
        if self._identities[0] != self._key[1]:
            raise StoreError(f"{self._database} was replaced by another file while it was opened; try again")

    def close(self, close_connection: Callable[[], None]) -> None:
        """Close the store's last connection, and with the last one of the process the guard.

        All stores of the process are blocked during the call, so `close_connection` must not wait for other processes.
        """
        with _guards_lock:
            guard = self._guard
            guard.users -= 1
            if not guard.users:
                guard.release()
            try:
                close_connection()
            finally:
                if not guard.users:
                    del _guards[self._key]
                    guard.close()

    def check(self, save: Callable[[], bool]) -> None:
        """Raise `StoreReplaced` if a file is not at its path: before a write, and before it is acknowledged.

        `save` copies the WAL into the database, if that is still possible, and returns whether all of it was copied.
        """
        if not self._identities:
            return
        found = self._find()
        if found is None or self.failure:
            raise self._lost(save)
        self._condition = _condition(found)

    def are_in_place(self) -> bool:
        """Whether the files at their paths are those that were opened, and always were. Needs no lock."""
        return not self._identities or (self._find() is not None and not self.failure)

    def _find(self) -> os.stat_result | None:
        """The database at its path; None if it, the WAL or the shared memory is not the one that was opened."""
        stat = os.stat  # six times for each group: Path.stat costs twice as much
        database, wal, memory = self._identities
        try:
            found = stat(self._database)
            is_same = (
                (found.st_dev, found.st_ino) == database
                and _identity(stat(self._wal)) == wal
                and _identity(stat(self._memory)) == memory
            )
        except OSError:
            return None
        return found if is_same else None

    def note(self) -> None:
        """Record the condition of the database after this process has changed it."""
        with suppress(OSError):
            self._condition = _condition(Path(self._database).stat())

    def _lost(self, save: Callable[[], bool]) -> StoreReplaced:
        with self._detecting:
            if not self.failure:
                cause = self._cause()
                is_saved = self._save(save)
                self.failure = f"{cause} while the store was open. {SAVED if is_saved else NOT_SAVED}"
                self._guard.is_lost = True
                logger.critical("%s", self.failure)
        return StoreReplaced(self.failure)

    def _cause(self) -> str:
        for path, identity in zip(self._paths, self._identities, strict=True):
            found = _found(path)
            if found is None:
                return f"{path} was removed"
            if found != identity:
                return f"{path} was replaced by another file"
        return f"the files of {self._database} were removed or replaced"

    def _save(self, save: Callable[[], bool]) -> bool:
        """Whether acknowledged work is on disk. A WAL that has lost its name is copied into the database for that.

        Only if the database is as it was at the last check, and no other WAL can have been written since. The guard
        forbids SQLite to delete one, so that "there is none" means "there was none".
        """
        if [_found(path) for path in self._paths[:2]] == [*self._identities[:2]]:
            return True
        with self._guard.without_newcomers() as is_locked:
            try:
                found = Path(self._database).stat()
            except OSError:
                return False
            is_same = _identity(found) == self._identities[0] and _condition(found) == self._condition
            return is_locked and self._guard.is_held and is_same and self._has_no_other_wal() and save()

    def _has_no_other_wal(self) -> bool:
        """An empty WAL was made by a program that has read the database. Once that is closed, nothing depends on it."""
        try:
            size = Path(self._wal).stat().st_size
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return size == 0 and self._guard.is_alone()


SAVED: Final = "What was acknowledged is on disk. Nothing more is written or acknowledged here: start the program again"
NOT_SAVED: Final = (
    "Nothing more is written or acknowledged here, and what was acknowledged since the last checkpoint may be missing "
    "from the files that are there now. Check them (holdfast verify), or restore a backup, and start the program again"
)


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def _found(path: str) -> Identity | None:
    try:
        return _identity(Path(path).stat())
    except OSError:
        return None


def _condition(found: os.stat_result) -> Condition:
    return Condition(found.st_mtime_ns, found.st_size)


def _lock(descriptor: int, kind: int, start: int, length: int) -> bool:
    """Set or remove a lock of an open file description. False where the system or the file system has none."""
    if SET_LOCK is None:
        return False
    try:
        fcntl.fcntl(descriptor, SET_LOCK, struct.pack(FLOCK, kind, os.SEEK_SET, start, length, 0))
    except OSError:
        return False
    return True


# ---------------------------------------------------------------- a second SQLite library

SECOND_LIBRARY: Final = (
    "this program opens its own store %s with Python's sqlite3, a second SQLite library in the process, while Holdfast "
    "has it open. The two do not see each other's locks, so this can damage the file: read it from another process"
)
_watches = False


def _watch_second_libraries() -> None:
    global _watches  # noqa: PLW0603 - an audit hook can never be removed, so there is one per process
    if not _watches:
        _watches = True
        sys.addaudithook(_on_audit_event)


def _on_audit_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "sqlite3.connect" or not _guards or not arguments:
        return
    with suppress(OSError, TypeError, ValueError):  # an error here would be raised by the caller's connect()
        name = os.fsdecode(arguments[0])
        path = name.removeprefix("file:").partition("?")[0] if name.startswith("file:") else name
        guard = _guards.get((generation(), _identity(Path(path).stat())))
        if guard is not None and not guard.is_shared:
            guard.is_shared = True
            logger.warning(SECOND_LIBRARY, path)
