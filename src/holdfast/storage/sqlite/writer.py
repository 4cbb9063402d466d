"""A connection that writes groups, each in one transaction, and checkpoints the WAL. A process has one for its groups
and one for its heartbeats.

It is used from one thread at a time: the worker's own (`try_write`, if the write lock is free) or a thread that waits
for the lock (`write`). An error that no guard covers is caused by one member: the group is rolled back and bisected
until that member is alone. An error of the disk concerns the whole group: nothing of it is kept, and the error is
raised.
"""

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import apsw

from holdfast.core.leases import Heartbeat, HeartbeatReply
from holdfast.errors import StoreError, StoreReplaced
from holdfast.storage.contract import CLIENT_ROWS_KEPT_MS, COMMITS_KEPT_MS, TOMBSTONES_KEPT_MS
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Failed, Outcome, Rejected
from holdfast.storage.members.workers import Registration
from holdfast.storage.records import CommitId
from holdfast.storage.relational.apply.dispatch import apply_members
from holdfast.storage.relational.apply.workers import apply_worker_heartbeat
from holdfast.storage.relational.transaction import Row
from holdfast.storage.sqlite.connection import (
    SqliteConnection,
    SqliteCursor,
    is_current,
    migrate,
    open_writer,
    statements,
)
from holdfast.storage.sqlite.files import StoreFiles
from holdfast.storage.sqlite.foreign_writes import ForeignLock, ForeignLockWait
from holdfast.storage.sqlite.write_lock import WriteLock
from holdfast.storage.wakeups import Wakeups, WakeupTargets


class SqliteTransaction:
    """Statements of one group, between its BEGIN and its COMMIT."""

    __slots__ = ("_changes", "_execute", "_fetch", "now_ms", "sql", "wakeups")
    reads_are_cheap = True

    def __init__(self, connection: SqliteConnection, cursor: SqliteCursor, now_ms: int) -> None:
        self._execute = cursor.execute
        self._fetch = cursor.fetchall
        self._changes = connection.changes
        self.now_ms = now_ms
        self.sql = statements()
        self.wakeups = WakeupTargets()

    def update(self, statement: str, *bindings: Any) -> int:
        """Run a statement that changes rows. Returns their number."""
        execute = self._execute
        changes = self._changes
        execute(statement, bindings)
        return changes()

    def execute(self, statement: str, *bindings: Any) -> None:
        """Run a statement that changes rows, whose number does not matter."""
        self._execute(statement, bindings)

    def exists(self, statement: str, *bindings: Any) -> bool:
        """Whether a read finds its row."""
        return bool(self.fetch(statement, *bindings))

    def insert_instance(self, statement: str, *bindings: Any) -> int | None:
        """Insert an instance. Returns its number, or None if its id is taken."""
        rows = self.fetch(statement, *bindings)
        return rows[0][0] if rows else None

    def delete_instances(self, numbers: Sequence[int]) -> None:
        """Delete every row of instances. The file has a statement for each table, and each binds the numbers."""
        statement = self.sql.delete_instances
        self._execute(statement, (json.dumps(numbers),) * statement.count("?"))

    def fetch(self, statement: str, *bindings: Any) -> list[Row]:
        """Run a statement that returns rows."""
        execute = self._execute
        fetch = self._fetch
        execute(statement, bindings)
        return fetch()


logger = logging.getLogger("holdfast")

CHECKPOINT_PAGES: Final = 1_000
"""WAL pages after which a checkpoint moves them into the database."""


_BROKEN: Final = (
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.CorruptError,
    apsw.BusyError,
    apsw.CantOpenError,
)
"""The disk or the file is at fault, not a member of the group."""


def _wakeups_of(transaction: SqliteTransaction) -> Wakeups:
    """The wake-ups of a transaction that is about to be committed."""
    targets = transaction.wakeups
    if targets.is_empty():
        return Wakeups()
    numbers = targets.numbers()
    rows = transaction.fetch(transaction.sql.wakeup_targets, json.dumps(numbers)) if numbers else []
    return targets.resolve(rows, transaction.now_ms)


