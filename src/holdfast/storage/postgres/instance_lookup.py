"""Look-ups of instances by id, in the event loop and many at a time.

A start under an id of the caller's own looks the id up before it runs code, so this is the most frequent read. All ids
that are asked for while a look-up runs are looked up together after it. One by one on a thread, the look-ups took a
third of the client's processor time of B1.
"""

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import Executor, Future

import psycopg
from psycopg.adapt import Transformer

from holdfast.errors import StoreError
from holdfast.storage.postgres.address import Address
from holdfast.storage.postgres.connection import PostgresConnection, ReconnectingConnection
from holdfast.storage.postgres.loop_query import LoopQuery
from holdfast.storage.postgres.transaction import statements_of
from holdfast.storage.records import InstanceId, InstanceRecord
from holdfast.storage.relational.rows import instance_of


class NotLookedUp(Exception):
    """A look-up failed. Another way of reading may succeed, or finds the error of this id."""


class _Batch:
    """Ids that are looked up together."""

    def __init__(self) -> None:
        self.ids: set[InstanceId] = set()
        self.found: Mapping[InstanceId, InstanceRecord] | None = None
        self.has_failed = False


class InstanceLookup:
    """Finds instances on a connection of its own, one read at a time. `threads` make the connection."""

    def __init__(self, address: Address, threads: Executor) -> None:
        self._statement = statements_of(address.schema).find_instances.encode()
        self._connections = ReconnectingConnection(address, tries=1)
        self._threads = threads
        self._query = LoopQuery()
        self._lock = asyncio.Lock()
        self._next = _Batch()
        self._connecting: Future[PostgresConnection] | None = None

    async def find(self, instance_id: InstanceId) -> InstanceRecord | None:
        """The instance that has an id, as of a moment after the call. Raises `NotLookedUp`."""
        batch = self._next
        batch.ids.add(instance_id)
        async with self._lock:
            if batch.has_failed:
                raise NotLookedUp
            if batch.found is None:  # the first one that has the lock reads for all of the batch
                self._next = _Batch()
                try:
                    batch.found = await self._read(batch.ids)
                except NotLookedUp:
                    batch.has_failed = True
                    raise
        return batch.found.get(instance_id)

    async def _read(self, ids: set[InstanceId]) -> Mapping[InstanceId, InstanceRecord]:
        try:
            connection = self._connections.ready() or await self._connect()
            result = await self._query.run(connection, self._statement, [json.dumps(sorted(ids)).encode()])
        except (psycopg.Error, OSError, StoreError, NotImplementedError) as error:
            raise NotLookedUp from error
        transformer = Transformer(connection)
        transformer.set_pgresult(result)
        found = [instance_of(row) for row in transformer.load_rows(0, result.ntuples, tuple)]
        return {record.id: record for record in found}

    async def _connect(self) -> PostgresConnection:
        """Connect on a thread, which goes on if the caller is cancelled: the next caller waits for the same one."""
        self._query.release()
        if self._connecting is None or self._connecting.done():
            self._connecting = self._threads.submit(self._connections.get)
        return await asyncio.shield(asyncio.wrap_future(self._connecting))

    async def close(self) -> None:
        """Close the connection, after the look-up that is running."""
        self._connections.stop()
        async with self._lock:
            self._query.release()
            if self._connecting is not None and not self._connecting.done():
                await asyncio.gather(asyncio.wrap_future(self._connecting), return_exceptions=True)
            self._connections.close()
