"""Heartbeats, on a connection of their own: they do not wait behind groups (W1-W5)."""

import threading
from typing import Final

import psycopg

from holdfast.core.liveness import Heartbeat, HeartbeatReply
from holdfast.core.liveness.lease import SHORTEST_LEASE_MS
from holdfast.storage.contract import Registration, ReplyLost
from holdfast.storage.postgres.address import Address
from holdfast.storage.postgres.clock import ServerClock
from holdfast.storage.postgres.connecting import PostgresConnection
from holdfast.storage.postgres.faults import ErrorClass, classify
from holdfast.storage.postgres.insisting import RetryingConnection
from holdfast.storage.postgres.statements import statements_of
from holdfast.storage.postgres.transaction import BEGIN, PostgresTransaction, ask_all
from holdfast.storage.relational.beating import apply_beat

HEARTBEAT_LOCK_TIMEOUT: Final = "1s"
IDLE_MS: Final = 2_000
IDLE_PARTS: Final = 2
"""A heartbeat that stops in the middle must not keep others from ending its lease: it has so long at most, and no more
than that part of its lease, which is over before the lease itself."""


class HeartbeatWriter:
    """Judges heartbeats and records leases. One at a time; a thread that was given up may still be at it."""

    def __init__(self, address: Address, clock: ServerClock) -> None:
        self._address = address
        self._clock = clock
        self._sql = statements_of(address.schema)
        self._insisting = RetryingConnection(address, losses=2)
        self._one_beat = threading.Lock()

    def stop(self) -> None:
        """Whoever waits for the next try gives up. May be called from another thread."""
        self._insisting.stop()

    def close(self) -> None:
        """End the connection, which nobody uses any more."""
        with self._one_beat:
            self._insisting.close()

    def heartbeat(self, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
        """One heartbeat. It is sent again where nothing of it can have been kept, and never where its reply was lost:
        the sender has to know that, or it takes the next token for somebody else's (W4, W9).
        """
        with self._one_beat:
            return self._insisting.run(lambda connection: self._beat(connection, beat, registration))

    def _beat(self, connection: PostgresConnection, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
        sql, idle_ms = self._sql, _idle_ms(beat)
        _, _, _, [(server_ms, mark_ms)] = ask_all(
            connection,
            BEGIN,
            (sql.begin_group, HEARTBEAT_LOCK_TIMEOUT, f"{idle_ms}ms"),
            (sql.read_worker, beat.key),
            (sql.server_time,),  # when the row is ours: whoever waited for it must not judge by an older time
        )
        transaction = PostgresTransaction(connection, sql, self._clock.read(server_ms, mark_ms))
        reply = apply_beat(transaction, beat, registration)
        try:
            ask_all(connection, (sql.advance_clock, transaction.now_ms, self._clock.slack_ms), ("COMMIT",))
        except (psycopg.Error, OSError) as error:
            if not connection.closed and classify(error) is not ErrorClass.CONNECTION_LOST:
                raise  # the server has refused it
            self._insisting.lost(error)
            trouble = " ".join(str(error).split())
            raise ReplyLost(f"{self._address} was lost at the commit of a heartbeat: {trouble}") from error
        return reply


def _idle_ms(beat: Heartbeat) -> int:
    """A lease that is not asked for, or makes no sense, is judged later. Zero would mean for ever."""
    return min(IDLE_MS, max(beat.lease_ms or 0, SHORTEST_LEASE_MS) // IDLE_PARTS)
