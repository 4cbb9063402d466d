"""The SQLite store: reads on the caller's thread, heartbeats on the beater's, and writes where they cost least.

While commits are quick and nobody else writes, a group is written right here: a hop to another thread and back costs
more than such a commit, and beside busy Python code a writing thread starves for the interpreter. When the disk is slow
or another process is writing, the group waits on a thread instead, and the worker goes on gathering.

``:memory:`` is a file in a private temporary folder that goes with the store: the same code, without durability.
"""

import asyncio
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast.core.lifecycle import InstanceState
from holdfast.core.liveness import Heartbeat, Reply, WorkerKey
from holdfast.errors import StoreError
from holdfast.storage.contract import (
    AttemptRecord,
    CommitId,
    DeadlineRecord,
    Family,
    Held,
    HistoryRow,
    InboxRow,
    InstanceId,
    InstanceNumber,
    InstanceRecord,
    Loaded,
    Member,
    Outcome,
    Registration,
    UpdateRow,
    Waiting,
    WorkerRow,
)
from holdfast.storage.forks import generation
from holdfast.storage.large import references_in
from holdfast.storage.sqlite.connection import open_read_only, open_reader
from holdfast.storage.sqlite.rows import (
    attempt_of,
    deadline_of,
    family_of,
    held_of,
    history_of,
    inbox_of,
    instance_of,
    timer_of,
    worker_of,
)
from holdfast.storage.sqlite.statements import statements as sql
from holdfast.storage.sqlite.transaction import Connection, Row
from holdfast.storage.sqlite.updates import update_of
from holdfast.storage.sqlite.writer import SqliteWriter

IN_MEMORY: Final = ":memory:"
Value = TypeVar("Value")

SLOW_COMMIT_MS: Final = 5.0
"""When the disk takes longer than this for a commit, smoothed, groups are written on the writer's thread."""
PROBE_EVERY: Final = 32
"""Every so many groups the disk is tried again from the worker's own thread."""
SMOOTHING: Final = 0.2
LONGEST_COUNTED_MS: Final = 50.0
"""One outlier must not keep a fast disk on the slow path for long."""


_LEFT_TO_THE_PARENT: list[object] = []
"""Connections of a process that was forked. They are not even closed in the child: they are not its own."""


