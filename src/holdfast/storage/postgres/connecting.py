"""Connections to PostgreSQL: made with settings that notice a dead peer, checked, and made again after a loss.

A session keeps no state that a transaction pooler would lose: nothing is SET, nothing is prepared. What is checked
after connecting costs one round trip: a server that is too old is refused, a standby is not the primary, and settings
under which an acknowledged commit can be lost are named in a warning (once for each server and process).
"""

import itertools
import logging
import os
import threading
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, cast

import psycopg
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

from holdfast.errors import StoreError
from holdfast.storage.postgres.address import Address
from holdfast.storage.postgres.faults import ErrorClass, NotPrimary, classify

logger = logging.getLogger("holdfast")

PostgresConnection = psycopg.Connection[tuple[object, ...]]

OLDEST_SERVER: Final = 14
VERSION_STEP: Final = 10_000
"""`server_version` is 180004 for 18.4."""
DEFAULTS: Final = {
    "fallback_application_name": "holdfast",
    "client_encoding": "UTF8",
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""What is not in the URL. A peer that vanished is noticed within about eleven seconds: the default lease, and a bit."""
SEVERAL_HOSTS: Final = {"target_session_attrs": "read-write"}
"""Of several hosts one is the primary."""
FACTS: Final = """
    SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
        current_setting('fsync', true), current_setting('full_page_writes', true),
        current_setting('synchronous_commit', true)
"""
DANGERS: Final = {
    "fsync": "after a crash of its machine the database may be lost or damaged",
    "full_page_writes": "after a crash of its machine the database may be damaged",
    "synchronous_commit": "commits that were acknowledged may be lost in a crash of the server",
}
MOST_TRIES: Final = 8
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 1.0
CACHED_OUTAGES: Final = 100

_warned: set[tuple[Address, str]] = set()
_calls: Final = itertools.count()


def settings(address: Address) -> dict[str, str]:
    """What libpq connects with."""
    given = dict(address.parameters)
    several = SEVERAL_HOSTS if "," in given.get("host", "") + given.get("hostaddr", "") else {}
    return {**DEFAULTS, **several, **given}


def connect(address: Address) -> PostgresConnection:
    """One try to connect. What comes back is the primary, of a release that is known to work."""
    options = settings(address)
    connection = cast(
        PostgresConnection,
        psycopg.connect("", autocommit=True, prepare_threshold=None, **options),  # type: ignore[arg-type]
    )
    try:
        _check(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: PostgresConnection, address: Address) -> None:
    version = connection.info.server_version
    if version < OLDEST_SERVER * VERSION_STEP:
        found = f"{version // VERSION_STEP}.{version % VERSION_STEP}"
        raise StoreError(f"{address} is PostgreSQL {found}; Holdfast needs {OLDEST_SERVER} or newer")
    row = connection.execute(FACTS).fetchone()
    is_standby, is_read_only, *values = row or (False, False)
    if is_standby or is_read_only:
        raise NotPrimary(f"{address} is {'a standby' if is_standby else 'read-only'}, and cannot be written")
    for (name, danger), value in zip(DANGERS.items(), values, strict=True):
        if value == "off" and (address, name) not in _warned:
            _warned.add((address, name))
            logger.warning("%s runs with %s = off: %s", address, name, danger)


def spread() -> float:
    """A number from 0 to 1, another one for each call and each process. Good for pauses, and for nothing else."""
    return zlib.crc32(f"{os.uname().nodename} {os.getpid()} {next(_calls)}".encode()) / 2**32


def pause_seconds(failures: int, chance: float) -> float:
    """How long to wait after so many failures in a row: twice as long each time, within a bound, and not in step."""
    longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, MOST_TRIES))
    return longest * (1 + chance) / 2


class Outage:
    """What the connections of a process know together about a server: its loss is told once, and its return."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._is_on = False
        self.number = 0
        """How many there were that are over."""

    def failed(self, error: BaseException, *, made_after: int | None = None) -> None:
        """A connection could not be made, or was lost that was made after so many outages.

        One from before an outage that is over is its echo: whoever had that connection finds out only now.
        """
        with self._lock:
            is_new = not self._is_on and made_after in (None, self.number)
            self._is_on |= is_new
        if is_new:
            logger.warning(
                "a connection to %s is lost, or cannot be made, and is tried again: %s", self._address, _line(error)
            )

    def succeeded(self) -> None:
        """A connection was made."""
        with self._lock:
            is_over, self._is_on = self._is_on, False
            self.number += is_over
        if is_over:
            logger.warning("%s is reached again", self._address)


@lru_cache(CACHED_OUTAGES)
def outage_of(address: Address) -> Outage:
    """The one of this process."""
    return Outage(address)


class ReconnectingConnection:
    """A connection that is made when it is needed, and again after it was lost. For one thread at a time."""

    def __init__(
        self,
        address: Address,
        *,
        tries: int = MOST_TRIES,
        chance: Callable[[], float] = spread,
        open_one: Callable[[Address], PostgresConnection] = connect,
    ) -> None:
        self._address = address
        self._tries = tries
        self._chance = chance
        self._open_one = open_one
        self._outage = outage_of(address)
        self._closed = threading.Event()
        self._connection: PostgresConnection | None = None
        self._made_after = 0

    def get(self) -> PostgresConnection:
        """The connection. Made with a few tries, longer and longer apart; then the trouble is raised."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        self._connection = connection = self._open()
        return connection

    def _open(self) -> PostgresConnection:
        for failures in range(1, self._tries + 1):
            if self._closed.is_set():
                break
            try:
                connection = self._open_one(self._address)
            except (psycopg.Error, OSError) as error:
                if classify(error) is ErrorClass.BROKEN:
                    raise StoreError(f"{self._address} cannot be used: {_line(error)}") from error
                self._outage.failed(error)
                if failures == self._tries:
                    raise StoreError(f"{self._address} cannot be reached: {_line(error)}") from error
                self._closed.wait(pause_seconds(failures, self._chance()))
            else:
                self._outage.succeeded()
                self._made_after = self._outage.number
                return connection
        raise StoreError(f"{self._address} is closed")

    def lost(self, error: BaseException) -> None:
        """Whoever used the connection found it dead, or does not trust it any more."""
        self._outage.failed(error, made_after=self._made_after)
        self._drop()

    def stop(self) -> None:
        """Whoever waits for a connection gets none, from now on. May be called from another thread."""
        self._closed.set()

    def close(self) -> None:
        """Stop, and end the connection. For the thread that uses it: under another one libpq may not be touched."""
        self._closed.set()
        self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _line(error: BaseException) -> str:
    """The error's text in one line."""
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def one_round_trip(connection: PostgresConnection) -> Generator[None]:
    """Statements that are sent together and answered together. Answers may be looked at afterwards only.

    psycopg sends each statement when it is said. A process that is stopped between two of them would leave the server
    in the middle of a transaction, where its clock for idle ones does not run, and keep its locks until it goes on. So
    statements are gathered, and what libpq holds in one buffer (8 kB) leaves in one write, together with the Sync.

    psycopg ends a pipeline with a Sync and then a Flush. At the Flush the server stops its clock for transactions that
    are idle, and one whose client vanished right after would keep its locks for ever. So the Sync is the last message,
    which brings the answers as well. What psycopg cannot end any more after an error it logs; here the error says all.
    """
    trouble: psycopg.Error | None = None
    try:
        with connection.pipeline() as pipeline:
            fetch = pipeline._fetch_gen  # noqa: SLF001 - a test notices if it goes
            pipeline._fetch_gen = lambda *, flush: fetch(flush=False)  # type: ignore[method-assign]  # noqa: SLF001, ARG005
            communicate = pipeline._communicate_gen  # noqa: SLF001
            pipeline._communicate_gen = lambda: iter(())  # type: ignore[method-assign, assignment, return-value]  # noqa: SLF001
            try:
                yield
            except psycopg.Error as error:
                trouble = error
            pipeline._communicate_gen = lambda: _say(pipeline, communicate)  # type: ignore[method-assign]  # noqa: SLF001
    except psycopg.Error:
        if trouble is None:
            raise
    if trouble is not None:
        raise trouble


def _say(pipeline: psycopg.Pipeline, communicate: Callable[[], PQGen[None]]) -> PQGen[None]:
    """Everything that was gathered, up to the Sync, which sends it; then psycopg's own way to the answers."""
    while pipeline.command_queue:
        pipeline.command_queue.popleft()()
    while pipeline.pgconn.flush():  # more than the socket takes: the server may want to answer first
        if (yield Wait.RW) & Ready.R:
            pipeline.pgconn.consume_input()
    yield from communicate()
