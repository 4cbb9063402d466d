"""Wake-ups between the processes that share a PostgreSQL store: LISTEN and NOTIFY, or a look now and then.

A wake-up says only "look"; what there is to see is in the store. So one that is lost costs a moment, and one too many
costs a look. `Listening` has a thread with a connection of its own. After every connect it wakes once, because
something may have been said meanwhile. `Polling` is for `notify=false`: behind a pooler that shares connections
nothing would be heard. Both call `heard` on the loop in which they were opened, once for all that came before the call.
"""

import asyncio
import logging
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

import psycopg
from psycopg.sql import SQL, Identifier

from holdfast.background import BackgroundThread, Duty
from holdfast.errors import StoreError
from holdfast.storage.postgres.address import Address
from holdfast.storage.postgres.connection import LONGEST_PAUSE_SECONDS, PostgresConnection, ReconnectingConnection

logger = logging.getLogger("holdfast")

NOTIFY: Final = "SELECT pg_notify(%s, %s)"
"""With the channel of the address and the sender's name: for the commit that has something for others."""
CLOSING_SECONDS: Final = 1.0
"""So long a thread is waited for that is just about to connect; it ends by itself."""
SIGNAL: Final = b"!"
SIGNAL_BYTES: Final = 4096


class Bell(Protocol):
    """Wakes the others who use the store, and is woken by them."""

    def open(self) -> None: ...
    def close(self) -> None: ...
    def notify(self) -> None: ...


def make_notifier(address: Address, name: str, heard: Callable[[], None]) -> Bell:
    """The way of waking that the address asks for. `name` is this process's, which does not wake itself."""
    return ListenNotifier(address, name, heard) if address.notify else PollNotifier(address.poll_seconds, heard)


class _Heard:
    """Calls a function on a loop, from another thread, and not again before it was called."""

    def __init__(self, loop: asyncio.AbstractEventLoop, heard: Callable[[], None]) -> None:
        self._loop = loop
        self._heard = heard
        self._is_due = False
        self._is_closed = False

    def tell(self) -> None:
        if not self._is_due:
            self._is_due = True
            with suppress(RuntimeError):  # the loop is closed, and nobody is there any more
                self._loop.call_soon_threadsafe(self._call)

    def close(self) -> None:
        self._is_closed = True

    def _call(self) -> None:
        self._is_due = False  # before the call: what comes during it is new
        if not self._is_closed:
            self._heard()


class ListenNotifier:
    """Hears what is said on the channel of a store."""

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
        self._is_to_say = self._was_called = False
        self._ear = self._mouth = -1

    def open(self) -> None:
        """Begin to listen. The first wake-up comes when it does."""
        heard = _Heard(asyncio.get_running_loop(), self._callback)
        self._heard = heard
        self._ear, self._mouth = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
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
        """Wake the others, for who has no commit in which `NOTIFY` could go with it."""
        self._is_to_say = True
        self._signal()

    def _signal(self) -> None:
        with suppress(OSError):  # full of signals already, or ended
            os.write(self._mouth, SIGNAL)

    def _run(self, heard: _Heard) -> None:
        while not self._stopped.is_set():
            try:
                self._listen(self._keeper.get(), heard)
            except (psycopg.Error, OSError) as error:
                self._keeper.lost(error)
            except StoreError as error:  # the keeper has tried for a while, and has said so
                logger.debug("nothing is heard of %s: %s", self._address, error)
                self._stopped.wait(LONGEST_PAUSE_SECONDS)

    def _release(self) -> None:
        self._keeper.close()
        mouth = self._mouth
        self._mouth = -1
        os.close(mouth)
        os.close(self._ear)

    def _listen(self, connection: PostgresConnection, heard: _Heard) -> None:
        """Until it is stopped, or the connection is lost."""
        connection.add_notify_handler(self._note)  # for what comes with the answer to a statement
        connection.execute(SQL("LISTEN {}").format(Identifier(self._address.channel)))
        heard.tell()
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        waiting.register(self._ear, select.POLLIN)
        while not self._stopped.is_set():
            waiting.poll()
            with suppress(BlockingIOError):
                os.read(self._ear, SIGNAL_BYTES)
            if self._is_to_say:
                self._is_to_say = False
                connection.execute(NOTIFY, (self._address.channel, self._name))
            self._take(connection)
            if self._was_called:
                self._was_called = False
                heard.tell()

    def _take(self, connection: PostgresConnection) -> None:
        """All that came by itself."""
        connection.pgconn.consume_input()
        while (message := connection.pgconn.notifies()) is not None:
            self._was_called |= message.extra.decode() != self._name

    def _note(self, message: psycopg.Notify) -> None:
        self._was_called |= message.payload != self._name


class PollNotifier:
    """Wakes every so many seconds."""

    def __init__(self, seconds: float, heard: Callable[[], None]) -> None:
        self._seconds = seconds
        self._heard = heard
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin."""
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._wake)

    def close(self) -> None:
        """Stop. Nothing is called after this."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def notify(self) -> None:
        """Nobody can be told: the others look by themselves."""

    def _wake(self) -> None:
        self.open()
        self._heard()
