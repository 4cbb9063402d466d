"""The signals of a worker: the first one drains it, the second one stops it at once (W10).

- While user code is imported, a signal raises `StoppedEarly`, because nothing is open yet.
- Between the import and the start of the event loop a signal is kept for the loop, because an exception inside
  asyncio's own code may be lost.
- While the worker starts, a signal cancels the start.

Each phase is bounded by `GRACE_SECONDS`: user code may swallow the exception, and a server that does not answer, or a
file that another process has locked, may block a thread. The worker holds nothing yet that must be released.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, NoReturn

from holdfast.cli.exits import EXIT_INTERRUPTED
from holdfast.client.worker import Worker

logger = logging.getLogger("holdfast")

HANDLED: Final = (signal.SIGTERM, signal.SIGINT)
GRACE_SECONDS: Final = 2.0
"""How long the cancellation of a start may take."""


class StoppedEarly(BaseException):
    """A signal came during the import of user code, whose ``except Exception`` does not catch this."""


class EarlySignals:
    """Handles signals before the event loop runs."""

    def __init__(self) -> None:
        self._interrupts = True
        self._grace = _grace_timer()
        self.kept: list[signal.Signals] = []

    def keep(self) -> None:
        """From now on a signal is added to `kept` instead of raising."""
        self._interrupts = False

    def handle(self, number: int, _frame: object) -> None:
        if not self._interrupts:
            self.kept.append(signal.Signals(number))
            return
        if not self._grace.is_alive():
            self._grace.start()
        raise StoppedEarly(signal.Signals(number).name)

    def has_ended(self) -> None:
        """Stops the grace timer."""
        self._grace.cancel()


@contextmanager
def stopping_early() -> Generator[EarlySignals]:
    """Within the block a signal raises `StoppedEarly`, until `EarlySignals.keep` is called."""
    early = EarlySignals()
    before = {number: signal.signal(number, early.handle) for number in HANDLED}
    try:
        yield early
    finally:
        early.has_ended()
        for number, handler in before.items():
            signal.signal(number, handler)


def _grace_timer() -> threading.Timer:
    timer = threading.Timer(GRACE_SECONDS, end_process, (0,))
    timer.daemon = True
    return timer


class Signals:
    """Handles signals on the event loop: the first drains, the second stops, the third has its default action."""

    def __init__(self, drain_seconds: float) -> None:
        self._drain_seconds = drain_seconds
        self._starting: asyncio.Task[None] | None = None
        self._worker: Worker | None = None
        self._grace = _grace_timer()
        self.count = 0

    def listen(self, starting: "asyncio.Task[None]", early: EarlySignals) -> None:
        """Installs the handlers on the running loop. `starting` is cancelled by a signal before a worker has begun."""
        self._starting = starting
        loop = asyncio.get_running_loop()
        for number in HANDLED:
            loop.add_signal_handler(number, self._handle, number)
        for number in early.kept:
            self._handle(number)

    def has_begun(self, worker: Worker) -> None:
        """From now on signals drain and stop the worker."""
        self._worker = worker
        self._grace.cancel()

    def has_ended(self) -> None:
        """Stops the grace timer."""
        self._grace.cancel()

    @property
    def cancelled_start(self) -> bool:
        """Whether a signal came before a worker had begun."""
        return self.count > 0 and self._worker is None

    def _handle(self, number: signal.Signals) -> None:
        self.count += 1
        if self._worker is None:
            self._cancel_start(number)
        elif self.count == 1:
            self._drain(number, self._worker)
        else:
            self._stop(number, self._worker)

    def _cancel_start(self, number: signal.Signals) -> None:
        if self.count > 1:
            end_process(EXIT_INTERRUPTED)
        logger.info("%s: the worker ends before it has started", number.name)
        self._grace.start()
        if self._starting is not None:
            self._starting.cancel()

    def _drain(self, number: signal.Signals, worker: Worker) -> None:
        logger.info(
            "%s: the worker claims nothing more; its activities (%d) have %g s to end. Another signal stops it at once",
            number.name,
            worker.running,
            self._drain_seconds,
        )
        worker.drain(self._drain_seconds)

    def _stop(self, number: signal.Signals, worker: Worker) -> None:
        logger.info("%s: the worker stops; other workers run the interrupted activities again", number.name)
        worker.stop()
        loop = asyncio.get_running_loop()
        for each in HANDLED:
            loop.remove_signal_handler(each)


def end_process(code: int) -> NoReturn:
    """Ends the process without waiting for its threads."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
