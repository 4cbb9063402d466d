"""The SQLite store: reads on the caller's thread, heartbeats on the heartbeat thread, groups on either of two threads.

While commits are quick and the write lock is free, a group is written on the caller's thread: handing it to another
thread costs more than such a commit, and beside busy Python code a writer thread starves for the interpreter. If the
disk is slow or another process is writing, the group is written on the writer's thread, and the worker continues.

``:memory:`` is a file in a private temporary folder that is deleted with the store: the same code, without durability.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import apsw

from holdfast.core.leases import Heartbeat, HeartbeatReply
from holdfast.errors import ClientClosed, StoreError, StoreReplaced
from holdfast.fork import generation
from holdfast.storage.contract import (
    CLIENT_ROWS_KEPT_MS,
    COMMITS_KEPT_MS,
    IN_MEMORY,
    RETENTION,
    SEARCH,
    TOMBSTONES_KEPT_MS,
    Notifier,
)
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.members.workers import Registration
from holdfast.storage.records import CommitId
from holdfast.storage.relational.contract_reads import OpenContractReads
from holdfast.storage.relational.reads import BoundStatement
from holdfast.storage.relational.search_reads import SearchReads
from holdfast.storage.relational.transaction import Row
from holdfast.storage.sqlite.connection import check_library, create, open_read_only, open_reader, statements
from holdfast.storage.sqlite.files import StoreFiles
from holdfast.storage.sqlite.foreign_writes import ForeignWriteProbe
from holdfast.storage.sqlite.notifier import SocketNotifier
from holdfast.storage.sqlite.writer import SqliteWriter
from holdfast.storage.wakeups import Heard, Notify, ignore_wakeups

if TYPE_CHECKING:
    from holdfast.storage.sqlite.connection import SqliteConnection
    from holdfast.storage.sqlite.search import SearchConnection, SqliteDialect

Value = TypeVar("Value")

SLOW_COMMIT_MS: Final = 5.0
"""If a commit takes longer than this, smoothed, groups are written on the writer's thread."""
SHORT_COMMIT_MS: Final = 1.0
"""If a commit takes less than this, smoothed, the caller's thread waits for the lock, for a millisecond at most: most
commits of other processes end meanwhile. Two engines run about a tenth more."""
PROBE_EVERY: Final = 32
"""After this many groups on the writer's thread the caller's thread is tried again."""
SMOOTHING: Final = 0.2
LONGEST_COUNTED_MS: Final = 50.0
"""An outlier counts as this: it must not keep a fast disk on the slow path for long."""
PIECE: Final = 5_000
"""The commits that one `prune` reads, and the dead workers that it deletes at most: some milliseconds."""
BEFORE_ALL: Final = -(2**63)

_PARENT_CONNECTIONS: list[object] = []
"""Connections of the parent of a forked process. They belong to the parent, and the child does not close them."""


