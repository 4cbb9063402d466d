"""Statements in the event loop: a result belongs to the statement that it was sent for."""

import asyncio
import socket
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from psycopg.pq import ExecStatus

from holdfast.storage.postgres.loop_query import LoopQuery


class Server:
    """A connection that delivers results and, when it is told so, the end of a statement."""

    def __init__(self) -> None:
        self._own, self._other = socket.socketpair()
        self.pgconn = self
        self.socket = self._own.fileno()
        self._parsed: list[Any] = []

    def reply(self, *results: Any) -> None:
        """Results that libpq has parsed; None ends the statement."""
        self._parsed.extend(results)
        self._other.send(b".")

    def send_query(self, statement: bytes) -> None:
        del statement

    def flush(self) -> int:
        return 0

    def consume_input(self) -> None:
        self._own.recv(1)

    def is_busy(self) -> int:
        return int(not self._parsed)

    def get_result(self) -> Any:
        return self._parsed.pop(0)

    def close(self) -> None:
        self._own.close()
        self._other.close()


def rows(text: str) -> Any:
    return SimpleNamespace(status=ExecStatus.TUPLES_OK, text=text)


def test_L13_the_result_of_a_cancelled_statement_is_not_that_of_the_next_one() -> None:
    async def scenario() -> None:
        query = LoopQuery()
        first: Any = Server()
        cancelled = asyncio.create_task(query.run(first, b"first"))
        await asyncio.sleep(0)
        first.reply(rows("first"))  # without the end of the statement
        for _ in range(3):
            await asyncio.sleep(0)
        cancelled.cancel()
        with suppress(asyncio.CancelledError):
            await cancelled
        second: Any = Server()
        running = asyncio.create_task(query.run(second, b"second"))
        await asyncio.sleep(0)
        second.reply(rows("second"), None)
        result: Any = await running
        assert result.text == "second"
        query.release()
        second.close()

    asyncio.run(scenario())
