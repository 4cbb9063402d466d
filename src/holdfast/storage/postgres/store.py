"""The PostgreSQL store, for any number of processes on any number of machines; and its raw tables for an audit.

Groups are written on one connection, heartbeats on another, and reads on a few. The worker's own thread never waits for
the network: it sends groups and receives their replies, and all other work has threads of its own. No connection has
state that a transaction pooler would lose.
"""

import asyncio
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

import psycopg

from holdfast.core.leases import Heartbeat, HeartbeatReply, WorkerKey
from holdfast.errors import ClientClosed, SearchTimedOut, StoreError
from holdfast.fork import generation
from holdfast.storage.contract import (
    CLAIMS_APART,
    CLIENT_ROWS_KEPT_MS,
    COMMITS_KEPT_MS,
    RETENTION,
    SEARCH,
    TOMBSTONES_KEPT_MS,
    Notifier,
)
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.members.workers import Registration
from holdfast.storage.postgres.address import Address, parse
from holdfast.storage.postgres.connection import PostgresConnection, ReconnectingConnection, RetryingConnection
from holdfast.storage.postgres.instance_lookup import InstanceLookup, NotLookedUp
from holdfast.storage.postgres.loop_writer import LoopWriter
from holdfast.storage.postgres.notifier import make_notifier
from holdfast.storage.postgres.schema import migrate, require_current, version
from holdfast.storage.postgres.search import BEGIN_SEARCH, SETTINGS, PostgresDialect
from holdfast.storage.postgres.transaction import BEGIN, ServerClock, run_pipelined, statements_of, translate
from holdfast.storage.postgres.writer import HeartbeatWriter, PostgresWriter
from holdfast.storage.records import CommitId, InboxRow, InstanceId, InstanceRecord
from holdfast.storage.relational.contract_reads import OpenContractReads
from holdfast.storage.relational.raw_tables import RawTables, Unreadable
from holdfast.storage.relational.reads import BoundStatement
from holdfast.storage.relational.search_reads import SearchReads
from holdfast.storage.relational.transaction import Row
from holdfast.storage.search import SEARCH_SECONDS
from holdfast.storage.wakeups import Heard, Notify, ignore_wakeups

PATH_DIGITS: Final = 16
READERS: Final = 2
"""Connections for concurrent reads: a long result does not delay short ones."""
PIECE: Final = 20_000
"""The rows of each kind that one `prune` deletes at most: a tenth of a second, on a reading connection."""
LOCK_TIMEOUT: Final = "1s"
IDLE_TIMEOUT: Final = "3s"
"""Of `prune`, which delays no other transaction."""
BEFORE_ALL: Final = "0"
"""A transaction id before every other."""

Value = TypeVar("Value")

_PARENT_CONNECTIONS: list[object] = []
"""Connections of the parent of a forked process. They belong to the parent, and the child does not close them."""


