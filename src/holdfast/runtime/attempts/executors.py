"""Executors for bodies that block: child processes and threads.

A child process runs one body after the other. It is killed when a body does not stop, or when the connection to it
breaks.

Threads are daemons without a fixed number: a body that hangs is abandoned, the next one gets another thread, and the
process can still exit. (`ThreadPoolExecutor` would run out of threads and wait for the hanging one at exit.)
"""

import asyncio
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from holdfast.authoring.activity import Activity, ActivityContext, Cancelled
from holdfast.errors import ProcessDied
from holdfast.fork import generation, leave_if_forked
from holdfast.payloads.failures import RecordedFailure
from holdfast.runtime.attempts.process_child import (
    LENGTH_BYTES,
    LONGEST_MESSAGE,
    Begin,
    BodyError,
    BodyResult,
    BodyTask,
    Cancel,
    Ready,
    ToChild,
    decode_from_child,
    framed,
)
from holdfast.runtime.platform import SystemClockAndIds

MOST_IDLE: Final = 4
"""Idle children that are kept for the next bodies. Further ones are killed when their body has ended."""
MAIN: Final = "__main__"


class BodyCall(ActivityContext, Protocol):
    """The attempt whose body runs in a process."""

    send_cancel: Callable[[], None] | None

    def begin(self) -> None: ...
    def lease_left_ms(self) -> int: ...
    def beat(self, details: Any) -> None: ...


class FailedInProcess(Exception):
    """A body raised in its process: the failure as it was recorded there."""

    def __init__(self, failure: RecordedFailure, types: tuple[str, ...]) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.types = types


