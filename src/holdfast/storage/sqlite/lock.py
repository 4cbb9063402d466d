"""The queue between processes: one of them writes at a time, in turn, and nobody sees "database is locked".

Two locks of the operating system on files beside the store make a turnstile. A lock by itself has no queue: whoever
releases it is first to take it again, and the others starve. Here one waits at the gate (the second file) while another
is inside (the first); who comes out has to go behind the one at the gate. Both are released when their holder dies,
however it dies.
"""

import fcntl
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.errors import StoreError
from holdfast.storage.sqlite.patience import watch

logger = logging.getLogger("holdfast")

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
        watch.begin(waiter, self._inside.path)
        try:
            fcntl.flock(gate, fcntl.LOCK_EX)
            try:
                fcntl.flock(waiter, fcntl.LOCK_EX)
            finally:
                fcntl.flock(gate, fcntl.LOCK_UN)
        finally:
            watch.end(waiter)
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
