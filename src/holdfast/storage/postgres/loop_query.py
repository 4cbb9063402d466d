"""Statements in the event loop: libpq sends and receives without waiting, so no thread is needed.

A hop to a thread and back costs 110 us of processor time, a third of the client's share of a small commit. One
statement at a time. The loop watches the socket of the connection until `release`: then another thread may use the
connection.
"""

import asyncio
from collections.abc import Sequence

import psycopg
from psycopg import errors
from psycopg.pq import ExecStatus, Format, abc

from holdfast.storage.postgres.connection import PostgresConnection


class LoopQuery:
    """Runs statements that return rows. Used from the thread of the event loop."""

    def __init__(self) -> None:
        self.is_possible = True
        """False on an event loop that cannot watch sockets, as that of Windows."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: PostgresConnection | None = None
        self._socket = -1
        self._waiting: asyncio.Future[abc.PGresult] | None = None
        self._result: abc.PGresult | None = None

    async def run(
        self, connection: PostgresConnection, statement: bytes, values: Sequence[bytes] | None = None
    ) -> abc.PGresult:
        """Send a statement and wait for its result. Raises as psycopg does; a cancelled call closes the connection.

        Without values it is one message of the simple query protocol. With values the result is in binary form.
        """
        pgconn = connection.pgconn
        loop = asyncio.get_running_loop()
        if connection is not self._connection or loop is not self._loop:
            self._watch(connection, loop)
        waiting: asyncio.Future[abc.PGresult] = loop.create_future()
        self._waiting = waiting
        self._result = None
        try:
            if values is None:
                pgconn.send_query(statement)
            else:
                pgconn.send_query_params(statement, values, result_format=Format.BINARY)
            if pgconn.flush():
                loop.add_writer(self._socket, self._writable)
            return await waiting
        except asyncio.CancelledError:
            self.release()
            connection.close()  # its next result would be that of this statement
            raise
        finally:
            self._waiting = None

    def release(self) -> None:
        """Stop watching the connection."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._loop = self._connection = None
        self._result = None

    def _watch(self, connection: PostgresConnection, loop: asyncio.AbstractEventLoop) -> None:
        self.release()
        self._socket = connection.pgconn.socket
        loop.add_reader(self._socket, self._readable)
        self._loop = loop
        self._connection = connection

    def _writable(self) -> None:
        if self._connection is None or self._loop is None:
            return
        try:
            is_sent = self._connection.pgconn.flush() == 0
        except psycopg.Error as error:
            self._failed(error)
        else:
            if is_sent:
                self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        if self._connection is None:
            return
        pgconn = self._connection.pgconn
        try:
            pgconn.consume_input()
            while not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    self._finish(self._connection)
                    return
                self._result = self._result or result  # the first one is that of the statement
        except psycopg.Error as error:
            self._failed(error)

    def _finish(self, connection: PostgresConnection) -> None:
        result = self._result
        self._result = None
        waiting = self._waiting
        if result is None or waiting is None or waiting.done():
            return
        if result.status == ExecStatus.TUPLES_OK:
            waiting.set_result(result)
        else:
            waiting.set_exception(errors.error_from_result(result, connection.info.encoding))

    def _failed(self, error: psycopg.Error) -> None:
        """The connection is lost: nothing more is read from it, also if no statement was running."""
        self.release()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