class SqliteStore:
    """A store on one file. Any number of processes of one machine may use it at the same time."""

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Callable[[], int],
        elapsed_ms: Callable[[], float] = lambda: 0.0,
        durability: str = "full",
    ) -> None:
        self._temporary: str | None = None
        self._named = str(path)
        self._path = Path(path)
        self._clock = clock
        self._elapsed_ms = elapsed_ms
        self._durability = "none" if self._named == IN_MEMORY else durability
        self._executor = ThreadPoolExecutor(1, "holdfast-writer")
        self._writer: SqliteWriter | None = None
        self._beater: SqliteWriter | None = None
        self._one_beat = threading.Lock()
        self._reader: Connection | None = None
        self._mark_ms = 0
        self._generation = generation()
        self._commit_ms = 0.0
        self._groups = 0

    @property
    def path(self) -> Path:
        """The file. Processes that share it share the store."""
        return self._path

    async def open(self) -> None:
        if self._named == IN_MEMORY:
            self._temporary = tempfile.mkdtemp(prefix="holdfast-")
            self._path = Path(self._temporary) / "memory.db"
        self._writer = await self._on_writer_thread(self._open_writer)
        self._reader = open_reader(self._path)
        self._mark_ms = self._read(sql.read_clock)[0][0]

    def open_for_reading(self) -> None:
        """Open a store that is there, to look at it: nothing is created, migrated or changed."""
        self._reader = open_read_only(self._path)
        self._mark_ms = self._read(sql.read_clock)[0][0]

    def _open_writer(self) -> SqliteWriter:
        writer = SqliteWriter(self._path, self._clock, self._elapsed_ms, durability=self._durability)
        try:
            writer.migrate()
        except BaseException:
            writer.close()
            raise
        return writer

    async def close(self) -> None:
        if self._generation != generation():
            _LEFT_TO_THE_PARENT.append((self._writer, self._reader, self._beater))
            self._writer = self._reader = self._beater = self._temporary = None
            return
        writer, self._writer = self._writer, None
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._beater is not None:
            self._beater.close()
            self._beater = None
        if writer is not None:
            await self._on_writer_thread(writer.close)
        self._executor.shutdown()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def now_ms(self) -> int:
        now_ms = self._clock()
        self._mark_ms = max(self._mark_ms, now_ms)
        return self._mark_ms

    async def commit(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        writer = self._open(self._writer)
        self._groups += 1
        if self._commit_ms < SLOW_COMMIT_MS or self._groups % PROBE_EVERY == 0:
            outcomes = writer.try_write(commit_id, members)
            if outcomes is not None:
                took_ms = min(writer.last_commit_ms, LONGEST_COUNTED_MS)
                self._commit_ms += (took_ms - self._commit_ms) * SMOOTHING
                return outcomes
        return await self._on_writer_thread(lambda: writer.write(commit_id, members))

    async def was_committed(self, commit_id: CommitId) -> bool:
        return bool(self._read(sql.find_commit, commit_id))

    def heartbeat(self, beat: Heartbeat, registration: Registration) -> Reply:
        self._open(self._reader)
        with self._one_beat:  # a thread that was given up may still be at it
            if self._beater is None:
                self._beater = SqliteWriter(self._path, self._clock, self._elapsed_ms, durability=self._durability)
            return self._beater.heartbeat(beat, registration)

    # ------------------------------------------------------------ reads

    async def find(self, instance_id: InstanceId) -> InstanceRecord | None:
        rows = self._read(sql.find_instance, instance_id)
        return instance_of(rows[0]) if rows else None

    async def read_instance(self, number: InstanceNumber) -> InstanceRecord | None:
        rows = self._read(sql.read_instance, number)
        return instance_of(rows[0]) if rows else None

    async def count_earlier(self, instance_id: InstanceId) -> int:
        count: int = self._read(sql.count_earlier, instance_id)[0][0]
        return count

    async def load(self, number: InstanceNumber, execution: int) -> Loaded:
        history = [history_of(row) for row in self._read(sql.read_history, number, execution)]
        inbox = [inbox_of(row) for row in self._read(sql.read_inbox, number)]
        named = references_in([*(row.events for row in history), *(row.event for row in inbox)])
        return Loaded(
            history=history,
            inbox=inbox,
            timers=[timer_of(row) for row in self._read(sql.read_timers, number, execution)],
            attempts=[attempt_of(row) for row in self._read(sql.read_attempts, number, execution)],
            payloads=await self.read_payloads(number, named),
        )

    async def read_history(self, number: InstanceNumber, execution: int) -> list[HistoryRow]:
        return [history_of(row) for row in self._read(sql.read_history, number, execution)]

    async def read_attempts(self, number: InstanceNumber, execution: int) -> list[AttemptRecord]:
        return [attempt_of(row) for row in self._read(sql.read_attempts, number, execution)]

    async def read_payloads(
        self, number: InstanceNumber, references: Collection[str] | None = None
    ) -> dict[str, bytes]:
        if references is None:
            return dict(self._read(sql.read_payloads, number))
        found = {reference: self._read(sql.read_payload, number, reference) for reference in references}
        return {reference: rows[0][0] for reference, rows in found.items() if rows}

    async def read_kept(self, number: InstanceNumber) -> dict[str, bytes]:
        return dict(self._read(sql.read_kept, number))

    async def read_update(self, number: InstanceNumber, update_id: str) -> UpdateRow | None:
        rows = self._read(sql.read_update, number, update_id)
        return update_of(rows[0]) if rows else None

    async def glance(self, number: InstanceNumber) -> tuple[InstanceRecord, bytes | None] | None:
        rows = self._read(sql.glance, number)
        return (instance_of(rows[0][:-1]), rows[0][-1]) if rows else None

    async def questions_waiting(self) -> Waiting:
        has_questions, has_expired = self._read(sql.questions_waiting, self.now_ms())[0]
        return Waiting(has_questions=bool(has_questions), has_expired=bool(has_expired))

    async def read_answer(self, question_id: str) -> bytes | None:
        rows = self._read(sql.read_answer, question_id)
        return rows[0][0] if rows else None

    async def messages_for(self, owner: WorkerKey, after_row: int) -> list[InboxRow]:
        return [inbox_of(row) for row in self._read(sql.read_inbox_of_owner, owner, after_row)]

    async def held_by(self, owner: WorkerKey) -> Held:
        return held_of(self._read(sql.held_keys, owner), self._read(sql.held_instances, owner))

    async def stranded_owners(self) -> list[WorkerKey]:
        return [WorkerKey(key) for (key,) in self._read(sql.stranded_owners)]

    async def expired_attempts(self, limit: int) -> list[AttemptRecord]:
        return [attempt_of(row) for row in self._read(sql.expired_attempts, self.now_ms(), limit)]

    async def read_deadline(self, number: InstanceNumber) -> DeadlineRecord | None:
        rows = self._read(sql.read_deadline, number)
        return deadline_of(rows[0]) if rows else None

    async def expired_instances(self, limit: int) -> list[InstanceNumber]:
        return [InstanceNumber(number) for (number,) in self._read(sql.expired_instances, self.now_ms(), limit)]

    async def next_wake_ms(
        self, *, workflows: Sequence[str], queues: Sequence[str], names: Sequence[str], after_ms: int = -1
    ) -> int | None:
        rows = self._read(sql.next_claimable, json.dumps(workflows), after_ms) if workflows else []
        rows += self._read(sql.next_expiry, after_ms)
        if names:
            activities = json.dumps(names)
            for queue in queues:
                rows += self._read(sql.next_ready, queue, after_ms, activities)
        return min((time for (time,) in rows if time is not None), default=None)

    async def blocked_elsewhere(self, workflows: Sequence[str], build: str) -> bool:
        return bool(self._read(sql.blocked_elsewhere, json.dumps(workflows), build))

    async def list_instances(
        self,
        *,
        before: int,
        limit: int,
        state: InstanceState | None = None,
        workflow: str | None = None,
        parent: InstanceNumber | None = None,
    ) -> list[InstanceRecord]:
        asked = (before, None if state is None else state.value, workflow, limit)
        found = (
            self._read(sql.list_instances, *asked) if parent is None else self._read(sql.list_children, *asked, parent)
        )
        return [instance_of(row) for row in found]

    async def read_family(self, number: InstanceNumber) -> Family:
        return family_of(self._read(sql.read_parent, number), self._read(sql.count_children, number))

    async def unfinished_closings(self, limit: int) -> list[tuple[InstanceNumber, int]]:
        return [(InstanceNumber(number), execution) for number, execution in self._read(sql.unfinished_closings, limit)]

    async def workers(self) -> list[WorkerRow]:
        return [worker_of(row) for row in self._read(sql.read_workers)]

    def _read(self, statement: str, *bindings: Any) -> list[Row]:
        return self._open(self._reader).execute(statement, bindings).fetchall()

    def _open(self, part: Value | None) -> Value:
        if self._generation != generation():
            raise StoreError(f"{self._named} was opened before this process was forked; open it again here")
        if part is None:
            raise StoreError(f"the store {self._named} is not open")
        return part

    async def _on_writer_thread(self, work: Callable[[], Value]) -> Value:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