class PostgresStore(OpenContractReads, SearchReads):
    """A store in one schema of a database. `clock` is for tests: without it the server's clock decides."""

    capabilities = OpenContractReads.capabilities | {CLAIMS_APART, SEARCH, RETENTION}

    def __init__(
        self,
        address: str | Address,
        *,
        clock: Callable[[], int] | None = None,
        elapsed_ms: Callable[[], float] = lambda: 0.0,
        durability: str = "full",
    ) -> None:
        self.address = parse(address) if isinstance(address, str) else address
        self.sql = statements_of(self.address.schema)
        self._clock = ServerClock(clock, elapsed_ms)
        self._durability = durability
        self._reading = ThreadPoolExecutor(READERS, "holdfast-reader")
        self._writer: LoopWriter | None = None
        self._slow_writer: LoopWriter | None = None
        self._lookup: InstanceLookup | None = None
        self._heartbeat_writer: HeartbeatWriter | None = None
        self._readers: list[RetryingConnection] = []
        self._of_thread = threading.local()
        self._horizons: dict[WorkerKey, str] = {}
        self._is_open = False
        self._was_closed = False
        self._generation = generation()

    async def open(self) -> None:
        if self._was_closed:
            raise StoreError(f"the store {self.address} was closed and cannot be opened again; make another one")
        self._is_open = True
        self._writer = LoopWriter(PostgresWriter(self.address, self._clock, durability=self._durability))
        self._lookup = InstanceLookup(self.address, self._reading)
        self._heartbeat_writer = HeartbeatWriter(self.address, self._clock)
        [(server_ms, mark_ms)] = await self._on_a_reader(self._migrate)
        self._clock.read(server_ms, mark_ms)

    def _migrate(self, reader: RetryingConnection) -> list[Row]:
        """Run the missing migrations, and read the clock. Closes the connection on an error."""
        try:
            reader.run(lambda connection: migrate(connection, self.address, reader.pause))
            [rows] = reader.run(lambda connection: run_pipelined(connection, (self.sql.server_time,)))
        except BaseException:
            self._of_thread.reader = None
            if reader in self._readers:
                self._readers.remove(reader)
            reader.close()
            raise
        return rows

    def open_for_reading(self) -> None:
        """Open an existing store for reads only: nothing is created, migrated or changed."""
        looking = RetryingConnection(self.address)
        try:
            looking.run(lambda connection: require_current(connection, self.address))
            [[(server_ms, mark_ms)]] = looking.run(
                lambda connection: run_pipelined(connection, (self.sql.server_time,))
            )
        finally:
            looking.close()
        self._clock.read(server_ms, mark_ms)
        self._is_open = True

    @property
    def companion_path(self) -> Path:
        """In the folder for temporary files, shared by the processes of one machine and user."""
        digest = hashlib.sha256(str(self.address).encode()).hexdigest()[:PATH_DIGITS]
        return Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}-{digest}"

    @property
    def crash_marker_folder(self) -> Path:
        """One folder for all stores of a user: it is found by the worker's key, whatever the URL of the store."""
        return Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}-turns"

    def make_notifier(self, name: str, heard: Heard) -> Notifier:
        """A notifier with a connection of its own: a commit with NOTIFY would delay all others (decision 46)."""
        return make_notifier(self.address, name, heard)

    async def check_files(self) -> None:
        """There are no files: the server has them."""

    async def close(self) -> None:
        writer = self._writer
        lookup = self._lookup
        heartbeat_writer = self._heartbeat_writer
        readers = self._readers
        slow_writer = self._slow_writer
        self._writer = self._heartbeat_writer = self._lookup = self._slow_writer = None
        self._readers = []
        was_open = self._is_open
        self._is_open = False
        self._was_closed |= was_open
        if self._generation != generation():
            _PARENT_CONNECTIONS.extend((writer, slow_writer, lookup, heartbeat_writer, readers))
        elif was_open:
            parts = [part for part in (heartbeat_writer, *readers) if part is not None]
            for part in parts:
                part.stop()
            for user in (lookup, slow_writer, writer):
                if user is not None:
                    await user.close()
            await asyncio.to_thread(self._close_parts, parts)

    def _close_parts(self, parts: Sequence[HeartbeatWriter | RetryingConnection]) -> None:
        """Wait for running reads, then close the connections: none may be in use when it is closed."""
        self._reading.shutdown()
        for part in parts:
            part.close()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def commit(
        self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
    ) -> list[Outcome]:
        if len(members) == 1 and members[0].takes_long:
            return await self._open_slow_writer().write(commit_id, members, notify)
        return await self._open(self._writer).write(commit_id, members, notify)

    def _open_slow_writer(self) -> LoopWriter:
        """A writer with a connection of its own, so that other groups do not wait for a slice of a deletion."""
        self._check_open()
        if self._slow_writer is None:
            writer = PostgresWriter(self.address, self._clock, durability=self._durability)
            self._slow_writer = LoopWriter(writer)
        return self._slow_writer

    async def was_committed(self, commit_id: CommitId) -> bool:
        return await self._open(self._writer).was_committed(commit_id)

    async def prune(self) -> bool:
        """Runs beside the writer. Rows that another process is deleting are skipped."""
        now_ms = self.now_ms()
        rows_before_ms = now_ms - CLIENT_ROWS_KEPT_MS
        _, _, *deleted, _ = await self._read_all(
            BEGIN,
            (self.sql.begin_group, LOCK_TIMEOUT, IDLE_TIMEOUT),
            (self.sql.delete_old_commits, now_ms - COMMITS_KEPT_MS, PIECE),
            (self.sql.delete_dead_workers, now_ms - TOMBSTONES_KEPT_MS, PIECE),
            (self.sql.delete_closed_events, rows_before_ms, PIECE),
            (self.sql.delete_closed_offers, rows_before_ms, PIECE),
            (self.sql.delete_refused_requests, rows_before_ms, PIECE),
            (self.sql.delete_refused_events, rows_before_ms, PIECE),
            ("COMMIT",),
        )
        return any(count == PIECE for [(count,)] in deleted)

    async def size_bytes(self) -> int:
        [(size,)] = await self._read(self.sql.store_size, f'"{self.address.schema}"')
        return int(size)

    async def give_back(self, limit_bytes: int) -> int:
        """Autovacuum makes the space of deleted rows free for new ones; the tables keep it."""
        del limit_bytes
        return 0

    def heartbeat(self, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
        return self._open(self._heartbeat_writer).heartbeat(beat, registration)

    def commit_apart(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        self._check_open()
        writer = PostgresWriter(self.address, self._clock, durability=self._durability)
        try:
            return writer.write(commit_id, members)
        finally:
            writer.close()

    # ------------------------------------------------------------ reads

    async def find_instance(self, instance_id: InstanceId) -> InstanceRecord | None:
        self._check_open()
        if self._lookup is not None:
            with suppress(NotLookedUp):
                return await self._lookup.find(instance_id)
        return await super().find_instance(instance_id)

    async def read_inbox_of(self, owner: WorkerKey, after_row: int) -> list[InboxRow]:
        """Row numbers are assigned before a commit and become visible with it, so a lower one may appear later.

        Rows of transactions that were open at the last call are read again. A row may be returned twice.
        """
        horizon = self._horizons.get(owner, BEFORE_ALL) if after_row else BEFORE_ALL
        [(oldest,)], rows = await self._read_all(
            (self.sql.oldest_writer,), (self.sql.read_inbox_of_owner, owner, after_row, horizon)
        )
        self._horizons[owner] = oldest
        return [InboxRow(*row) for row in rows]

    async def _read(self, statement: str, *bindings: Any) -> list[Row]:
        [rows] = await self._read_all((statement, *bindings))
        return rows

    async def _read_all(self, *asked: BoundStatement) -> list[list[Row]]:
        return await self._on_a_reader(lambda reader: reader.run(lambda connection: run_pipelined(connection, *asked)))

    @property
    def _dialect(self) -> PostgresDialect:
        return PostgresDialect()

    async def _search(self, *asked: BoundStatement) -> list[list[Row]]:
        """The statements of one transaction, whose settings end with it."""
        limit = f"{SEARCH_SECONDS * 1_000:.0f}"
        statements = [(translate(ask[0], self.address.schema), *ask[1:]) for ask in asked]

        def run(connection: PostgresConnection) -> list[list[Row]] | None:
            try:
                return run_pipelined(connection, BEGIN_SEARCH, (SETTINGS, limit), *statements, ("COMMIT",))[2:-1]
            except psycopg.errors.QueryCanceled:
                return None

        found = await self._on_a_reader(lambda reader: reader.run(run))
        if found is None:
            raise SearchTimedOut(
                f"the search took longer than {SEARCH_SECONDS:g} s; add a time range or a test of an indexed field"
            )
        return found

    async def _on_a_reader(self, work: Callable[[RetryingConnection], Value]) -> Value:
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._reading, lambda: work(self._reader()))

    def _reader(self) -> RetryingConnection:
        """The connection of this thread."""
        reader: RetryingConnection | None = getattr(self._of_thread, "reader", None)
        if reader is None:
            reader = self._of_thread.reader = RetryingConnection(self.address)
            self._readers.append(reader)
        return reader

    def _open(self, part: Value | None) -> Value:
        self._check_open()
        if part is None:
            raise StoreError(f"the store {self.address} is not open")
        return part

    def _check_open(self) -> None:
        if self._generation != generation():
            raise StoreError(f"{self.address} was opened before this process was forked; open it again here")
        if self._was_closed:
            raise ClientClosed(f"the store {self.address} was closed during this call")
        if not self._is_open:
            raise StoreError(f"the store {self.address} is not open")


FETCH: Final = 500
"""Rows of one FETCH."""


class PostgresTables(RawTables):
    """The tables of one schema, in one snapshot."""

    def __init__(self, address: str | Address) -> None:
        self._address = parse(address) if isinstance(address, str) else address
        self.sql = statements_of(self._address.schema)
        self._connections = ReconnectingConnection(self._address)
        self._connection = self._connections.get()
        self._are_there = version(self._connection, self._address) > 0
        self._cursors = count(1)
        self._rows("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def close(self) -> None:
        self._connections.close()

    def damage(self) -> list[str]:
        """Empty: the server checks its own files."""
        return []

    def are_there(self) -> bool:
        return self._are_there

    def _rows(self, statement: str, *bindings: Any) -> list[Row]:
        try:
            [rows] = run_pipelined(self._connection, (statement, *bindings))
        except psycopg.Error as error:
            raise StoreError(f"{self._address} cannot be read: {' '.join(str(error).split())}") from error
        return rows

    def _stream(self, statement: str, table: str) -> Iterator[Row | Unreadable]:
        """Reads through a cursor of the server, so that no whole table is in memory."""
        del table
        name = f"audit_{next(self._cursors)}"
        self._rows(f"DECLARE {name} NO SCROLL CURSOR FOR {statement}")
        while rows := self._rows(f"FETCH FORWARD {FETCH} FROM {name}"):
            yield from rows
        self._rows(f"CLOSE {name}")
