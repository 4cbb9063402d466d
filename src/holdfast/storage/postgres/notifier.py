"""Notifications between the processes that share a PostgreSQL store: LISTEN and NOTIFY, or polling.

A notification carries no data: the receiver polls the store. A lost one delays the receiver until its next poll, and an
unnecessary one costs a poll. `ListenNotifier` has a thread with a connection of its own; after every connect it reports
one notification, because some may have been missed. `PollNotifier` is for `notify=false`: behind a pooler that shares
connections LISTEN does not work. Both call `heard` on the loop in which they were opened, once for all notifications
before the call.
"""

import asyncio
import logging
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psycopg
from psycopg.sql import SQL, Identifier

from holdfast.background import BackgroundThread, Duty
from holdfast.errors import StoreError
from holdfast.storage.contract import Notifier
from holdfast.storage.postgres.address import Address
from holdfast.storage.postgres.connection import LONGEST_PAUSE_SECONDS, PostgresConnection, ReconnectingConnection

logger = logging.getLogger("holdfast")

NOTIFY: Final = "SELECT pg_notify(%s, %s)"
"""As `notify.sql`, outside of a commit: the channel of the address and the name of the sender."""
CLOSING_SECONDS: Final = 1.0
"""How long `close` waits for a thread that is about to connect; it ends by itself."""
SIGNAL: Final = b"!"
SIGNAL_BYTES: Final = 4096


def make_notifier(address: Address, name: str, heard: Callable[[], None]) -> Notifier:
    """The notifier that the address selects. `name` is that of this process, which ignores its own notifications."""
    return ListenNotifier(address, name, heard) if address.notify else PollNotifier(address.poll_seconds, heard)


class _Heard:
    """Schedules a function on a loop from another thread, once until it has run."""

    def __init__(self, loop: asyncio.AbstractEventLoop, heard: Callable[[], None]) -> None:
        self._loop = loop
        self._heard = heard
        self._is_due = False
        self._is_closed = False

    def set(self) -> None:
        if not self._is_due:
            self._is_due = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._call)

    def close(self) -> None:
        self._is_closed = True

    def _call(self) -> None:
        self._is_due = False  # before the call: a notification during it schedules another one
        if not self._is_closed:
            self._heard()


class ListenNotifier:
    """Listens on the channel of a store."""

    def __init__(
        self,
        address: Address,
        name: str,
        heard: Callable[[], None],
        *,
        keeper: ReconnectingConnection | None = None,
    ) -> None:
        self._address = address
        self._name = name
        self._callback = heard
        self._keeper = keeper or ReconnectingConnection(address)
        self._thread: BackgroundThread | None = None
        self._stopped = threading.Event()
        self._is_to_notify = self._was_notified = False
        self._read_end = self._write_end = -1

    def open(self) -> None:
        """Start to listen. The first call of `heard` follows the first connect."""
        heard = _Heard(asyncio.get_running_loop(), self._callback)
        self._heard = heard
        self._read_end, self._write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = BackgroundThread(
            Duty.LISTENER, lambda: self._run(heard), is_stopped=self._stopped.is_set, at_end=self._release
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Nothing is called after this."""
        if self._thread is None:
            return
        self._heard.close()
        self._stopped.set()
        self._keeper.stop()
        self._signal()
        self._thread.join(CLOSING_SECONDS)
        self._thread = None

    def notify(self) -> None:
        """Notify other processes outside of a commit."""
        self._is_to_notify = True
        self._signal()

    def _signal(self) -> None:
        with suppress(OSError):  # full of signals already, or ended
            os.write(self._write_end, SIGNAL)

    def _run(self, heard: _Heard) -> None:
        while not self._stopped.is_set():
            try:
                self._listen(self._keeper.get(), heard)
            except (psycopg.Error, OSError) as error:
                self._keeper.lost(error)
            except StoreError as error:  # it has retried for a while, and logged it
                logger.debug("nothing is heard of %s: %s", self._address, error)
                self._stopped.wait(LONGEST_PAUSE_SECONDS)

    def _release(self) -> None:
        self._keeper.close()
        write_end = self._write_end
        self._write_end = -1
        os.close(write_end)
        os.close(self._read_end)

    def _listen(self, connection: PostgresConnection, heard: _Heard) -> None:
        """Listen until it is stopped, or the connection is lost."""
        connection.add_notify_handler(self._note)  # for notifications that come with the result of a statement
        connection.execute(SQL("LISTEN {}").format(Identifier(self._address.channel)))
        heard.set()
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        waiting.register(self._read_end, select.POLLIN)
        while not self._stopped.is_set():
            waiting.poll()
            with suppress(BlockingIOError):
                os.read(self._read_end, SIGNAL_BYTES)
            if self._is_to_notify:
                self._is_to_notify = False
                connection.execute(NOTIFY, (self._address.channel, self._name))
            self._take(connection)
            if self._was_notified:
                self._was_notified = False
                heard.set()

    def _take(self, connection: PostgresConnection) -> None:
        """Take the notifications that came without a statement."""
        connection.pgconn.consume_input()
        while (message := connection.pgconn.notifies()) is not None:
            self._was_notified |= message.extra.decode() != self._name

    def _note(self, message: psycopg.Notify) -> None:
        self._was_notified |= message.payload != self._name


class PollNotifier:
    """Calls `heard` at an interval."""

    def __init__(self, seconds: float, heard: Callable[[], None]) -> None:
        self._seconds = seconds
        self._heard = heard
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Start the timer."""
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._wake)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def notify(self) -> None:
        """Nothing to do: other processes poll."""

    def _wake(self) -> None:
        self.open()
        self._heard()
