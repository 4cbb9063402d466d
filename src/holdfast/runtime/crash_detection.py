"""Crash detection on one machine: the crash marker of a worker (G12) and the identity of its process (W11).

A process that is killed by the code it runs cannot record that, and a write to the store before every turn would cost
more than the turn. So a worker keeps the number of the running instance in eight bytes of a memory-mapped file: a write
costs nothing, and the operating system keeps the file when the process is gone. The worker that marks it as lost reads
the file. Only a worker that died, or hangs, in the middle of workflow code leaves a number; a worker that is killed at
another moment leaves zero. After a power cut the bytes may be old or lost. Workers on other machines cannot read the
file, and then suspect every instance that the lost worker owned.

A process is identified by boot id, PID namespace, pid and start time. Only a process of the same boot and namespace is
judged. If anything is unclear it counts as alive, and the lease decides.
"""

import logging
import mmap
import os
import socket
from contextlib import suppress
from pathlib import Path
from stat import S_IWOTH
from typing import Final

import msgspec

from holdfast.core.leases import WorkerKey
from holdfast.storage.records import InstanceNumber

logger = logging.getLogger("holdfast")

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
SIZE_BYTES: Final = 8
NOBODY: Final = InstanceNumber(0)
REMOVED_AFTER_SECONDS: Final = 7 * 86_400
"""The age at which marker files are removed: workers of another machine have marked their owners as lost."""


class CrashMarker:
    """The marker of one worker; reads those of lost ones, too. `slot[0]` is the instance that runs here."""

    __slots__ = ("_folder", "_key", "slot")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key: WorkerKey | None = None
        self.slot: memoryview[int] | list[int] = [NOBODY]

    def open(self, key: WorkerKey) -> None:
        """Write under a key from here on. If that is not possible, the cause of this worker's death stays unknown.

        The marker of the key before keeps its last value.
        """
        self.detach()
        try:
            self._folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            _require_own(self._folder)
            descriptor = os.open(self._folder / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                os.write(descriptor, bytes(SIZE_BYTES))  # reserves room on the disk for the mapping
                self.slot = memoryview(mmap.mmap(descriptor, SIZE_BYTES)).cast("q")
                self._sweep(os.fstat(descriptor).st_mtime - REMOVED_AFTER_SECONDS)
            finally:
                os.close(descriptor)
            self._key = key
        except OSError as error:
            logger.warning("what worker %s runs cannot be kept in %s: %s", key, self._folder, error)

    def restore(self) -> None:
        """Recreate the file if it was removed. Called between two turns."""
        key = self._key
        if key is not None and not (self._folder / key).exists():
            logger.warning("%s was removed, and is made again", self._folder / key)
            self.open(key)

    def detach(self) -> None:
        """Write no more, and keep the file with its last value."""
        self._key = None
        self.slot = [NOBODY]

    def close(self) -> None:
        """Write no more, and remove the file."""
        if self._key is not None:
            self.remove(self._key)
        self.detach()

    def read(self, key: WorkerKey) -> InstanceNumber | None:
        """The instance whose code a worker ran last, or `NOBODY`; None if the marker cannot be read."""
        try:
            data = (self._folder / key).read_bytes()
        except OSError:
            return None
        return InstanceNumber(memoryview(data).cast("q")[0]) if len(data) == SIZE_BYTES else None

    def remove(self, key: WorkerKey) -> None:
        """Remove the marker of a worker that is marked as lost."""
        with suppress(OSError):
            (self._folder / key).unlink()

    def _sweep(self, before: float) -> None:
        for file in self._folder.iterdir():
            with suppress(OSError):
                if file.stat().st_mtime < before:
                    file.unlink()


def _require_own(folder: Path) -> None:
    """In a folder that all users may write to, another user could have created this one and forge markers."""
    if folder.lstat().st_uid != os.getuid() and folder.parent.stat().st_mode & S_IWOTH:
        raise PermissionError(f"{folder} belongs to another user")


START_TIME_FIELD: Final = 19
"""The index in /proc/<pid>/stat after the name in parentheses; index 0 is the state."""
GONE_STATES: Final = ("Z", "X", "x")


class HostIdentity(msgspec.Struct, frozen=True):
    """One process on one boot of one machine."""

    boot_id: str
    namespace: int
    pid: int
    started: str
    name: str = ""
    """The host name, for display only."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


def decode_identity(data: bytes) -> HostIdentity | None:
    """The identity that a worker registered; None if it cannot be decoded."""
    try:
        return msgspec.json.decode(data, type=HostIdentity)
    except msgspec.MsgspecError:
        return None


def this_process() -> HostIdentity:
    """The identity of this process. Without /proc it is incomplete, and then no process is judged."""
    pid, name = os.getpid(), socket.gethostname()
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/pid").stat().st_ino
        stat = _stat_of(pid)
    except OSError:
        return HostIdentity("", 0, pid, "", name)
    return HostIdentity(boot_id, namespace, pid, stat[START_TIME_FIELD], name)


def is_dead(other: HostIdentity, own: HostIdentity) -> bool:
    """Whether `other` has certainly ended."""
    comparable = bool(own.boot_id) and (other.boot_id, other.namespace) == (own.boot_id, own.namespace)
    if not comparable:
        return False
    try:
        stat = _stat_of(other.pid)
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    return stat[START_TIME_FIELD] != other.started or stat[0] in GONE_STATES


def _stat_of(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return text.rpartition(")")[2].split()
