"""The program of an external activity: its process, its standard streams, and its output as a value.

The program has the input as JSON on standard input, which is a file. It runs in a session of its own, so that Ctrl-C
does not reach it, and a stop reaches every process of its group: SIGTERM first, SIGKILL after a grace period. Standard
error is passed on, and its tail is kept for the failure.
"""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from holdfast.errors import PayloadError
from holdfast.payloads.encoding import encode
from holdfast.payloads.limits import LOCATE_LIMIT_BYTES
from holdfast.payloads.untrusted import check_untrusted, find_fault

TAIL_BYTES: Final = 4_096
"""The end of standard error that a failure has."""
CHUNK_BYTES: Final = 65_536
PIPE_SECONDS: Final = 2.0
"""How long a process that the program left behind may hold its standard streams open."""


class OutputKind(Enum):
    """How standard output is read."""

    JSON = "one JSON value"
    TEXT = "a string"
    RESPONSES = "a JSON value in each line, sent as it is printed"


class ProgramError(Exception):
    """The program has no result. `retryable` is False if another run would end in the same way."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


@dataclass(frozen=True, slots=True)
class Command:
    """A program, and the options for its output."""

    words: Sequence[str]
    output: OutputKind
    payload_limit: int
    grace_seconds: float

    @property
    def name(self) -> str:
        return Path(self.words[0]).name


class ProgramRun:
    """One run of a program."""

    def __init__(self, command: Command, respond: Callable[[str], Awaitable[None]]) -> None:
        self._command = command
        self._respond = respond
        self._process: asyncio.subprocess.Process | None = None
        self._output = bytearray()
        self._tail = bytearray()
        self._fault: ProgramError | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._taken = 0
        """Pieces of output that were read."""
        self._is_taking = 0
        """Pieces of output that are being sent."""

    async def run(self, given: bytes, environment: Mapping[str, str]) -> str | None:
        """Run the program to its end. Returns its result as JSON, None without output; `ProgramError` if it failed."""
        with tempfile.TemporaryFile() as standard_input:
            standard_input.write(given)
            standard_input.seek(0)
            readers, writers = zip(os.pipe(), os.pipe(), strict=True)
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command.words,
                    stdin=standard_input,
                    stdout=writers[0],
                    stderr=writers[1],
                    env={**os.environ, **environment},
                    start_new_session=True,
                )
            except OSError as error:
                for reader in readers:
                    os.close(reader)
                raise ProgramError(f"{self._command.words[0]} cannot be started: {error.strerror or error}") from error
            finally:
                for writer in writers:
                    os.close(writer)
        reading = [
            asyncio.create_task(self._read(readers[0], self._take_output)),
            asyncio.create_task(self._read(readers[1], self._take_error)),
        ]
        for task in reading:
            task.add_done_callback(self._has_read)
        code = await self._process.wait()
        await self._finish_reading(reading)
        if self._command.output is OutputKind.RESPONSES:
            await self._take_line(bytes(self._output))  # the last line may have no end
            self._output.clear()
        if self._stopping is not None:
            await self._stopping
        return self._result(code)

    def stop(self) -> None:
        """Ask the processes of the program to end, and kill them after the grace period. A second call does nothing."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._end())

    async def _end(self) -> None:
        process = self._process
        if process is None:
            return
        self._signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._command.grace_seconds):
                await process.wait()
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    async def _finish_reading(self, reading: Sequence["asyncio.Task[None]"]) -> None:
        """Read the rest. A process that the program left behind is killed if it holds a stream open."""
        is_killed = False
        while True:
            taken = self._taken
            _, open_streams = await asyncio.wait(reading, timeout=PIPE_SECONDS)
            if not open_streams:
                break
            if self._is_taking or self._taken != taken:
                continue  # the rest of the output is being sent
            if is_killed:
                break
            self._signal(signal.SIGKILL)
            is_killed = True
        for task in open_streams:
            task.cancel()
        ended = await asyncio.gather(*reading, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    def _has_read(self, reading: "asyncio.Task[None]") -> None:
        """Stop the program if its output cannot be taken any more: it would wait for ever."""
        if not reading.cancelled() and reading.exception() is not None:
            self.stop()

    # ------------------------------------------------------------ streams

    async def _read(self, descriptor: int, take: Callable[[bytes], Awaitable[None]]) -> None:
        """Read a stream to its end."""
        loop = asyncio.get_running_loop()
        stream = asyncio.StreamReader(limit=CHUNK_BYTES)
        pipe = os.fdopen(descriptor, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
        try:
            while data := await stream.read(CHUNK_BYTES):
                self._taken += 1
                self._is_taking += 1
                await take(data)
                self._is_taking -= 1
        finally:
            transport.close()

    async def _take_error(self, data: bytes) -> None:
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
        self._tail += data
        del self._tail[:-TAIL_BYTES]

    async def _take_output(self, data: bytes) -> None:
        if self._fault is not None:
            return
        self._output += data
        if self._command.output is OutputKind.RESPONSES:
            *lines, rest = bytes(self._output).split(b"\n")
            self._output[:] = rest
            for line in lines:
                await self._take_line(line)
        if len(self._output) > self._command.payload_limit:
            what = "a line of" if self._command.output is OutputKind.RESPONSES else "the"
            self._fail(
                f"{what} standard output of {self._command.name} is larger than the payload limit of "
                f"{self._command.payload_limit:,} bytes; store large data elsewhere and print its key"
            )

    async def _take_line(self, line: bytes) -> None:
        """Send a line as a response. Empty lines are skipped."""
        if self._fault is None and line.strip():
            try:
                value = self._checked(line, "a line of standard output")
                await self._respond(value)
            except ProgramError as error:
                self._fail(str(error))

    def _fail(self, message: str) -> None:
        self._fault = ProgramError(message, retryable=False)
        self._output.clear()
        self.stop()

    # ------------------------------------------------------------ result

    def _result(self, code: int) -> str | None:
        if self._fault is not None:
            raise self._fault
        if code != 0:
            tail = self._tail.decode(errors="replace").strip()
            how = f"exited with {code}" if code > 0 else f"was ended by {_described_signal(-code)}"
            raise ProgramError(f"{self._command.name} {how}" + (f": {tail}" if tail else ""))
        output = bytes(self._output)
        match self._command.output:
            case OutputKind.TEXT:
                try:
                    text = output.decode().removesuffix("\n")
                    return self._checked(encode(text, what="the output"), "standard output")
                except (UnicodeDecodeError, PayloadError) as error:
                    raise ProgramError(
                        f"standard output of {self._command.name} is not text: {error}", retryable=False
                    ) from error
            case OutputKind.JSON:
                return self._checked(output, "standard output") if output.strip() else None
            case OutputKind.RESPONSES:
                return None

    def _checked(self, data: bytes, what: str) -> str:
        try:
            check_untrusted(data, max_bytes=self._command.payload_limit)
        except PayloadError as error:
            fault = find_fault(data) if len(data) <= LOCATE_LIMIT_BYTES else None
            is_line = self._command.output is OutputKind.RESPONSES
            remedy = "print a JSON value in each line" if is_line else "print JSON, or use --text for a string"
            raise ProgramError(
                f"{what} of {self._command.name} is not a JSON value: {fault or error}; {remedy}", retryable=False
            ) from error
        return data.decode()


def _described_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