class SqliteWriter:
    """A connection that writes. Not shared between threads."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], int],
        elapsed_ms: Callable[[], float],
        *,
        durability: str,
        files: StoreFiles,
    ) -> None:
        self._path = path
        self._files = files
        self._sql = statements()
        self._clock = clock
        self._elapsed_ms = elapsed_ms
        self.last_commit_ms = 0.0
        """The duration of the last COMMIT, without the statements before it."""
        self.wakeups = Wakeups()
        """The wake-ups of the last group."""
        self._connection = open_writer(path, durability=durability)
        self._lock = WriteLock(path)
        self._cursor = self._connection.cursor()
        self._wal_pages = 0
        self._is_checkpoint_failing = False
        self._connection.set_wal_hook(self._count_pages)
        self._foreign = ForeignLockWait(path)
        self._connection.set_busy_handler(self._foreign)

    def checkpoint(self) -> None:
        """Move the WAL into the database, as far as readers and the disk allow.

        The rest stays in the WAL, which is read when the store is opened next.
        """
        with self._lock.held():
            self._try_checkpoint()

    def close(self) -> None:
        """Close the connection and the lock files, without waiting for other processes."""
        try:
            if not self._files.are_in_place():  # SQLite must not checkpoint, nor delete the WAL of other files
                self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        finally:
            self._connection.close()
            self._lock.close()

    def check_files(self) -> None:
        """Raise `StoreReplaced` if a file of the store was removed or replaced."""
        with self._lock.held():
            self._check_files()

    def migrate(self) -> None:
        """Run the missing migrations. Takes the write lock only if there are any."""
        if is_current(self._connection, self._path):
            return
        with self._lock.held():
            migrate(self._connection, self._path)

    def write(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        """Wait for the write lock and write a group. Applied members are on disk when it returns."""
        self._lock.take(wait=True)
        return self._write_and_release(commit_id, members)

    def try_write(self, commit_id: CommitId, members: Sequence[Member], *, soon: bool = False) -> list[Outcome] | None:
        """Write a group if the write lock is free, with `soon` if it is free within a millisecond; None if it is held,
        by a process of Holdfast or another program.
        """
        if not self._lock.take(wait=False, soon=soon):
            return None
        foreign = self._foreign
        foreign.may_wait = False
        try:
            return self._write_and_release(commit_id, members)
        except (ForeignLock, apsw.BusyError):  # before anything was written
            return None
        finally:
            foreign.may_wait = True

    def data_version(self) -> int:
        """A number that differs from the last one if another connection has committed since."""
        try:
            rows = self._cursor.execute("PRAGMA data_version").fetchall()
        except apsw.Error as error:
            raise StoreError(f"{self._path} could not be read: {error}") from error
        return int(str(rows[0][0]))

    def _write_and_release(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        try:
            self._check_files()
            if self._cursor.execute(self._sql.find_commit, (commit_id,)).fetchall():
                return [Rejected(reason="a commit of this id was made before") for _ in members]
            self.wakeups = Wakeups()
            outcomes = self._write_group(commit_id, members)
            self._check_files()
            if self._wal_pages >= CHECKPOINT_PAGES:
                self._try_checkpoint()
            return outcomes
        finally:
            self._lock.release()

    def heartbeat(self, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
        """Judge one heartbeat and record the lease (W1-W5)."""
        with self._lock.held():
            self._check_files()
            try:
                reply = apply_worker_heartbeat(self._begin(), beat, registration)
                self._cursor.execute("COMMIT")
            except apsw.Error as error:
                self._roll_back()
                raise StoreError(f"{self._path} could not record a heartbeat: {error}") from error
            except BaseException:
                self._roll_back()
                raise
            self._check_files()
            return reply

    def prune(self, after: int, last: int, limit: int, *, wait: bool) -> int | None:
        """Delete old commits in a range of ids, and at most `limit` keys that are long dead (W5). Returns the number of
        keys; None if the write lock is held and `wait` is False.
        """

        def delete(transaction: SqliteTransaction) -> int:
            transaction.update(self._sql.delete_old_commits, after, last, transaction.now_ms - COMMITS_KEPT_MS)
            return transaction.update(self._sql.delete_dead_workers, transaction.now_ms - TOMBSTONES_KEPT_MS, limit)

        return self._prune(delete, wait=wait)

    def prune_client_rows(self, after: str, last: str, limit: int, *, wait: bool) -> int | None:
        """Delete at most `limit` events in a range of offers, of instances that closed long ago, those offers, and as
        many refused rows of each kind. Returns the largest number of rows of one kind; None as `prune`.
        """

        def delete(transaction: SqliteTransaction) -> int:
            before_ms = transaction.now_ms - CLIENT_ROWS_KEPT_MS
            gone = [
                transaction.update(self._sql.delete_closed_events, after, last, before_ms, limit),
                transaction.update(self._sql.delete_refused_requests, before_ms, limit),
                transaction.update(self._sql.delete_refused_events, before_ms, limit),
            ]
            transaction.update(self._sql.delete_closed_offers, after, last, before_ms)
            return max(gone)

        return self._prune(delete, wait=wait)

    def give_back(self, pages: int) -> int:
        """Return free pages at the end of the file to the file system, at most so many. Returns their number."""
        with self._lock.held():
            self._check_files()
            try:
                before = self._pages()
                self._cursor.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
                return before - self._pages()
            except apsw.Error as error:
                self._roll_back()
                raise StoreError(f"{self._path} could not be made smaller: {error}") from error

    def _pages(self) -> int:
        return int(str(self._cursor.execute("PRAGMA page_count").fetchall()[0][0]))

    def _prune(self, delete: Callable[[SqliteTransaction], int], *, wait: bool) -> int | None:
        if not self._lock.take(wait=wait):
            return None
        self._foreign.may_wait = wait
        try:
            self._check_files()
            gone = delete(self._begin())
            self._cursor.execute("COMMIT")
        except apsw.Error as error:
            if isinstance(error, apsw.BusyError) and not wait:
                return None  # another program has SQLite's own lock
            raise StoreError(f"{self._path} could not be cleaned up: {error}") from error
        finally:
            self._foreign.may_wait = True
            self._roll_back()
            self._lock.release()
        return gone

    def _write_group(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        """One transaction. Each part of a bisected group stores the group's id, so that any of them counts for it."""
        try:
            transaction = self._begin()
            outcomes = apply_members(transaction, members)
            transaction.update(self._sql.insert_commit, commit_id, transaction.now_ms)
            wakeups = _wakeups_of(transaction)
            before_ms = self._elapsed_ms()
            self._cursor.execute("COMMIT")
            self.last_commit_ms = self._elapsed_ms() - before_ms
        except _BROKEN as error:
            self._roll_back()
            if isinstance(error, apsw.BusyError) and not self._foreign.may_wait:
                raise ForeignLock from error
            raise StoreError(f"{self._path} could not be written: {error}") from error
        except Exception as error:  # noqa: BLE001 - it becomes the outcome of the member that caused it
            self._roll_back()
            if len(members) == 1:
                return [Failed(error=error)]
            self._foreign.may_wait = True  # a part may be on disk from here on, so the group cannot be handed over
            middle = len(members) // 2
            return self._write_group(commit_id, members[:middle]) + self._write_group(commit_id, members[middle:])
        except BaseException:  # an interrupt: a transaction that stays open would block every writer of the store
            self._roll_back()
            raise
        self.wakeups |= wakeups
        return outcomes

    def _begin(self) -> SqliteTransaction:
        self._cursor.execute("BEGIN IMMEDIATE")
        if self._foreign.is_waiting:
            self._foreign.end()
        self._cursor.execute(self._sql.advance_clock, (self._clock(),))
        return SqliteTransaction(self._connection, self._cursor, self._cursor.fetchall()[0][0])

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    def _count_pages(self, connection: object, database: str, pages: int) -> int:
        del connection, database
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _check_files(self) -> None:
        """Under the lock: `StoreReplaced` if a file of the store was removed or replaced."""
        self._files.check(self._save)

    def _save(self) -> bool:
        """Copy a WAL that was removed from its path into the database. Whether all of it was copied."""
        try:
            in_wal, moved = self._checkpoint()
        except apsw.Error:
            return False
        return in_wal == moved

    def _try_checkpoint(self) -> None:
        """Checkpoint after a commit. An error does not concern the commit, and is logged."""
        try:
            self._check_files()
            self._checkpoint()
        except StoreReplaced:
            pass  # `StoreFiles` has logged it
        except apsw.Error as error:
            if not self._is_checkpoint_failing:
                logger.warning("%s could not be checkpointed; its WAL grows until it can be: %s", self._path, error)
            self._is_checkpoint_failing = True

    def _checkpoint(self) -> tuple[int, int]:
        """The pages of the WAL, and those that are in the database now; a reader may keep some in the WAL."""
        pages = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._wal_pages = 0
        self._is_checkpoint_failing = False
        self._files.note()
        return pages
