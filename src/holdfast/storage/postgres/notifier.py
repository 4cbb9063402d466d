"""Notifications between the processes that share a PostgreSQL store: LISTEN and NOTIFY, or polling.

A notification carries a `Wakeup`: on the channel of the store for all processes, on the channel of one process the
instances that it waits for. A lost one delays the receiver until its next poll. Notifications are never part of a
commit: PostgreSQL serialises all commits that contain one, fsync included. `ListenNotifier` sends them after the commit
from a thread with a connection of its own, which also listens; after every connect it reports a wake-up for everything,
because some may have been missed. `PollNotifier` is for `notify=false`: behind a pooler that shares connections LISTEN
does not work. Both call `heard` on the loop in which they were opened, once for all notifications before the call.

Triggers notify of rows that clients insert (C2-C4), on the same channel: the payload is the table, and behind a colon
the name of the workflow or activity. The payload of a process is its name and its wake-up as JSON. If the triggers are
missing, the listener polls for new rows while a worker watches for them. Clients have channels of their own, on which
they are notified after the commit that handles their rows; nothing waits for these notifications, and some may be lost.
"""

import asyncio
import logging
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final

import psycopg
from psycopg.sql import SQL, Identifier

from holdfast.background import BackgroundThread, Duty
from holdfast.core.deadlines import MILLISECONDS
from holdfast.errors import StoreError
from holdfast.storage.contract import ACTIVITY_EVENTS, REQUESTS, RowNotifier
from holdfast.storage.postgres.address import Address
from holdfast.storage.postgres.connection import LONGEST_PAUSE_SECONDS, PostgresConnection, ReconnectingConnection
from holdfast.storage.wakeups import EVERYTHING, NOTHING, Heard, Wakeup, Wakeups, decode_wakeup, encode_wakeup

logger = logging.getLogger("holdfast")

CLOSING_SECONDS: Final = 1.0
"""How long `close` waits for a thread that is about to connect; it ends by itself."""
TRIGGERS: Final = """
    SELECT count(*) FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
    JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = %s AND tgname IN ('requests_notify', 'activity_events_notify') AND tgenabled IN ('O', 'A')
"""
ALL_TRIGGERS: Final = 2
NEW_ROWS: Final = """
    SELECT (SELECT row FROM {schema}.requests WHERE state = 'NEW' ORDER BY row LIMIT 1) IS NOT NULL
        OR (SELECT row FROM {schema}.activity_events WHERE state = 'NEW' ORDER BY row LIMIT 1) IS NOT NULL
"""
NOTIFY: Final = "SELECT pg_notify(channel, payload) FROM unnest(%s::text[], %s::text[]) AS given(channel, payload)"
OPEN_ACTIVITIES: Final = "open_activities"
MOST_NAMES: Final = 100
"""Names of inserted rows that wait for the event loop; with more of them the worker looks for all rows."""
MOST_WAITING: Final = 100_000
"""Notifications that wait for the connection. The oldest are dropped: receivers poll as well."""
BATCH: Final = 1_000
"""Notifications in one statement."""
MOST_PAYLOAD_BYTES: Final = 7_999
"""PostgreSQL refuses longer payloads. A wake-up or the id of a row may be longer; the payload is then empty, which is a
wake-up for everything."""
SIGNAL: Final = b"!"
SIGNAL_BYTES: Final = 4096


def make_notifier(address: Address, name: str, heard: Heard) -> RowNotifier:
    """The notifier that the address selects. `name` is that of this process, which ignores its own notifications."""
    return ListenNotifier(address, name, heard) if address.notify else PollNotifier(address.poll_seconds, heard)


class _Heard:
    """Collects wake-ups on one thread, and reports them on a loop, all that came before the call together."""

    def __init__(self, loop: asyncio.AbstractEventLoop, heard: Heard) -> None:
        self._loop = loop
        self._heard = heard
        self._lock = threading.Lock()
        self._wakeup = NOTHING
        self._is_closed = False

    def add(self, wakeup: Wakeup) -> None:
        with self._lock:
            is_due = bool(self._wakeup)
            self._wakeup |= wakeup
        if not is_due and wakeup:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._call)

    def close(self) -> None:
        self._is_closed = True

    def _call(self) -> None:
        with self._lock:
            wakeup = self._wakeup
            self._wakeup = NOTHING
        if not self._is_closed:
            self._heard(wakeup)