class ChildProcess:
    """One child process, and the connection to it."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.process = process
        self.reader = reader
        self.writer = writer

    def send(self, message: ToChild) -> None:
        """Does not wait for the socket: messages are few, and small except for the first."""
        self.writer.write(framed(message))

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.writer.close()

    async def end(self) -> None:
        """Kill the process and wait until it has exited."""
        self.kill()
        await self.process.wait()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


class ProcessPool:
    """Runs bodies in child processes. Cancelling `run` kills the child; `send_cancel` asks the body to stop."""

    def __init__(self) -> None:
        self._idle: list[ChildProcess] = []
        self._ending: list[ChildProcess] = []
        self._spawning: set[asyncio.Task[ChildProcess]] = set()
        """Children whose bodies were cancelled before they had a process."""

    async def run(self, activity: Activity[..., Any], encoded: bytes, body: BodyCall) -> bytes:
        """The encoded result of a body. An exception of the body is raised as `FailedInProcess`."""
        child = self._idle.pop() if self._idle else await self._new_child()
        finished = False
        try:
            child.send(_task_of(activity, encoded, body))
            body.send_cancel = lambda: child.send(Cancel())
            await child.writer.drain()
            answer = await _answer(child, body)
            finished = True
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            code = await child.process.wait()
            raise ProcessDied(f"the process of {activity.name} ended with code {code} before its body did") from error
        finally:
            body.send_cancel = None
            self._put_back(child, finished)
        if isinstance(answer, BodyError):
            failure = msgspec.json.decode(answer.failure, type=RecordedFailure)
            if answer.is_cancelled:
                raise Cancelled(failure.message)
            raise FailedInProcess(failure, answer.types)
        return bytes(answer.data)

    async def _new_child(self) -> ChildProcess:
        """A new child. If the caller is cancelled meanwhile, the child is kept for the next body, and is not lost."""
        spawning = asyncio.get_running_loop().create_task(_spawn())
        try:
            return await asyncio.shield(spawning)
        except asyncio.CancelledError:
            self._spawning.add(spawning)
            spawning.add_done_callback(self._keep_spawned)
            raise

    def _keep_spawned(self, spawning: "asyncio.Task[ChildProcess]") -> None:
        self._spawning.discard(spawning)
        if not spawning.cancelled() and spawning.exception() is None:
            self._put_back(spawning.result(), finished=True)

    async def close(self) -> None:
        """Kill all children and wait until they have exited."""
        if self._spawning:
            await asyncio.wait(self._spawning)
            await asyncio.sleep(0)  # their callbacks have run
        children = self._idle + self._ending
        self._idle = []
        self._ending = []
        for child in children:
            await child.end()

    def _put_back(self, child: ChildProcess, finished: bool) -> None:
        if finished and len(self._idle) < MOST_IDLE:
            self._idle.append(child)
        else:
            child.kill()
            self._ending = [other for other in self._ending if other.process.returncode is None]
            self._ending.append(child)


async def _spawn() -> ChildProcess:
    ours, theirs = socket.socketpair()
    with theirs:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "holdfast.runtime.attempts.process_child",
            str(theirs.fileno()),
            msgspec.json.encode(sys.path).decode(),
            pass_fds=(theirs.fileno(),),
            stdin=asyncio.subprocess.DEVNULL,
        )
    reader, writer = await asyncio.open_connection(sock=ours)
    return ChildProcess(process, reader, writer)


def _task_of(activity: Activity[..., Any], encoded: bytes, context: ActivityContext) -> BodyTask:
    module = activity.fn.__module__
    path = str(getattr(sys.modules.get(MAIN), "__file__", "")) if module == MAIN else ""
    return BodyTask(
        module=module,
        path=path,
        name=activity.name,
        input=msgspec.Raw(encoded),
        info=msgspec.Raw(msgspec.json.encode(list(context.info))),
        idempotency_key=context.idempotency_key,
    )


async def _answer(child: ChildProcess, body: BodyCall) -> BodyResult | BodyError:
    while True:
        length = int.from_bytes(await child.reader.readexactly(LENGTH_BYTES), "big")
        if length > LONGEST_MESSAGE:
            raise ProcessDied(f"the process sent a message of {length} bytes; the most are {LONGEST_MESSAGE}")
        message = decode_from_child(await child.reader.readexactly(length))
        if isinstance(message, BodyResult | BodyError):
            return message
        if isinstance(message, Ready):
            body.begin()
        else:
            body.beat(msgspec.json.decode(message.details))
        child.send(Begin(SystemClockAndIds().elapsed_ms() + body.lease_left_ms()))


class ThreadCall(NamedTuple):
    """A call, and the future of its result."""

    work: Callable[[], Any]
    ended: "asyncio.Future[Any]"


Jobs = SimpleQueue[ThreadCall | None]


class DaemonThreads:
    """Runs calls in reused threads, for one event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[Jobs] = []
        self._is_closed = False
        self._generation = generation()

    def run(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Start a call. The future is done when the call has ended; see `end_of`."""
        loop = asyncio.get_running_loop()
        job = ThreadCall(work, loop.create_future())
        jobs = self._idle.pop() if self._idle else self._new_thread(loop)
        jobs.put(job)
        return job.ended

    def close(self) -> None:
        """End the threads: idle ones now, the others after their calls."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _new_thread(self, loop: asyncio.AbstractEventLoop) -> Jobs:
        jobs: Jobs = SimpleQueue()
        threading.Thread(target=self._serve, args=(jobs, loop), name=self._name, daemon=True).start()
        return jobs

    def _serve(self, jobs: Jobs, loop: asyncio.AbstractEventLoop) -> None:
        while (job := jobs.get()) is not None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = job.work()
            except StopIteration as stopped:  # a future cannot carry it
                error = RuntimeError(f"the body raised StopIteration({stopped})")
                error.__cause__ = stopped
            except BaseException as raised:  # noqa: BLE001 - passed to the future
                error = raised
            leave_if_forked(self._generation, error)
            try:
                loop.call_soon_threadsafe(self._settle, jobs, job.ended, result, error)
            except RuntimeError:
                return  # the loop is closed
            del job, result, error

    def _settle(self, jobs: Jobs, ended: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        if self._is_closed:
            jobs.put(None)
        else:
            self._idle.append(jobs)
        if ended.done():
            return
        if error is None:
            ended.set_result(result)
        else:
            ended.set_exception(error)


async def end_of(call: "asyncio.Future[Any]") -> Any:
    """The result of a call in a thread. Cancelling this wait does not cancel the future, as awaiting it would."""
    if not call.done():
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
        await ended
    return call.result()
