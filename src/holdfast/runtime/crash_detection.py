"""What a worker was at when it died: the instance whose code it ran, kept where others find it (G12).

A process that is killed by the code it runs cannot say so, and a write to the store before every turn would cost more
than the turn. So a worker keeps the number of the running instance in eight bytes of a file that is mapped into its
memory: writing it costs nothing, and the system keeps it when the process is gone. Whoever finds the worker dead reads
it. Only a worker that ended, or hangs, in the middle of workflow code leaves a number: being killed at another moment
accuses nobody. After a power cut the bytes may be old or lost. Words are for those who share a machine; who finds none
suspects everything that the worker had.

Where a worker runs, so that its death on the same machine is seen at once (W11).

A process is named by boot id, PID namespace, pid and start time. Only a process of the same boot and namespace is
judged; if anything is unclear the answer is "alive", and the lease decides.
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
FORGOTTEN_AFTER_SECONDS: Final = 7 * 86_400
"""Words that nobody asked for meanwhile: whoever found their worker gone did not share its machine."""


class CrashMarker:
    """The words of one worker, and of others that are gone. `slot[0]` is the number of the instance that runs here."""

    __slots__ = ("_folder", "_key", "slot")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key: WorkerKey | None = None
        self.slot: memoryview[int] | list[int] = [NOBODY]

    def open(self, key: WorkerKey) -> None:
        """Begin to speak under a key. Where that is not possible, nobody can know what this worker died of.

        What was said under the key before stands until that one is lost: nobody.
        """
        self.detach()
        try:
            self._folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            _require_own(self._folder)
            descriptor = os.open(self._folder / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                os.write(descriptor, bytes(SIZE_BYTES))  # so that there is room on the disk when it is written to
                self.slot = memoryview(mmap.mmap(descriptor, SIZE_BYTES)).cast("q")
                self._sweep(os.fstat(descriptor).st_mtime - FORGOTTEN_AFTER_SECONDS)
            finally:
                os.close(descriptor)
            self._key = key
        except OSError as error:
            logger.warning("what worker %s runs cannot be kept in %s: %s", key, self._folder, error)

    def restore(self) -> None:
        """Make the file again if it was removed, which nothing but a look at its path can find. Between two turns."""
        key = self._key
        if key is not None and not (self._folder / key).exists():
            logger.warning("%s was removed, and is made again", self._folder / key)
            self.open(key)

    def detach(self) -> None:
        """Speak no more, and let what was said last stand: this worker hangs in it."""
        self._key = None
        self.slot = [NOBODY]

    def close(self) -> None:
        """Speak no more, and leave nothing behind."""
        if self._key is not None:
            self.remove(self._key)
        self.detach()

    def read(self, key: WorkerKey) -> InstanceNumber | None:
        """The instance whose code a worker ran when it was heard last, or `NOBODY`. None: it cannot be known."""
        try:
            said = (self._folder / key).read_bytes()
        except OSError:
            return None
        return InstanceNumber(memoryview(said).cast("q")[0]) if len(said) == SIZE_BYTES else None

    def remove(self, key: WorkerKey) -> None:
        """What a worker said has been taken into account."""
        with suppress(OSError):
            (self._folder / key).unlink()

    def _sweep(self, before: float) -> None:
        for file in self._folder.iterdir():
            with suppress(OSError):
                if file.stat().st_mtime < before:
                    file.unlink()


def _require_own(folder: Path) -> None:
    """Where everybody may make folders somebody else could have made this one, to have words put into our mouth."""
    if folder.lstat().st_uid != os.getuid() and folder.parent.stat().st_mode & S_IWOTH:
        raise PermissionError(f"{folder} belongs to another user")


START_TIME_FIELD: Final = 19
"""Of /proc/<pid>/stat, counted behind the name in parentheses; the state is the first there."""
GONE_STATES: Final = ("Z", "X", "x")


class HostIdentity(msgspec.Struct, frozen=True):
    """One process on one boot of one machine."""

    boot_id: str
    namespace: int
    pid: int
    started: str
    name: str = ""
    """What people call the machine. Nobody is judged by it."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


def decode_identity(data: bytes) -> HostIdentity | None:
    """What a worker said about itself; None if it cannot be understood."""
    try:
        return msgspec.json.decode(data, type=HostIdentity)
    except msgspec.MsgspecError:
        return None


def this_process() -> HostIdentity:
    """The identity of the process that asks. Where the system does not tell, nobody is ever judged."""
    pid, name = os.getpid(), socket.gethostname()
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/pid").stat().st_ino
        stat = _stat_of(pid)
    except OSError:
        return HostIdentity("", 0, pid, "", name)
    return HostIdentity(boot_id, namespace, pid, stat[START_TIME_FIELD], name)


def is_dead(other: HostIdentity, own: HostIdentity) -> bool:
    """Whether `other` is certainly gone, as far as `own` can see."""
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