class _InsertedRows:
    """Collects the names of inserted rows on one thread, and reports them on a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.inserted: Callable[[str | None], None] | None = None
        """Called on the loop; None: no worker watches."""
        self._loop = loop
        self._lock = threading.Lock()
        self._names: set[str | None] = set()

    def add(self, name: str | None) -> None:
        """Report rows of a name, or of any name for None."""
        if self.inserted is None:
            return
        with self._lock:
            is_due = bool(self._names)
            self._names.add(name if len(self._names) < MOST_NAMES else None)
        if not is_due:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._call)

    def _call(self) -> None:
        with self._lock:
            names = self._names
            self._names = set()
        for name in [None] if None in names else names:
            if self.inserted is not None:
                self.inserted(name)


class ListenNotifier:
    """Listens on the channel of a store."""

    def __init__(
        self,
        address: Address,
        name: str,
        heard: Heard,
        *,
        keeper: ReconnectingConnection | None = None,
    ) -> None:
        self._address = address
        self._name = name
        self._callback = heard
        self._keeper = keeper or ReconnectingConnection(address)
        self._thread: BackgroundThread | None = None
        self._stopped = threading.Event()
        self._read_end = self._write_end = -1
        self._poll_ms = max(1, round(address.poll_seconds * MILLISECONDS))
        self._unsent: deque[tuple[str, str]] = deque(maxlen=MOST_WAITING)
        """Channels and payloads."""
        self._rows: _InsertedRows | None = None

    def open(self) -> None:
        """Start to listen. The first call of `heard` follows the first connect."""
        heard = _Heard(asyncio.get_running_loop(), self._callback)
        self._heard = heard
        self._rows = _InsertedRows(asyncio.get_running_loop())
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
        self.watch_rows(None)
        self._stopped.set()
        self._keeper.stop()
        self._signal()
        self._thread.join(CLOSING_SECONDS)
        self._thread = None

    def notify(self, wakeups: Wakeups) -> None:
        """Send wake-ups from the thread of the listener."""
        if wakeups.to_all:
            self._unsent.append((self._address.channel, self._payload(wakeups.to_all)))
        for name, wakeup in wakeups.to_each.items():
            self._unsent.append((self._address.channel_of_process(name), self._payload(wakeup)))
        if wakeups:
            self._signal()

    def _payload(self, wakeup: Wakeup) -> str:
        return f"{self._name} {encode_wakeup(wakeup).decode()}"

    def watch_rows(self, inserted: Callable[[str | None], None] | None) -> None:
        """Call `inserted` when clients have inserted rows; None ends this."""
        if self._rows is not None:
            self._rows.inserted = inserted
            self._signal()  # without triggers the thread polls from now on, or no longer

    def rows_handled(self, table: str, ids: Sequence[str]) -> None:
        """Notify the clients that inserted rows, from the thread of the listener."""
        self._notify_clients(table, ids)

    def offered(self, queues: Collection[str]) -> None:
        """Notify executors, from the thread of the listener."""
        self._notify_clients(OPEN_ACTIVITIES, queues)

    def _notify_clients(self, subject: str, payloads: Collection[str]) -> None:
        if payloads:
            channel = self._address.channel_of(subject)
            self._unsent.extend((channel, payload) for payload in payloads)
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
        [(triggers,)] = connection.execute(TRIGGERS, (self._address.schema,)).fetchall()
        for channel in (self._address.channel, self._address.channel_of_process(self._name)):
            connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
        heard.add(EVERYTHING)
        self._inserted(None)  # rows may have been inserted before it listened
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        waiting.register(self._read_end, select.POLLIN)
        while not self._stopped.is_set():
            polls_rows = triggers != ALL_TRIGGERS and self._rows is not None and self._rows.inserted is not None
            is_idle = not waiting.poll(self._poll_ms if polls_rows else None)
            if is_idle and self._has_new_rows(connection):
                self._inserted(None)
            with suppress(BlockingIOError):
                os.read(self._read_end, SIGNAL_BYTES)
            while self._unsent:
                self._send(connection)
            self._take(connection)

    def _take(self, connection: PostgresConnection) -> None:
        """Take the notifications that came without a statement."""
        connection.pgconn.consume_input()
        while (message := connection.pgconn.notifies()) is not None:
            self._hear(message.extra.decode())

    def _note(self, message: psycopg.Notify) -> None:
        self._hear(message.payload)

    def _hear(self, payload: str) -> None:
        """A notification of a trigger concerns the rows of a name; any other one is the wake-up of a process."""
        table, colon, _ = payload.partition(":")
        if table in (REQUESTS, ACTIVITY_EVENTS):
            self._inserted(payload if colon else None)
            return
        sender, _, wakeup = payload.partition(" ")
        if sender != self._name:
            self._heard.add(decode_wakeup(wakeup.encode()))

    def _inserted(self, name: str | None) -> None:
        if self._rows is not None:
            self._rows.add(name)

    def _has_new_rows(self, connection: PostgresConnection) -> bool:
        statement = SQL(NEW_ROWS).format(schema=Identifier(self._address.schema))
        return bool(connection.execute(statement).fetchall()[0][0])

    def _send(self, connection: PostgresConnection) -> None:
        """Send a batch. Those that a lost connection drops are not repeated."""
        batch: dict[tuple[str, str], None] = {}
        while self._unsent and len(batch) < BATCH:
            channel, payload = self._unsent.popleft()
            batch[(channel, payload if len(payload.encode()) <= MOST_PAYLOAD_BYTES else "")] = None
        channels, payloads = zip(*batch, strict=True)
        connection.execute(NOTIFY, (list(channels), list(payloads)))


class PollNotifier:
    """Calls `heard` at an interval with a wake-up for everything, and the function of `watch_rows`: the worker reads
    whether there are new rows."""

    def __init__(self, seconds: float, heard: Heard) -> None:
        self._seconds = seconds
        self._heard = heard
        self._timer: asyncio.TimerHandle | None = None
        self._inserted: Callable[[str | None], None] | None = None

    def open(self) -> None:
        """Start the timer."""
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._wake)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def notify(self, wakeups: Wakeups) -> None:
        """Nothing to do: other processes poll."""

    def watch_rows(self, inserted: Callable[[str | None], None] | None) -> None:
        """Call `inserted` at the same interval; None ends this."""
        self._inserted = inserted

    def rows_handled(self, table: str, ids: Sequence[str]) -> None:
        """Nothing to do: clients poll."""

    def offered(self, queues: Collection[str]) -> None:
        """Nothing to do: clients poll."""

    def _wake(self) -> None:
        self.open()
        self._heard(EVERYTHING)
        if self._inserted is not None:
            self._inserted(None)
