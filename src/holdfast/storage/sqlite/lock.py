"""The queue between processes: one of them writes at a time, in turn, and nobody sees "database is locked".

Two locks of the operating system on files beside the store make a turnstile. A lock by itself has no queue: whoever
releases it is first to take it again, and the others starve. Here one waits at the gate (the second file) while another
is inside (the first); who comes out has to go behind the one at the gate. Both are released when their holder dies,
however it dies.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.errors import StoreError
from holdfast.storage.sqlite.patience import watch

FILE_MODE: Final = 0o600


class WriteLock:
    """Held around every write transaction and checkpoint. Each connection that writes has one of its own."""

    def __init__(self, store: Path) -> None:
        self._path = store.with_name(store.name + "-lock")
        self._inside = _open(self._path)
        self._gate = _open(store.with_name(store.name + "-gate"))

    def close(self) -> None:
        os.close(self._inside)
        os.close(self._gate)

    def take(self, *, wait: bool) -> bool:
        """Take the lock, in turn. Without `wait` the answer may be no; with it, waits however long it takes."""
        if self._try():
            return True
        if not wait:
            return False
        watch.begin(self._inside, self._path)
        try:
            fcntl.flock(self._gate, fcntl.LOCK_EX)
            try:
                fcntl.flock(self._inside, fcntl.LOCK_EX)
            finally:
                fcntl.flock(self._gate, fcntl.LOCK_UN)
        finally:
            watch.end(self._inside)
        return True

    def _try(self) -> bool:
        at_once = fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            fcntl.flock(self._gate, at_once)
        except BlockingIOError:
            return False
        try:
            fcntl.flock(self._inside, at_once)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        return True

    def release(self) -> None:
        fcntl.flock(self._inside, fcntl.LOCK_UN)

    @contextmanager
    def held(self) -> Generator[None]:
        """Wait for the lock, however long those before us need."""
        self.take(wait=True)
        try:
            yield
        finally:
            self.release()


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error.strerror}") from error
