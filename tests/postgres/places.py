"""One folder for all that the PostgreSQL servers of a test run need: shared by its processes, removed at its end."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

RUN = "HOLDFAST_TEST_RUN"
"""The process that began the run; those that it starts inherit it."""
FOLDER_MODE = 0o755
"""Whoever runs PostgreSQL must be able to enter it."""


def begin_run() -> None:
    """The first process that says so owns the run."""
    os.environ.setdefault(RUN, str(os.getpid()))


def of_run() -> Path:
    """The folder. Its path is short, because the path of a socket may have 107 bytes at most."""
    folder = Path(tempfile.gettempdir()) / f"holdfast-test-{os.environ[RUN]}"
    folder.mkdir(exist_ok=True)
    folder.chmod(FOLDER_MODE)
    return folder


def end_run() -> None:
    """Whoever owns the run removes what is left."""
    if os.environ.get(RUN) == str(os.getpid()):
        shutil.rmtree(Path(tempfile.gettempdir()) / f"holdfast-test-{os.environ[RUN]}", ignore_errors=True)


@contextmanager
def alone(what: str) -> Generator[None]:
    """Only one process of the run does this at a time."""
    with (of_run() / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
