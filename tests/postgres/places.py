"""One folder for all that the PostgreSQL servers of a test run need: shared by its processes, removed at its end."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "holdfast-test-"
RUN = "HOLDFAST_TEST_RUN"
"""The process that began the run; those that it starts inherit it."""
FOLDER_MODE = 0o755
"""Whoever runs PostgreSQL must be able to enter it."""


def begin_run() -> None:
    """The first process that says so owns the run."""
    os.environ.setdefault(RUN, str(os.getpid()))


def of_run() -> Path:
    """The folder. Its path is short, because the path of a socket may have 107 bytes at most."""
    folder = _folder()
    folder.mkdir(exist_ok=True)
    folder.chmod(FOLDER_MODE)
    return folder


def end_run() -> None:
    """Whoever owns the run removes what is left."""
    if os.environ.get(RUN) == str(os.getpid()):
        shutil.rmtree(_folder(), ignore_errors=True)


def sweep(older_than_seconds: float = 3_600) -> None:
    """Remove what runs left behind that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            process = folder.name.removeprefix(PREFIX)
            is_over = process.isdigit() and not Path("/proc", process).exists()
            age_seconds = time.time() - folder.stat().st_mtime  # noqa: TID251 - the file system's clock is the wall's
            if is_over and folder != _folder() and age_seconds >= older_than_seconds:
                shutil.rmtree(folder, ignore_errors=True)


def _folder() -> Path:
    return Path(tempfile.gettempdir()) / f"{PREFIX}{os.environ[RUN]}"


@contextmanager
def alone(what: str) -> Generator[None]:
    """Only one process of the run does this at a time."""
    with (of_run() / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
