"""Notifications between the processes that share a SQLite file: a datagram socket for each, in a folder beside it.

A datagram carries a `Wakeup`. One commit sends at most one to each process: work goes to all, the end of an instance to
the processes that wait for it. A socket queues about ten datagrams; what a full queue refuses is sent again a
millisecond later, together with what came meanwhile. A lost one delays the receiver until its next poll. So `notify`
never raises: if it cannot send (no descriptor is free), the others find the commit at their next poll. A folder or
socket that was removed is created again by the next `notify`.

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
from holdfast.storage.wakeups import EVERYTHING, NOTHING, Heard, Wakeup, Wakeups, decode_wakeup, encode_wakeup

logger = logging.getLogger("holdfast")

FOLDER_MODE: Final = 0o700
LONGEST_DATAGRAM: Final = 65_536
RETRY_SECONDS: Final = 0.001
MOST_RETRIES: Final = 50
"""How often a datagram for a full queue is sent again: for a twentieth of a second, then the receiver polls."""
MakeProbe: TypeAlias = Callable[[Callable[[str | None], None]], ForeignWriteProbe]
MOST_DATAGRAMS: Final = 64
SETTLING_SECONDS: Final = 2.0
"""How long after a new modification time the folder may change again with the same time: file systems store times with
a resolution of a few milliseconds, some of a second."""


class SocketNotifier:
    """Sends to all other processes and receives from them. Sockets of processes that died are deleted."""

    def __init__(self, store: Path, name: str, heard: Heard, make_probe: MakeProbe | None = None) -> None:
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
        self._refused: dict[str, Wakeup] = {}
        """Wake-ups that a full queue refused, by the name of the receiver."""
        self._retries = 0

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

    def notify(self, wakeups: Wakeups) -> None:
        """Wake other processes. An error is logged once, until a later call succeeds."""
        if self._socket is None:
            return
        try:
            others = self._known()  # also without wake-ups: it creates a socket again that was removed
            to_each = dict(wakeups.to_each)
            if wakeups.to_all:
                for name in others:
                    to_each[name] = to_each.get(name, NOTHING) | wakeups.to_all
            self._send(to_each)
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

    def _send(self, to_each: dict[str, Wakeup]) -> None:
        for name, wakeup in to_each.items():
            own = self._socket
            if own is None:
                return
            whole = self._refused.pop(name, NOTHING) | wakeup
            try:
                own.sendto(encode_wakeup(whole.bounded()), _address(self._descriptor, name))
            except BlockingIOError:
                self._retry_later(name, whole)
            except (ConnectionRefusedError, FileNotFoundError):
                with suppress(OSError):
                    (self._folder / name).unlink()

    def _retry_later(self, name: str, wakeup: Wakeup) -> None:
        if not self._refused:
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry)
        self._refused[name] = wakeup

    def _retry(self) -> None:
        refused = self._refused
        self._refused = {}
        self._retries = self._retries + 1 if self._retries < MOST_RETRIES else 0
        if self._retries:
            with suppress(OSError):  # the receivers poll
                self._send(refused)
        if not self._refused:
            self._retries = 0

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
        wakeup = NOTHING
        try:
            for _ in range(MOST_DATAGRAMS):
                if self._socket is not None:
                    wakeup |= decode_wakeup(self._socket.recv(LONGEST_DATAGRAM))
        except BlockingIOError:
            pass  # nothing is left to read
        except OSError:
            wakeup = EVERYTHING  # a poll does no harm
        if wakeup:
            self._heard(wakeup)


def _address(folder: int, name: str) -> str:
    """Through the descriptor of the folder, because the path of a socket may have 107 bytes at most."""
    return f"/proc/self/fd/{folder}/{name}"
