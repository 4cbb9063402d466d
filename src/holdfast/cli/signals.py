"""Signals that a worker hears: whenever one comes, it leaves, and a second one makes it leave at once (W10).

While user code is imported a signal raises `ToldToLeave`: nothing is open yet. Until the event loop runs it is kept,
because an exception inside asyncio's own code may be lost. While the worker starts, its start is called off. Each of
these is bounded in time, because user code may swallow the exception, and a server that does not answer, or a file
that another process has locked, may hold a thread for long; the worker has nothing yet that must be released.
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

HEARD: Final = (signal.SIGTERM, signal.SIGINT)
GRACE_SECONDS: Final = 2.0
"""How long it may take to call a start off."""


class ToldToLeave(BaseException):
    """A signal came before there was anything to be stopped. User code that is being imported cannot swallow it."""


class EarlySignals:
    """Signals before there is an event loop."""

    def __init__(self) -> None:
        self._interrupts = True
        self._grace = _grace_timer()
        self.kept: list[signal.Signals] = []

    def keep(self) -> None:
        """From now on a signal raises nothing; the event loop takes it from `kept`."""
        self._interrupts = False

    def hear(self, number: int, _frame: object) -> None:
        """The handler."""
        if not self._interrupts:
            self.kept.append(signal.Signals(number))
            return
        if not self._grace.is_alive():
            self._grace.start()
        raise ToldToLeave(signal.Signals(number).name)

    def has_ended(self) -> None:
        """The exception has arrived, or no signal came."""
        self._grace.cancel()


@contextmanager
def leaving_early() -> Generator[EarlySignals]:
    """In here a signal raises `ToldToLeave`, until it is to be kept, or an event loop has its own handlers."""
    early = EarlySignals()
    before = {number: signal.signal(number, early.hear) for number in HEARD}
    try:
        yield early
    finally:
        early.has_ended()
        for number, handler in before.items():
            signal.signal(number, handler)


def _grace_timer() -> threading.Timer:
    timer = threading.Timer(GRACE_SECONDS, end, (0,))
    timer.daemon = True
    return timer


class Signals:
    """The first one lets a worker drain, the second one stops it, and the third one is not ours any more."""

    def __init__(self, drain_seconds: float) -> None:
        self._drain_seconds = drain_seconds
        self._starting: asyncio.Task[None] | None = None
        self._working: Worker | None = None
        self._grace = _grace_timer()
        self.heard = 0

    def listen(self, starting: "asyncio.Task[None]", early: EarlySignals) -> None:
        """From now on, on this loop. `starting` is what is called off as long as no worker has begun."""
        self._starting = starting
        loop = asyncio.get_running_loop()
        for number in HEARD:
            loop.add_signal_handler(number, self._hear, number)
        for number in early.kept:
            self._hear(number)

    def has_begun(self, working: Worker) -> None:
        """There is a worker now, which leaves in its own way."""
        self._working = working
        self._grace.cancel()

    def has_ended(self) -> None:
        """Nothing is left that could take long."""
        self._grace.cancel()

    @property
    def called_off(self) -> bool:
        """Whether it was told to leave before there was a worker."""
        return self.heard > 0 and self._working is None

    def _hear(self, number: signal.Signals) -> None:
        self.heard += 1
        if self._working is None:
            self._call_off(number)
        elif self.heard == 1:
            self._drain(number, self._working)
        else:
            self._stop(number, self._working)

    def _call_off(self, number: signal.Signals) -> None:
        if self.heard > 1:
            end(EXIT_INTERRUPTED)
        logger.info("%s: the worker leaves before it has begun", number.name)
        self._grace.start()
        if self._starting is not None:
            self._starting.cancel()

    def _drain(self, number: signal.Signals, working: Worker) -> None:
        logger.info(
            "%s: nothing more is claimed, and what runs has %g s to end (activities: %d). Another signal stops it",
            number.name,
            self._drain_seconds,
            working.running,
        )
        working.drain(self._drain_seconds)

    def _stop(self, number: signal.Signals, working: Worker) -> None:
        logger.info("%s: the worker leaves at once; what has not ended is run again by others", number.name)
        working.stop()
        loop = asyncio.get_running_loop()
        for each in HEARD:
            loop.remove_signal_handler(each)


def end(code: int) -> NoReturn:
    """End the process without waiting for its threads."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
