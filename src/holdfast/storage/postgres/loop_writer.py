"""Writes groups for the event loop: most of them on its own thread, the others on the thread of the writer.

A group that is one call needs no waiting, so it is composed and sent in the event loop. A group that reads, an error, a
lost connection and its settling are work for the writer, which waits for answers on a thread of its own. Both use the
same connection, one group after the other.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import psycopg

from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.postgres.loop_query import LoopQuery
from holdfast.storage.postgres.writer import PostgresWriter
from holdfast.storage.records import CommitId
from holdfast.storage.wakeups import Notify

Value = TypeVar("Value")


class LoopWriter:
    """Writes groups, one at a time."""

    def __init__(self, writer: PostgresWriter) -> None:
        self._writer = writer
        self._query = LoopQuery()
        self._thread = ThreadPoolExecutor(1, "holdfast-writer")
        self._on_it: Future[Any] | None = None
        """The last work of the thread. It goes on if the task that waits for it is cancelled."""
        self._lock = asyncio.Lock()

    async def write(self, commit_id: CommitId, members: Sequence[Member], notify: Notify) -> list[Outcome]:
        """Write a group. Applied members are on disk when it returns; `notify` has their wake-ups."""
        async with self._lock:
            outcomes = await self._write(commit_id, members)
            notify(self._writer.wakeups)
        return outcomes

    async def _write(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        writer = self._writer
        is_free = self._query.is_possible and (self._on_it is None or self._on_it.done())
        connection = writer.ready_connection() if is_free else None
        call = None if connection is None else writer.one_call(commit_id, members, connection.info.encoding)
        if connection is None or call is None:
            return await self._on_thread(lambda: writer.write(commit_id, members))
        try:
            reply = await self._query.run(connection, call.text)
        except NotImplementedError:  # of `add_reader`: nothing was sent
            self._query.is_possible = False
            return await self._on_thread(lambda: writer.write(commit_id, members))
        except (psycopg.Error, OSError) as error:
            trouble = error
            return await self._on_thread(lambda: writer.failed(call, members, trouble))
        except asyncio.CancelledError:
            self._on_it = self._thread.submit(writer.was_committed, commit_id)  # settles it; later groups wait for that
            raise
        return writer.succeeded(call, (reply.get_value(0, 0) or b"").decode(connection.info.encoding))

    async def was_committed(self, commit_id: CommitId) -> bool:
        """Whether any part of a group is on disk."""
        async with self._lock:
            return await self._on_thread(lambda: self._writer.was_committed(commit_id))

    async def close(self) -> None:
        """Close the connection, after the group that is being written."""
        self._writer.stop()
        async with self._lock:
            await self._on_thread(self._writer.close)
        self._thread.shutdown()

    async def _on_thread(self, work: Callable[[], Value]) -> Value:
        self._query.release()
        self._on_it = future = self._thread.submit(work)
        return await asyncio.wrap_future(future)
