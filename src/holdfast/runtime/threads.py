"""Threads for blocking bodies. One that never comes back costs a thread, and nothing else.

They are daemons and there is no fixed number of them: a body that hangs is abandoned, the next one gets another thread,
and the process can still end. (The pool of the standard library would run out of threads and wait for the hanging one
at exit.)
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from holdfast.storage.forks import generation, leave_if_forked


class ThreadCall(NamedTuple):
    """A call, and the future of its end."""

    work: Callable[[], Any]
    ended: "asyncio.Future[Any]"


Jobs = SimpleQueue[ThreadCall | None]


class DaemonThreads:
    """Runs calls in threads that are used again. It is used from one event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[Jobs] = []
        self._is_closed = False
        self._generation = generation()

    def run(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Begin a call. The future is done when it has ended; see `end_of`."""
        loop = asyncio.get_running_loop()
        job = ThreadCall(work, loop.create_future())
        jobs = self._idle.pop() if self._idle else self._new_thread(loop)
        jobs.put(job)
        return job.ended

    def close(self) -> None:
        """Let the threads end: the idle ones now, the others when their calls do."""
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
    """Wait for the end of a call in a thread. Cancelling this wait leaves the call as it is, unlike awaiting it."""
    if not call.done():
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
        await ended
    return call.result()
