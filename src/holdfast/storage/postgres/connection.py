"""Connections to PostgreSQL: settings that detect a dead peer, checks, classes of errors, reconnection and retries.

A session has no state that a transaction pooler would lose: nothing is SET, nothing is prepared. The checks after
connecting cost one round trip: a server that is too old is refused, so is a standby, and settings under which an
acknowledged commit can be lost are logged as a warning, once for each server and process.

Errors are classified by SQLSTATE, whose five characters mean the same in every release and language. Errors without one
come from the client: a connection was lost or cannot be made, or a value cannot be sent.
"""

import itertools
import logging
import os
import threading
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import Enum
from functools import lru_cache
from typing import Final, TypeVar, cast

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.waiting import Ready, Wait

from holdfast.errors import StoreError
from holdfast.storage.postgres.address import ENCODING, Address
from holdfast.storage.relational.transaction import ConcurrentChange


class ErrorClass(Enum):
    """What follows from an error."""

    TRY_AGAIN = "a conflict with another transaction: retry the same group"
    CONNECTION_LOST = "the connection is lost: connect again, and settle a commit by its id"
    MEMBER = "one member of the group cannot be stored: the others can"
    BROKEN = "nothing can be stored until the database, or Holdfast, is repaired"


class NotPrimary(psycopg.OperationalError):
    """A standby answered. After a failover the primary is elsewhere, or will be here soon."""


CODES: Final = {
    "25006": ErrorClass.CONNECTION_LOST,  # read-only transaction: a standby, or a former primary
    "25P03": ErrorClass.CONNECTION_LOST,  # idle in a transaction for too long
    "25P04": ErrorClass.TRY_AGAIN,  # transaction_timeout
    "40003": ErrorClass.CONNECTION_LOST,  # statement completion unknown
    "53100": ErrorClass.BROKEN,  # disk full
    "53200": ErrorClass.MEMBER,  # out of memory, or of room for locks: a smaller group may pass
    "53300": ErrorClass.CONNECTION_LOST,  # too many connections
    "55006": ErrorClass.TRY_AGAIN,  # object in use
    "55P03": ErrorClass.TRY_AGAIN,  # lock not available in time
    "57014": ErrorClass.TRY_AGAIN,  # statement_timeout, or cancelled by an administrator
    "57P01": ErrorClass.CONNECTION_LOST,  # admin shutdown
    "57P02": ErrorClass.CONNECTION_LOST,  # crash of another backend
    "57P03": ErrorClass.CONNECTION_LOST,  # cannot connect now: starting or stopping
    "57P05": ErrorClass.CONNECTION_LOST,  # idle for too long
}
CLASSES: Final = {
    "08": ErrorClass.CONNECTION_LOST,
    "21": ErrorClass.MEMBER,  # cardinality
    "22": ErrorClass.MEMBER,  # data
    "23": ErrorClass.MEMBER,  # constraints
    "27": ErrorClass.MEMBER,  # triggered data change
    "40": ErrorClass.TRY_AGAIN,  # serialization failure, deadlock
    "44": ErrorClass.MEMBER,  # check option
    "54": ErrorClass.MEMBER,  # too large for an index, too many columns
    "P0": ErrorClass.MEMBER,  # raised by a function
}
CLASS_LENGTH: Final = 2
REFUSALS: Final = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "permission denied",
    "is not permitted to log in",
    "no password supplied",
    "does not support SSL",
    "certificate",
    "definition of service",
    "invalid port number",
    "invalid integer value",
    ' value: "',
)
"""Texts of libpq for errors that a retry does not solve. They have no SQLSTATE and are in the server's language: in
another language than English a few more attempts are made."""


def classify_error(error: BaseException) -> ErrorClass:
    """The class of an error. An error that is not PostgreSQL's is about a value that could not be sent."""
    if isinstance(error, StoreError):
        return ErrorClass.BROKEN
    if isinstance(error, psycopg.Error):
        return _by_state(error.sqlstate) if error.sqlstate else _without_state(error)
    return ErrorClass.CONNECTION_LOST if isinstance(error, OSError) else ErrorClass.MEMBER


