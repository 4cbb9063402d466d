"""Signals that a worker hears: whenever one comes, it leaves, and a second one makes it leave at once (W10).

Until the event loop runs a signal raises `ToldToLeave`: nothing is open yet. While the worker starts, its start is
called off. What that takes is bounded, because a server that does not answer, or a file that somebody has locked, may
hold a thread for long; and there is nothing yet that an end without a farewell would harm.
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
"""What a start gets to be called off."""


class ToldToLeave(BaseException):
    """A signal came before there was anything to be stopped. User code that is being imported cannot swallow it."""


@contextmanager
def leaving_early() -> Generator[None]:
    """In here a signal raises `ToldToLeave`, until an event loop hears it instead."""
    before = {number: signal.signal(number, _raise) for number in HEARD}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(number: int, _frame: object) -> NoReturn:
    raise ToldToLeave(signal.Signals(number).name)


class Signals:
    """The first one lets a worker drain, the second one stops it, and the third one is not ours any more."""

    def __init__(self, drain_seconds: float) -> None:
        self._drain_seconds = drain_seconds
        self._starting: asyncio.Task[None] | None = None
        self._working: Worker | None = None
        self._grace = threading.Timer(GRACE_SECONDS, _end, (0,))
        self._grace.daemon = True
        self.heard = 0

    def listen(self, starting: "asyncio.Task[None]") -> None:
        """From now on, on this loop. `starting` is what is called off as long as no worker has begun."""
        self._starting = starting
        loop = asyncio.get_running_loop()
        for number in HEARD:
            loop.add_signal_handler(number, self._hear, number)

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
            _end(EXIT_INTERRUPTED)
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


def _end(code: int) -> NoReturn:
    """End the process without waiting for its threads."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
