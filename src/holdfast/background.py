"""Background tasks and threads that are restarted when they end by an error.

Every task and thread that works for a store, a worker or a client is named in `Duty` and started here. One that ends by
an error, or is cancelled by code that does not own it, is logged and restarted after a pause. So each of them keeps its
state in its owner, and its next start finds everything that was left half done.

Activity bodies are not in this list: their tasks and threads end with the body, and the attempt records how.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

logger = logging.getLogger("holdfast")

RESTART_SECONDS: Final = 1.0
"""The pause before a restart, so that a permanent cause neither keeps the processor busy nor fills the log."""


class Duty(StrEnum):
    """The name of each background task and thread. Tests end every one of them and expect the work to continue."""

    CLAIMS = "holdfast-claims"
    """Claims instances and attempts."""
    MAINTENANCE = "holdfast-maintenance"
    """Runs maintenance: lost workers, expired attempts, children of closed executions, pruning."""
    RETENTION = "holdfast-retention"
    """Deletes instances that are kept no longer."""
    RECONCILER = "holdfast-reconciler"
    """Reconciles the rows in the worker's name with its memory (W3)."""
    QUERIES = "holdfast-queries"
    """Answers queries that other processes put into the store."""
    LAUNCHES = "holdfast-launches"
    """Claims external activities for launchers, and launches them."""
    CLAIMANTS = "holdfast-claimants"
    """Reads which workers serve the workflows of the instances that this process makes claimable."""
    CONTRACT_ROWS = "holdfast-contract-rows"
    """Handles requests of clients and reports of executors."""
    NEW_KEY = "holdfast-new-key"
    """Registers the worker again after it lost its lease."""
    EVENTS = "holdfast-events"
    """Brings the events that are raised in this process to their instances."""
    COMMITTER = "holdfast-committer"
    """Commits groups."""
    RESULTS = "holdfast-results"
    """Polls for the results that a client waits for."""
    TRACES = "holdfast-traces"
    """Reads the histories of instances that were closed without their code, for their spans."""
    METRICS = "holdfast-metrics"
    """Serves the metrics and probes of a worker."""
    CHANGES = "holdfast-changes"
    """Polls for changes of instances that a client watches."""
    LEASE = "holdfast-lease"
    """A thread: renews the worker's lease and watches its event loop (W1)."""
    WATCHDOG = "holdfast-watchdog"
    """A thread: interrupts workflow code that never awaits (G12)."""
    LISTENER = "holdfast-listener"
    """A thread: receives the notifications of PostgreSQL."""
    LOCK_WAITS = "holdfast-lock-waits"
    """A thread: warns of long waits for the write lock of a SQLite file."""


POLLING: Final = frozenset(
    {
        Duty.CLAIMS,
        Duty.MAINTENANCE,
        Duty.RETENTION,
        Duty.RECONCILER,
        Duty.QUERIES,
        Duty.CONTRACT_ROWS,
        Duty.LAUNCHES,
        Duty.RESULTS,
        Duty.CHANGES,
    }
)
"""Tasks whose timers are poll intervals, not waits for a certain time."""


class BackgroundTask:
    """A task of the event loop. `run` is called again when it raises, until it returns or the task is stopped."""

    __slots__ = ("_is_stopped", "_over", "_restart", "_run", "_task", "duty")

    def __init__(self, duty: Duty, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.duty = duty
        self._run = run
        self._task: asyncio.Task[None] | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._over: asyncio.Future[None] | None = None
        self._is_stopped = False

    @property
    def is_running(self) -> bool:
        """Whether it runs, or pauses before a restart."""
        return self._restart is not None or (self._task is not None and not self._task.done())

    def start(self) -> None:
        """Start the task, unless it runs already."""
        if not self.is_running:
            self._is_stopped = False
            self._begin()

    def stop(self) -> None:
        """Cancel the task and do not restart it. `wait` returns when it has ended."""
        self._is_stopped = True
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
            self._settle()
        elif self._task is not None:
            self._task.cancel()

    async def wait(self) -> None:
        """Return when `run` has returned, or the task has ended after `stop`."""
        while self.is_running:
            if self._over is None:
                self._over = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._over])

    def _begin(self) -> None:
        self._restart = None
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self.duty)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        is_current = task is self._task  # otherwise it was started again before this call
        if is_current:
            self._task = None
        error = None if task.cancelled() else task.exception()
        if self._is_stopped or (error is None and not task.cancelled()):
            self._settle()
            return
        if is_current:
            restart = self._begin if error is not None else self._begin_after_cancel
            self._restart = asyncio.get_running_loop().call_later(RESTART_SECONDS, restart)
        if error is not None:  # logged last: a handler or filter of the user may raise
            logger.error("the background task %s failed; it is started again", self.duty, exc_info=error)

    def _begin_after_cancel(self) -> None:
        """Logged only now: when a loop closes it cancels all tasks, and then this is not called any more."""
        self._begin()
        logger.error("the background task %s was cancelled by other code; it is started again", self.duty)

    def _settle(self) -> None:
        over = self._over
        self._over = None
        if over is not None and not over.done():
            over.set_result(None)


class BackgroundThread:
    """A daemon thread. `run` is called again when it raises, until it returns or `is_stopped` returns True.

    `at_end` is called once, at the end of the thread.
    """

    def __init__(
        self,
        duty: Duty,
        run: Callable[[], None],
        *,
        is_stopped: Callable[[], bool],
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.duty = duty
        self._run = run
        self._is_stopped = is_stopped
        self._at_end = at_end
        self._thread = threading.Thread(target=self._keep_running, name=duty, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread was started and has not ended."""
        return self._thread.is_alive()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout)

    def _keep_running(self) -> None:
        try:
            while not self._has_returned() and not self._is_stopped():
                threading.Event().wait(RESTART_SECONDS)
        finally:
            self._at_end()

    def _has_returned(self) -> bool:
        try:
            self._run()
        except BaseException:  # an end of any kind is logged and followed by a restart
            if not self._is_stopped():
                with suppress(Exception):  # a handler or filter of the user may raise, and must not end the thread
                    logger.exception("the background thread %s failed; it is started again", self.duty)
            return False
        return True