class SqliteStore(OpenContractReads, SearchReads):
    """A store on one file. Any number of processes of one machine may use it at the same time."""

    capabilities = OpenContractReads.capabilities | {SEARCH, RETENTION}

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Callable[[], int],
        elapsed_ms: Callable[[], float] = lambda: 0.0,
        durability: str = "full",
    ) -> None:
        self.sql = statements()
        self._temporary: str | None = None
        self._named = str(path)
        self._path = Path(path)
        self._clock = clock
        self._elapsed_ms = elapsed_ms
        self._durability = "none" if self._named == IN_MEMORY else durability
        self._executor = ThreadPoolExecutor(1, "holdfast-writer")
        self._writer: SqliteWriter | None = None
        self._heartbeat_writer: SqliteWriter | None = None
        self._heartbeat_lock = threading.Lock()
        self._reader: SqliteConnection | None = None
        self._searcher: SearchConnection | None = None
        self._files: StoreFiles | None = None
        self._mark_ms = 0
        self._generation = generation()
        self._commit_ms = 0.0
        self._groups = 0
        self._waiting = 0
        """Groups on the writer's thread, which has the writer to itself: several may hand in groups at once."""
        self._cleaned_to = BEFORE_ALL
        self._offers_cleaned_to = ""
        self._was_closed = False

    @property
    def companion_path(self) -> Path:
        """The file. Processes that share it share the store."""
        return self._path

    def make_notifier(self, name: str, heard: Heard) -> Notifier:
        """A notifier that uses sockets beside the file: every process that shares the file is on this machine."""
        return SocketNotifier(self._path, name, heard, None if self._named == IN_MEMORY else self._make_probe)

    def _make_probe(self, inserted: Callable[[str | None], None]) -> ForeignWriteProbe:
        return ForeignWriteProbe(self._foreign_version, self._has_new_rows, inserted)

    def _foreign_version(self) -> int | None:
        """A number that changes when another connection commits; None while the writer's thread uses the writer."""
        writer = self._open(self._writer)
        return None if self._waiting else writer.data_version()

    def _has_new_rows(self) -> bool:
        return bool(self._fetch(self.sql.has_new_rows, ())[0][0])

    @property
    def crash_marker_folder(self) -> Path:
        """Beside the file, so that all processes that use the file share it."""
        return self._path.with_name(f"{self._path.name}-turns")

    async def open(self) -> None:
        if self._was_closed:
            raise StoreError(f"the store {self._named} was closed and cannot be opened again; make another one")
        if self._named == IN_MEMORY:
            import tempfile  # noqa: PLC0415 - slow to import, and not needed for a file

            self._temporary = tempfile.mkdtemp(prefix="holdfast-")
            self._path = Path(self._temporary) / "memory.db"
        self._writer = await self._on_writer_thread(self._open_writer)
        self._reader = open_reader(self._path)
        self._mark_ms = self._fetch(self.sql.read_clock, ())[0][0]

    def open_for_reading(self) -> None:
        """Open an existing store for reads only: nothing is created, migrated or changed."""
        self._reader = open_read_only(self._path)
        self._mark_ms = self._fetch(self.sql.read_clock, ())[0][0]

    def _open_writer(self) -> SqliteWriter:
        check_library()
        create(self._path)
        self._path = self._path.resolve()  # as SQLite does: a later change of the current folder makes no difference
        files = StoreFiles(self._path)
        try:
            writer = self._new_writer(files)
        except BaseException:
            files.close(lambda: None)
            raise
        try:
            writer.migrate()
            files.hold()
        except apsw.Error as error:
            files.close(writer.close)
            raise StoreError(f"{self._path} cannot be used as a store: {error}") from error
        except BaseException:
            files.close(writer.close)
            raise
        self._files = files
        return writer

    def _new_writer(self, files: StoreFiles) -> SqliteWriter:
        return SqliteWriter(self._path, self._clock, self._elapsed_ms, durability=self._durability, files=files)

    async def close(self) -> None:
        """Close everything, also with errors of the disk: the WAL is read when the store is opened next."""
        if self._generation != generation():
            parts = (self._writer, self._reader, self._heartbeat_writer, self._files, self._searcher)
            _PARENT_CONNECTIONS.append(parts)
            self._writer = self._reader = self._heartbeat_writer = self._files = self._temporary = None
            self._searcher = None
            return
        self._was_closed = True
        writer = self._writer
        self._writer = None
        reader = self._reader
        self._reader = None
        searcher = self._searcher
        self._searcher = None
        heartbeat_writer = self._heartbeat_writer
        self._heartbeat_writer = None
        files = self._files
        self._files = None
        try:
            if searcher is not None:
                searcher.close()
            if reader is not None:
                reader.close()
            if heartbeat_writer is not None:
                heartbeat_writer.close()
        finally:
            if writer is not None and files is not None:
                await self._on_writer_thread(lambda: _close(writer, files))
            self._executor.shutdown()
            if self._temporary is not None:
                import shutil  # noqa: PLC0415 - see `open`

                shutil.rmtree(self._temporary, ignore_errors=True)
                self._temporary = None

    def now_ms(self) -> int:
        clock = self._clock
        now_ms = clock()
        if now_ms > self._mark_ms:  # noqa: PLR1730 - asked twice a step, and half the price of a max()
            self._mark_ms = now_ms
        return self._mark_ms

    async def commit(
        self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
    ) -> list[Outcome]:
        writer = self._open(self._writer)
        self._groups += 1
        is_quick = self._commit_ms < SLOW_COMMIT_MS or self._groups % PROBE_EVERY == 0
        if not self._waiting and is_quick and not (len(members) == 1 and members[0].takes_long):
            outcomes = writer.try_write(commit_id, members, soon=self._commit_ms < SHORT_COMMIT_MS)
            if outcomes is not None:
                took_ms = min(writer.last_commit_ms, LONGEST_COUNTED_MS)
                self._commit_ms += (took_ms - self._commit_ms) * SMOOTHING
                notify(writer.wakeups)
                return outcomes
        written, wakeups = await self._apart(lambda: (writer.write(commit_id, members), writer.wakeups))
        notify(wakeups)
        return written

    async def prune(self) -> bool:
        """Scan commits in batches by their ids: an index by age would cost every group. It writes only if it has found
        something to delete.
        """
        writer = self._open(self._writer)
        now_ms = self.now_ms()
        after = self._cleaned_to
        [(last, oldest_ms, count)], dead = await self._read_all(
            (self.sql.scan_commits, after, PIECE), (self.sql.has_dead_workers, now_ms - TOMBSTONES_KEPT_MS)
        )
        gone = 0
        if dead or (count and oldest_ms < now_ms - COMMITS_KEPT_MS):
            last_old = last if count else after
            gone = await self._remove(lambda wait: writer.prune(after, last_old, PIECE, wait=wait))
        has_more = count == PIECE
        self._cleaned_to = last if has_more else BEFORE_ALL
        has_more_rows = await self._prune_client_rows(writer, now_ms - CLIENT_ROWS_KEPT_MS)
        return has_more or has_more_rows or gone == PIECE

    async def size_bytes(self) -> int:
        [(size,)] = await self._read(self.sql.store_size)
        return int(size)

    async def give_back(self, limit_bytes: int) -> int:
        """A file that was created with `auto_vacuum = NONE`, by an earlier release, only uses the pages again."""
        writer = self._open(self._writer)
        [(free, page_bytes)] = await self._read(self.sql.free_pages)
        wanted = min(int(free), limit_bytes // page_bytes)
        return 0 if not wanted else await self._apart(lambda: writer.give_back(wanted)) * int(page_bytes)

    async def _prune_client_rows(self, writer: SqliteWriter, before_ms: int) -> bool:
        """The same for offers, their events, and refused rows of clients. Returns whether there may be more."""
        after = self._offers_cleaned_to
        [(last, count, closed)], refused = await self._read_all(
            (self.sql.scan_offers, after, PIECE, before_ms), (self.sql.has_refused_rows, before_ms)
        )
        gone = 0
        if closed or refused:
            last_old = last if count else after
            gone = await self._remove(lambda wait: writer.prune_client_rows(after, last_old, PIECE, wait=wait))
        if gone == PIECE:
            return True  # the same range again: an offer may have more events than one batch
        self._offers_cleaned_to = last if count == PIECE else ""
        return bool(count == PIECE)

    async def _remove(self, delete: Callable[[bool], int | None]) -> int:
        """Write on this thread if the write lock is free, as groups are; otherwise on the writer's thread."""
        gone = None if self._waiting else delete(False)
        if gone is not None:
            return gone
        return await self._apart(lambda: delete(True)) or 0

    async def was_committed(self, commit_id: CommitId) -> bool:
        return bool(await self._read(self.sql.find_commit, commit_id))

    async def check_files(self) -> None:
        writer = self._open(self._writer)
        if self._files is not None and not self._files.are_in_place():
            await self._apart(writer.check_files)

    def heartbeat(self, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
        with self._heartbeat_lock:  # an abandoned heartbeat thread may still use it
            return self._open_heartbeat_writer().heartbeat(beat, registration)

    def commit_apart(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        with self._heartbeat_lock:
            return self._open_heartbeat_writer().write(commit_id, members)

    def _open_heartbeat_writer(self) -> SqliteWriter:
        self._open(self._reader)
        if self._heartbeat_writer is None:
            self._heartbeat_writer = self._new_writer(self._open(self._files))
        return self._heartbeat_writer

    # ------------------------------------------------------------ reads

    async def _read(self, statement: str, *bindings: Any) -> list[Row]:
        return self._fetch(statement, bindings)

    async def _read_all(self, *asked: BoundStatement) -> list[list[Row]]:
        return [self._fetch(ask[0], ask[1:]) for ask in asked]

    def _fetch(self, statement: str, bindings: tuple[Any, ...]) -> list[Row]:
        try:
            return self._open(self._reader).execute(statement, bindings).fetchall()
        except apsw.Error as error:
            raise StoreError(f"{self._named} could not be read: {error}") from error
        except UnicodeDecodeError as error:  # SQLite stores any bytes as text
            raise StoreError(
                f"{self._named} has a damaged row, whose text is not UTF-8 ({error}); run holdfast verify"
            ) from error

    @property
    def _dialect(self) -> "SqliteDialect":
        from holdfast.storage.sqlite.search import SqliteDialect  # noqa: PLC0415 - few processes search

        return SqliteDialect()

    async def _search(self, *asked: BoundStatement) -> list[list[Row]]:
        from holdfast.storage.sqlite.search import SearchConnection  # noqa: PLC0415

        self._open(self._reader)
        if self._searcher is None:
            open_one = open_reader if self._writer else open_read_only
            self._searcher = SearchConnection(self._path, self._elapsed_ms, open_one)
        searcher = self._searcher
        return await asyncio.get_running_loop().run_in_executor(searcher.thread, searcher.run, asked)

    def _open(self, part: Value | None) -> Value:
        if self._generation != generation():
            raise StoreError(f"{self._named} was opened before this process was forked; open it again here")
        if self._was_closed:
            raise ClientClosed(f"the store {self._named} was closed during this call")
        if part is None:
            raise StoreError(f"the store {self._named} is not open")
        if self._files is not None and self._files.failure:
            raise StoreReplaced(self._files.failure)
        return part

    async def _on_writer_thread(self, work: Callable[[], Value]) -> Value:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _apart(self, work: Callable[[], Value]) -> Value:
        """Write on the writer's thread. A cancelled caller does not stop it: the writer is in use until it is done."""
        self._waiting += 1
        writing = asyncio.get_running_loop().run_in_executor(self._executor, work)
        writing.add_done_callback(self._written)
        return await asyncio.shield(writing)

    def _written(self, _: "asyncio.Future[Value]") -> None:
        self._waiting -= 1


def _close(writer: SqliteWriter, files: StoreFiles) -> None:
    try:
        writer.checkpoint()  # waits for other processes, so it comes before `files.close`, which blocks other stores
    finally:
        files.close(writer.close)
