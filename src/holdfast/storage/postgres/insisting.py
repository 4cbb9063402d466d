"""A connection that writes, and what it does about errors: tried again, on another connection, or told."""

import threading
from collections.abc import Callable
from typing import Final, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.errors import StoreError
from holdfast.storage.postgres.address import Address
from holdfast.storage.postgres.connecting import PostgresConnection, ReconnectingConnection, pause_seconds, spread
from holdfast.storage.postgres.faults import ErrorClass, classify
from holdfast.storage.relational.transaction import ConcurrentChange

Value = TypeVar("Value")

MAX_TRIES: Final = 20
"""Of what met another transaction: longer than one that stopped in the middle can be in the way."""
MOST_LOSSES: Final = 3
"""Connections that one action may lose."""


class RetryingConnection:
    """One connection, for one thread at a time."""

    def __init__(self, address: Address, *, losses: int = MOST_LOSSES) -> None:
        self._address = address
        self._losses = losses
        self._connections = ReconnectingConnection(address)
        self._closed = threading.Event()

    def stop(self) -> None:
        """Whoever waits for the next try gives up. May be called from another thread."""
        self._closed.set()
        self._connections.stop()

    def close(self) -> None:
        """End the connection, which nobody uses any more."""
        self.stop()
        self._connections.close()

    def pause(self, seconds: float) -> bool:
        """Wait for the next try; whether it is given up."""
        return self._closed.wait(seconds)

    def lost(self, error: BaseException) -> None:
        """The action found out that its connection is dead, and goes on with another one."""
        self._connections.lost(error)

    def run(self, action: Callable[[PostgresConnection], Value]) -> Value:
        """Do something in a transaction of its own. It is done again where nothing of it can have been kept.

        What is one member's fault is raised as it is; all else that lasts is a `StoreError`.
        """
        tries = losses = 0
        while True:
            connection = self._connections.get()
            try:
                return action(connection)
            except ConcurrentChange as error:
                fault, trouble = ErrorClass.TRY_AGAIN, str(error)
            except (psycopg.Error, OSError) as error:
                fault, trouble = classify(error), " ".join(str(error).split())
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
                self._closed.wait(pause_seconds(tries, spread()))

    def _roll_back(self, connection: PostgresConnection) -> None:
        """Whatever is left of a transaction goes. A connection that cannot even do that is given up."""
        if connection.closed or connection.info.transaction_status == TransactionStatus.IDLE:
            return
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error as error:
            self._connections.lost(error)