def _by_state(state: str) -> ErrorClass:
    return CODES.get(state) or CLASSES.get(state[:CLASS_LENGTH], ErrorClass.BROKEN)


def _without_state(error: psycopg.Error) -> ErrorClass:
    if type(error) is psycopg.DatabaseError:  # of a result that libpq made itself: the server may have committed
        return ErrorClass.CONNECTION_LOST
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        text = str(error)
        return ErrorClass.BROKEN if any(refusal in text for refusal in REFUSALS) else ErrorClass.CONNECTION_LOST
    return ErrorClass.MEMBER


logger = logging.getLogger("holdfast")

PostgresConnection = psycopg.Connection[tuple[object, ...]]

OLDEST_SERVER: Final = 14
VERSION_STEP: Final = 10_000
"""`server_version` is 180004 for 18.4."""
DEFAULTS: Final = {
    "fallback_application_name": "holdfast",
    "client_encoding": ENCODING,
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""Defaults of the URL. A dead peer is detected within about eleven seconds; the default lease is ten."""
SEVERAL_HOSTS: Final = {"target_session_attrs": "read-write"}
"""With several hosts: connect to the primary."""
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
    """The parameters of libpq."""
    given = dict(address.parameters)
    several = SEVERAL_HOSTS if "," in given.get("host", "") + given.get("hostaddr", "") else {}
    return {**DEFAULTS, **several, **given}


def connect(address: Address) -> PostgresConnection:
    """One attempt to connect, to a primary of a supported release."""
    options = settings(address)
    connection = cast(
        "PostgresConnection",
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


def jitter() -> float:
    """A number from 0 to 1, different for each call and each process. For pauses only."""
    return zlib.crc32(f"{os.uname().nodename} {os.getpid()} {next(_calls)}".encode()) / 2**32


def pause_seconds(failures: int, chance: float) -> float:
    """The pause after `failures` in a row: exponential with jitter, within a bound."""
    longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, MOST_TRIES))
    return longest * (1 + chance) / 2


class Outage:
    """An outage of a server, shared by the connections of a process, so that its begin and its end are logged once."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._is_on = False
        self.number = 0
        """The number of outages that are over."""

    def failed(self, error: BaseException, *, made_after: int | None = None) -> None:
        """A connection could not be made, or was lost. `made_after` is `number` at the time it was made.

        A connection from before an outage that is over was lost in that outage, so it begins no new one.
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
            is_over = self._is_on
            self._is_on = False
            self.number += is_over
        if is_over:
            logger.warning("%s is reached again", self._address)


@lru_cache(CACHED_OUTAGES)
def outage_of(address: Address) -> Outage:
    """The outage object of this process for a server."""
    return Outage(address)


class ReconnectingConnection:
    """A connection that is made when it is needed, and again after it was lost. For one thread at a time."""

    def __init__(
        self,
        address: Address,
        *,
        tries: int = MOST_TRIES,
        chance: Callable[[], float] = jitter,
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
        """The connection, made with a few retries with growing pauses. Raises `StoreError` after the last."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        self._connection = connection = self._open()
        return connection

    def ready(self) -> PostgresConnection | None:
        """The connection, if it was made and not lost since."""
        connection = self._connection
        return None if connection is None or connection.closed else connection

    def _open(self) -> PostgresConnection:
        for failures in range(1, self._tries + 1):
            if self._closed.is_set():
                break
            try:
                connection = self._open_one(self._address)
            except (psycopg.Error, OSError) as error:
                if classify_error(error) is ErrorClass.BROKEN:
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
        """Discard the connection after an error."""
        self._outage.failed(error, made_after=self._made_after)
        self._drop()

    def stop(self) -> None:
        """Make waits for a connection fail from now on. May be called from another thread."""
        self._closed.set()

    def close(self) -> None:
        """Stop, and close the connection. Only for the thread that uses it: libpq allows no other."""
        self._closed.set()
        self._drop()

    def _drop(self) -> None:
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection.close()


def _line(error: BaseException) -> str:
    """The error's text in one line."""
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def one_round_trip(connection: PostgresConnection) -> Generator[None]:
    """Send statements together and receive their results together, which may be read after the block only.

    psycopg sends each statement when it is executed. A process that is stopped between two of them would leave the
    server in a transaction in which its timeout for idle transactions does not run, and keep its locks until it
    continues. So statements are gathered, and up to 8 kB (libpq's buffer) are sent in one write, with the Sync.

    psycopg ends a pipeline with a Sync and then a Flush. At the Flush the server stops its timeout for idle
    transactions, and a transaction whose client vanished right after would keep its locks for ever. So the Sync is the
    last message, which returns the results as well. psycopg logs a pipeline that it cannot end after an error; here the
    error is raised.
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
    """Send the gathered statements up to the Sync; then receive the results as psycopg does."""
    while pipeline.command_queue:
        pipeline.command_queue.popleft()()
    while pipeline.pgconn.flush():  # more than the socket takes: the server may have to send results first
        if (yield Wait.RW) & Ready.R:
            pipeline.pgconn.consume_input()
    yield from communicate()


Value = TypeVar("Value")

MAX_TRIES: Final = 20
"""Retries after conflicts. Together they take longer than a transaction that has stopped can keep its locks."""
MOST_LOSSES: Final = 3
"""Connections that one action may lose."""


class RetryingConnection:
    """One connection that retries what can be retried. For one thread at a time."""

    def __init__(self, address: Address, *, losses: int = MOST_LOSSES) -> None:
        self._address = address
        self._losses = losses
        self._connections = ReconnectingConnection(address)
        self._closed = threading.Event()

    def stop(self) -> None:
        """Stop retrying. May be called from another thread."""
        self._closed.set()
        self._connections.stop()

    def close(self) -> None:
        """Close the connection, which is not in use."""
        self.stop()
        self._connections.close()

    def pause(self, seconds: float) -> bool:
        """Wait before a retry. Returns whether to stop instead."""
        return self._closed.wait(seconds)

    def ready(self) -> PostgresConnection | None:
        """The connection, if it is open. It is for the thread whose turn it is."""
        return self._connections.ready()

    def lost(self, error: BaseException) -> None:
        """Discard the connection of the running action, which continues with another one."""
        self._connections.lost(error)

    def run(self, action: Callable[[PostgresConnection], Value]) -> Value:
        """Run `action` in a transaction of its own. It is retried if nothing of it can have been committed.

        An error that one member causes is raised as it is; any other error that persists is a `StoreError`.
        """
        tries = losses = 0
        while True:
            connection = self._connections.get()
            try:
                return action(connection)
            except ConcurrentChange as error:
                fault = ErrorClass.TRY_AGAIN
                trouble = str(error)
            except (psycopg.Error, OSError) as error:
                fault = classify_error(error)
                trouble = " ".join(str(error).split())
                if connection.closed or connection.broken:
                    fault = ErrorClass.CONNECTION_LOST
                if fault is ErrorClass.CONNECTION_LOST:
                    self._connections.lost(error)
                if fault is ErrorClass.MEMBER:
                    raise
            finally:
                self._roll_back(connection)
            tries += 1
            losses += fault is ErrorClass.CONNECTION_LOST
            if self._closed.is_set() or fault is ErrorClass.BROKEN or tries >= MAX_TRIES or losses >= self._losses:
                raise StoreError(f"{self._address} could not be written: {trouble}")
            if fault is ErrorClass.TRY_AGAIN:
                self._closed.wait(pause_seconds(tries, jitter()))

    def _roll_back(self, connection: PostgresConnection) -> None:
        """Roll back an open transaction. A connection that fails to do so is discarded."""
        if connection.closed or connection.info.transaction_status == TransactionStatus.IDLE:
            return
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error as error:
            self._connections.lost(error)
