"""Where a worker runs, so that its death on the same machine is seen at once (W11).

A process is named by boot id, PID namespace, pid and start time. Only a process of the same boot and namespace is
judged; if anything is unclear the answer is "alive", and the lease decides.
"""

import os
import socket
from pathlib import Path
from typing import Final

import msgspec

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
