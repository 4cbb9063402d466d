"""Real processes that use a store, watched from outside: they go on, or they do not."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from tests.postgres.load import Told

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split()])}
LIMIT_SECONDS = 60.0
MOST_SHOWN = 20_000


def words(role: str, store: str, *rest: str) -> list[str]:
    """What starts a process of the load."""
    return [sys.executable, "-m", "tests.postgres.load", role, store, *rest]


class Watched:
    """A process whose lines are counted."""

    def __init__(self, process: "subprocess.Popen[str]", errors: Path) -> None:
        self.process = process
        self._errors = errors
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._has_ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.strip())
                self._news.notify_all()
        with self._news:
            self._has_ended = True
            self._news.notify_all()

    def say_more(self, count: int, seconds: float = LIMIT_SECONDS) -> float:
        """Wait until it has said so many more lines, and tell how long the first of them took."""
        before = time.monotonic()  # noqa: TID251 - real processes, real time
        first = len(self.lines) + 1
        self.have_said(first, seconds)
        took = time.monotonic() - before  # noqa: TID251
        self.have_said(first + count - 1, seconds)
        return took

    def have_said(self, count: int, seconds: float = LIMIT_SECONDS) -> None:
        """Wait until it has said so many lines in all."""
        with self._news:
            is_told = self._news.wait_for(lambda: len(self.lines) >= count or self._has_ended, seconds)
        if len(self.lines) < count:
            complaints = self._errors.read_text(encoding="utf-8")
            end = f"nothing was done for {seconds} seconds" if not is_told else f"it ended: {self.process.poll()}"
            raise AssertionError(f"{end}\n{complaints[-MOST_SHOWN:]}")

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def close(self) -> None:
        """It was killed, or has ended."""
        self.process.wait()
        self._thread.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def finish(self, seconds: float = LIMIT_SECONDS) -> str:
        """Tell it to end, wait until it has, and give its last line."""
        self.tell("")
        assert self.process.wait(seconds) == 0
        self._thread.join()
        return self.lines[-1]


@contextmanager
def watched(command: Sequence[str], errors: Path) -> Generator[Watched]:
    """Start a process; it is killed on the way out if it still runs. What it complains about goes to a file."""
    with errors.open("a", encoding="utf-8") as complaints:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
        )
    mine = Watched(process, errors)
    try:
        yield mine
    finally:
        process.kill()
        mine.close()


def told_by(client: Watched) -> Told:
    """Let a client finish, and read what it was told."""
    return msgspec.json.decode(client.finish(), type=Told)


def verify(store: str) -> str:
    """`holdfast verify`; the store must be sound."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "verify", "--store", store],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout
