"""Processes that are stopped (SIGSTOP), as by a debugger or a machine that is put to sleep."""

import fcntl
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

POLL_SECONDS = 0.001
LIMIT_SECONDS = 30.0


class Stoppable(Protocol):
    """A process of any make."""

    @property
    def pid(self) -> int: ...

    def send_signal(self, number: signal.Signals, /) -> None: ...


def await_stop(process: Stoppable) -> None:
    """Wait until it stands still."""
    until = time.monotonic() + LIMIT_SECONDS  # noqa: TID251 - a bound for real processes
    while Path(f"/proc/{process.pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < until, "it does not stop"  # noqa: TID251
        time.sleep(POLL_SECONDS)


def freeze(process: Stoppable, store: str, is_ripe: Callable[[], object] = lambda: True) -> None:
    """Stop it when that is so, and it does not hold the write lock of a file, which nobody can take from the living."""
    locks = [Path(f"{store}{suffix}") for suffix in ("-gate", "-lock")]
    while True:
        process.send_signal(signal.SIGSTOP)
        await_stop(process)
        if all(_is_free(lock) for lock in locks if lock.exists()) and is_ripe():
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(POLL_SECONDS)


def _is_free(lock: Path) -> bool:
    with lock.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
