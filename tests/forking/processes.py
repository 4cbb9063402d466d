"""Real processes for tests, forked by a helper (`tests.forking.server`) because a fresh Python takes half a second.

There is one helper for each test process. A process is used as one of `subprocess.Popen` with pipes for all streams.
"""

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
from tests.forking.server import MOST_BYTES, Begun, Ended, Request, encode

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 60.0
decode = msgspec.msgpack.Decoder(Begun | Ended).decode


class Outcome(NamedTuple):
    """How a process ended, what it said, and what it complained about."""

    code: int
    said: str
    complaints: str


class Process:
    """A process that was forked. Leaving it kills it if it still runs."""

    def __init__(
        self, main: str, *arguments: object, env: Mapping[str, str] | None = None, has_session: bool = False
    ) -> None:
        theirs_in, mine_in = os.pipe()
        mine_out, theirs_out = os.pipe()
        mine_errors, theirs_errors = os.pipe()
        self.stdin = os.fdopen(mine_in, "w", encoding="utf-8")
        self.stdout = os.fdopen(mine_out, encoding="utf-8")
        self.stderr = os.fdopen(mine_errors, encoding="utf-8", errors="replace")
        self.returncode: int | None = None
        self._main = main
        self._answers, asker = socket.socketpair(type=socket.SOCK_SEQPACKET)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
        request = Request(main, list(map(str, arguments)), environment, has_session)
        streams = (theirs_in, theirs_out, theirs_errors)
        with asker:
            socket.send_fds(helper(), [encode(request)], [*streams, asker.fileno()])
        for stream in streams:
            os.close(stream)
        message, descriptors, _, _ = socket.recv_fds(self._answers, MOST_BYTES, 1)
        if not message:
            raise RuntimeError(f"the helper that was to fork {main} has ended; why is among the errors of this process")
        (self._signals,) = descriptors
        begun = decode(message)
        assert isinstance(begun, Begun)
        self.pid = begun.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self.stderr.close()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._signals, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """The code with which it ended; None if it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float = LIMIT_SECONDS) -> int:
        """Wait until it has ended: its code, which is less than zero for a signal."""
        if self.returncode is None:
            news = select.poll()
            news.register(self._answers, select.POLLIN)
            if not news.poll(timeout * 1_000):
                raise subprocess.TimeoutExpired(self._main, timeout)
            ended = decode(self._answers.recv(MOST_BYTES))
            assert isinstance(ended, Ended)
            self.returncode = ended.code
            self._answers.close()
            os.close(self._signals)
        return self.returncode

    def communicate(self, text: str = "", timeout: float = LIMIT_SECONDS) -> tuple[str, str]:
        """Tell it something, and that this was all; when it has ended, give what it said. One that hangs is killed."""
        hanging = threading.Timer(timeout, self.kill)
        hanging.start()
        with suppress(BrokenPipeError):
            self.stdin.write(text)
            self.stdin.close()
        with ThreadPoolExecutor(1) as reader:
            complaints = reader.submit(self.stderr.read)
            said = self.stdout.read()
        is_hung = hanging.finished.is_set()
        hanging.cancel()
        hanging.join()
        self.stdout.close()
        self.stderr.close()
        self.wait()
        if is_hung:
            raise AssertionError(f"{self._main} was killed after {timeout} seconds:\n{complaints.result()}")
        return said, complaints.result()


@contextmanager
def program(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None
) -> Generator["subprocess.Popen[str]"]:
    """A program that is started and not forked, with pipes for its streams. It is killed when the block is left."""
    with subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run(main: str, *arguments: object, seconds: float = LIMIT_SECONDS) -> Outcome:
    """Run a function of a module in a process of its own, to its end."""
    with Process(main, *arguments) as process:
        said, complaints = process.communicate(timeout=seconds)
        return Outcome(process.wait(), said, complaints)


@cache
def helper() -> socket.socket:
    """Where requests go. The helper ends when no copy of this socket is left, that is with this process."""
    mine, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forking.server", str(theirs.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # so that an interrupt from the keyboard is not for it
        )
    atexit.register(_end, mine, process)
    return mine


def _end(requests: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    requests.close()
    process.wait(LIMIT_SECONDS)
