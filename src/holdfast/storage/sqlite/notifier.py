"""Notifications between the processes that share a SQLite file: a datagram socket for each, in a folder beside it.

A notification carries no data: the receiver polls the store. A lost one delays the receiver until its next poll, and an
unnecessary one costs a poll. So `notify` never raises: if it cannot send (no descriptor is free), the others find the
commit at their next poll. A folder or socket that was removed is created again by the next `notify`.

Other programs that write to the file notify no process. A worker detects their rows by a probe (`foreign_writes`).
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.storage.sqlite.foreign_writes import ForeignWriteProbe

logger = logging.getLogger("holdfast")

FOLDER_MODE: Final = 0o700
DATAGRAM: Final = b"!"
MakeProbe: TypeAlias = Callable[[Callable[[str | None], None]], ForeignWriteProbe]
MOST_DATAGRAMS: Final = 64
SETTLING_SECONDS: Final = 2.0
"""How long after a new modification time the folder may change again with the same time: file systems store times with
a resolution of a few milliseconds, some of a second."""


class SocketNotifier:
    """Sends to all other processes and receives from them. Sockets of processes that died are deleted."""

    def __init__(self, store: Path, name: str, heard: Callable[[], None], make_probe: MakeProbe | None = None) -> None:
        self._folder = store.with_name(store.name + "-wake")
        self._name = name
        self._heard = heard
        self._socket: socket.socket | None = None
        self._descriptor = -1
        self._seen_ns = -1
        self._listed_at = self._settled_at = 0.0
        self._others: list[str] = []
        self._is_failing = False
        self._make_probe = make_probe
        self._probe: ForeignWriteProbe | None = None

    def open(self) -> None:
        """Create the socket and start to listen."""
        self._folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            own.setblocking(False)
            own.bind(_address(descriptor, self._name))
        except BaseException:
            own.close()
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self._socket = own
        asyncio.get_running_loop().add_reader(own.fileno(), self._read)

    def _reopen(self) -> None:
        """The folder or the socket in it was removed: create both again, then close the old ones."""
        old = self._socket
        descriptor = self._descriptor
        self.open()
        logger.warning("the socket %s was removed, and was made again", self._folder / self._name)
        if old is not None:
            asyncio.get_running_loop().remove_reader(old.fileno())
            old.close()
            os.close(descriptor)

    def watch_rows(self, inserted: Callable[[str | None], None] | None) -> None:
        """Call `inserted` when other programs may have inserted rows; None ends this."""
        if self._probe is not None:
            self._probe.stop()
            self._probe = None
        if inserted is not None and self._make_probe is not None:
            self._probe = self._make_probe(inserted)
            self._probe.start()

    def rows_handled(self, table: str, ids: Sequence[str]) -> None:
        """Nothing to do: clients poll."""

    def offered(self, queues: Collection[str]) -> None:
        """Nothing to do: clients poll."""

    def close(self) -> None:
        """Stop listening, and delete the socket."""
        self.watch_rows(None)
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        with suppress(OSError):
            (self._folder / self._name).unlink()  # the folder stays: another process may be about to use it
        os.close(self._descriptor)

    def notify(self) -> None:
        """Notify every other process. An error is logged once, until a later call succeeds."""
        if self._socket is None:
            return
        try:
            self._send_to_all()
        except OSError as error:
            if not self._is_failing:
                logger.warning(
                    "other processes could not be notified through %s (%s); they see new work at their next poll",
                    self._folder,
                    error,
                )
            self._is_failing = True
        else:
            self._is_failing = False

    def _send_to_all(self) -> None:
        others = self._known()  # first: listing them may open another socket
        own = self._socket
        if own is None:
            return
        for name in others:
            try:
                own.sendto(DATAGRAM, _address(self._descriptor, name))
            except BlockingIOError:
                continue  # its queue is full of notifications already
            except (ConnectionRefusedError, FileNotFoundError):
                with suppress(OSError):
                    (self._folder / name).unlink()

    def _known(self) -> list[str]:
        """The other sockets. The folder is listed when it has changed, and until its modification time is reliable."""
        now = asyncio.get_running_loop().time()
        changed_ns = self._changed_ns()  # before the list: a later change has another time
        if changed_ns != self._seen_ns:
            self._list(now)
            self._seen_ns = changed_ns  # after the list: one that failed is repeated
            self._settled_at = now + SETTLING_SECONDS
        elif self._listed_at < self._settled_at:
            self._list(now)
        return self._others

    def _changed_ns(self) -> int:
        """The modification time of the folder; 0 if it is missing, which `_list` then handles."""
        try:
            return os.stat(self._folder).st_mtime_ns  # noqa: PTH116 - half the price of Path.stat, for each group
        except FileNotFoundError:
            return 0

    def _list(self, now: float) -> None:
        names = self._names()
        if self._name not in names:
            self._reopen()
            names = self._names()
        self._others = [name for name in names if name != self._name]
        self._listed_at = now

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._folder)  # noqa: PTH208 - names only
        except FileNotFoundError:
            return []

    def _read(self) -> None:
        with suppress(OSError):  # nothing is left to read, or it cannot be read: a poll does no harm
            for _ in range(MOST_DATAGRAMS):
                if self._socket is not None:
                    self._socket.recv(len(DATAGRAM))
        self._heard()


def _address(folder: int, name: str) -> str:
    """Through the descriptor of the folder, because the path of a socket may have 107 bytes at most."""
    return f"/proc/self/fd/{folder}/{name}"
