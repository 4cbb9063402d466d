"""Real worker processes, started as people start them: ``holdfast worker APP ...``."""

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self

from tests.forking import processes as forking
from tests.workers.app import FOLDER

from holdfast.compose import is_address

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from holdfast.cli import main; main()"]
APP = "tests.workers.app"
POLL_SECONDS = 0.002
LONGEST_SECONDS = 30.0


def folder_of(store: str) -> Path:
    """Where bodies and tests leave files for each other: beside a file, and for a schema among temporary files."""
    if not is_address(store):
        return Path(store).parent
    folder = Path(tempfile.gettempdir()) / f"holdfast-notes-{hashlib.sha256(store.encode()).hexdigest()[:16]}"
    folder.mkdir(exist_ok=True)
    return folder


class Process:
    """A worker, the files through which its bodies talk, and what it says.

    It is forked, which saves half a second, unless it is to be `fresh`: a Python that has to import everything first.
    """

    def __init__(self, store: str, *words: str, env: Mapping[str, str] | None = None, is_fresh: bool = False) -> None:
        self.folder = folder_of(store)
        words = (*words, "--store", store)
        env = {FOLDER: str(self.folder), **(env or {})}
        self._process: forking.Process | subprocess.Popen[str]
        if is_fresh:
            self._process = subprocess.Popen(
                [*COMMAND, *words],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **env},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        else:
            self._process = forking.Process("holdfast.cli:main", *words, env=env, has_session=True)
        self.key = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def headline(self) -> str:
        """The line with which it tells that it works."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, self._process.communicate()[1]
        return line

    @property
    def log(self) -> IO[str]:
        """What it logs, as it comes. What was read here is not among what `left` returns."""
        assert self._process.stderr is not None
        return self._process.stderr

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def left(self, seconds: float = LONGEST_SECONDS) -> tuple[int, str]:
        """Wait until it has ended: its exit code, and what it logged."""
        _, logged = self._process.communicate(timeout=seconds)
        return self._process.wait(), logged

    def stopped(self, seconds: float = LONGEST_SECONDS) -> str:
        """End it by SIGTERM: what it printed after its headline."""
        self.send_signal(signal.SIGTERM)
        printed, _ = self._process.communicate(timeout=seconds)
        assert self._process.wait() == 0
        return printed or ""

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        with self._process:
            self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@contextmanager
def worker(store: str, *options: str, app: str = APP) -> Generator[Process]:
    """A worker that works; it is killed on the way out if it still runs."""
    process = Process(store, "worker", app, *options)
    try:
        process.key = key_in(process.headline())
        yield process
    finally:
        process.end()


def key_in(headline: str) -> str:
    return headline.split()[1]


def open_gate(store: str, name: str) -> None:
    (folder_of(store) / name).touch()


def notes(store: str) -> list[list[str]]:
    """What bodies wrote down, in order, as words."""
    path = folder_of(store) / "notes"
    return [line.split() for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def await_note(store: str, *words: object) -> None:
    """Wait until a body has written a line that begins with these words."""
    wanted = [str(word) for word in words]
    until = time.monotonic() + LONGEST_SECONDS  # noqa: TID251 - a bound for real processes
    while not any(line[: len(wanted)] == wanted for line in notes(store)):
        assert time.monotonic() < until, f"no body wrote {wanted}: {notes(store)}"  # noqa: TID251
        time.sleep(POLL_SECONDS)
