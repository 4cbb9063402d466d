"""The tables of the store in memory: dictionaries of immutable rows, and a log by which changes are undone."""

import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from itertools import count
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.core.admission import Mailbox
from holdfast.core.attributes import StoredAttribute
from holdfast.core.checks import require
from holdfast.core.children import ParentClose, ParentEnd
from holdfast.core.leases import WorkerKey
from holdfast.core.lifecycle import InstanceState
from holdfast.core.updates import UpdateState
from holdfast.storage.members.messages import QueryRow
from holdfast.storage.members.workers import MarkWorkerLost
from holdfast.storage.records import (
    AttemptKey,
    AttemptRecord,
    CommitId,
    DeadlineRecord,
    HistoryRow,
    InboxRow,
    InstanceId,
    InstanceNumber,
    InstanceRecord,
    Parent,
    Record,
    TimerRow,
    WorkerRow,
)

Key = TypeVar("Key")
Row = TypeVar("Row", bound=msgspec.Struct)
Wanted = TypeVar("Wanted", bound=msgspec.Struct)

CLAIMABLE_STATES = (InstanceState.REQUESTED, InstanceState.RUNNING, InstanceState.CANCEL_REQUESTED)


class Instance(InstanceRecord, frozen=True):
    """An instance, with what no read returns."""

    waits: frozenset[str] = frozenset()
    """The events that its code waits for (G6)."""
    events_waiting: int = 0
    """How many events are in its inbox."""
    mailbox: Mailbox = Mailbox()
    blocked_by: frozenset[str] = frozenset()
    """The builds that could not go on with it (G12)."""
    deadline: DeadlineRecord | None = None
    has_deadline_rule: bool = False
    """Whether its deadline was set, or it was said that it has none."""
    parent: Parent | None = None
    parent_close: ParentClose = ParentClose.ABANDON
    key: str | None = None
    error: str | None = None
    """The type of the error of a FAILED instance (F4)."""

    @property
    def is_open(self) -> bool:
        return self.closed_at_ms is None

    def is_child_of(self, number: InstanceNumber, execution: int) -> bool:
        return self.parent is not None and (self.parent.number, self.parent.execution) == (number, execution)


class Message(Record, frozen=True):
    """A message in an inbox. `name` is that of an event, empty for an update, None for anything else."""

    row: InboxRow
    name: str | None


class Update(Record, frozen=True):
    """An update, with a hash of its name and input: its id means no other (G3)."""

    state: UpdateState
    content: bytes
    answer: bytes | None = None
    expires_at_ms: int | None = None


class Query(Record, frozen=True):
    """A query that waits for its answer, or for its sender to read it."""

    query: QueryRow
    expires_at_ms: int
    taken_by: WorkerKey | None = None
    answer: bytes | None = None


class Worker(WorkerRow, frozen=True):
    """A worker. The first member that marked it as lost decides how its loss is counted (C1)."""

    lost_by: MarkWorkerLost | None = None


class Flow(Record, frozen=True):
    """The definition of a flow."""

    name: str
    version: str
    saved_at_ms: int
    definition: bytes


class Value(Record, frozen=True):
    """A large payload or a key-value."""

    data: bytes


class Attribute(Record, frozen=True):
    """An attribute (F1)."""

    value: StoredAttribute


class Closing(Record, frozen=True):
    """An execution that has ended, and whose children are still to be told."""

    how: ParentEnd


class Commit(Record, frozen=True):
    """When a group was written."""

    at_ms: int


class Received(Record, frozen=True):
    """A message with this id was delivered (G7)."""


class Table(dict[Key, Row], Generic[Key, Row]):
    """A dictionary that logs the value before each change."""

    def __init__(self, undo: list[tuple["Table[Any, Any]", Any, Any]]) -> None:
        super().__init__()
        self._undo = undo

    def put(self, key: Key, row: Row) -> None:
        self._undo.append((self, key, self.get(key)))
        self[key] = row

    def insert(self, key: Key, row: Row) -> None:
        """Add a row. One that is there is an error of whoever made the member: the store answers with `Failed`."""
        require(key not in self, f"there is a row {key} already")
        self.put(key, row)

    def change(self, key: Key, /, **fields: Any) -> Row:
        row = msgspec.structs.replace(self[key], **fields)
        self.put(key, row)
        return row

    def remove(self, key: Key) -> bool:
        """Remove a row. Whether it was there."""
        if key not in self:
            return False
        self._undo.append((self, key, self[key]))
        del self[key]
        return True

    def remove_all(self, keys: Iterable[Key]) -> int:
        return sum(self.remove(key) for key in list(keys))


class MemoryTables:
    """Everything that stores on the same data share. Each use of the tables holds `lock`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.listeners: dict[str, Callable[[], None]] = {}
        self._undo: list[tuple[Table[Any, Any], Any, Any]] = []
        undo = self._undo
        self.instances = Table[InstanceNumber, Instance](undo)
        self.attempts = Table[AttemptKey, AttemptRecord](undo)
        self.history = Table[tuple[InstanceNumber, int, int], HistoryRow](undo)
        self.inbox = Table[int, Message](undo)
        self.timers = Table[tuple[InstanceNumber, int, int], TimerRow](undo)
        self.payloads = Table[tuple[InstanceNumber, str], Value](undo)
        self.state_values = Table[tuple[InstanceNumber, str], Value](undo)
        self.attributes = Table[tuple[InstanceNumber, str], Attribute](undo)
        self.updates = Table[tuple[InstanceNumber, str], Update](undo)
        self.received = Table[tuple[InstanceNumber, str], Received](undo)
        self.queries = Table[str, Query](undo)
        self.workers = Table[WorkerKey, Worker](undo)
        self.flows = Table[str, Flow](undo)
        self.closings = Table[tuple[InstanceNumber, int], Closing](undo)
        self.commits = Table[CommitId, Commit](undo)
        self.now_ms = 0
        """The time of the group that is being applied; it never goes back (W9)."""
        self._numbers = count(1)
        self._rows = count(1)

    def advance_clock(self, clock_ms: int) -> int:
        self.now_ms = max(self.now_ms, clock_ms)
        return self.now_ms

    @contextmanager
    def undone_on_error(self) -> Generator[None]:
        """Undo the changes that are made inside if an exception leaves the block."""
        mark = self.mark()
        try:
            yield
        except BaseException:
            self.undo_to(mark)
            raise

    def mark(self) -> int:
        return len(self._undo)

    def undo_to(self, mark: int) -> None:
        """Undo the changes that were made since `mark`, the newest first."""
        while len(self._undo) > mark:
            table, key, before = self._undo.pop()
            if before is None:
                del table[key]
            else:
                table[key] = before

    def keep_changes(self) -> None:
        self._undo.clear()

    # ------------------------------------------------------------ rows that several members need

    def next_number(self) -> InstanceNumber:
        return InstanceNumber(next(self._numbers))

    def lift_numbers(self, by: int) -> None:
        """Leave out numbers, which no instance ever has."""
        self._numbers = count(next(self._numbers) + by)

    def current(self, instance_id: InstanceId) -> Instance | None:
        """The instance that has an id now (G3)."""
        found = (row for row in self.instances.values() if row.id == instance_id and row.superseded_at_ms is None)
        return next(found, None)

    def attempts_of(self, number: InstanceNumber) -> list[AttemptRecord]:
        return [row for row in self.attempts.values() if row.key.number == number]

    def inbox_of(self, number: InstanceNumber) -> list[InboxRow]:
        return [message.row for message in self.inbox.values() if message.row.number == number]

    def put_in_inbox(self, number: InstanceNumber, execution: int, event: bytes, name: str | None = None) -> None:
        row = InboxRow(row=next(self._rows), number=number, execution=execution, stamp_ms=self.now_ms, event=event)
        self.inbox.insert(row.row, Message(row=row, name=name))

    def wake(self, number: InstanceNumber) -> None:
        """Make an instance claimable that nobody owns and whose code can run."""
        row = self.instances[number]
        if row.owner is None and row.state in CLAIMABLE_STATES:
            self.instances.change(number, claimable_at_ms=0)

    def is_active(self, key: WorkerKey) -> bool:
        worker = self.workers.get(key)
        return worker is not None and worker.state == "ACTIVE"

    def owned_instances(self, owner: WorkerKey) -> list[Instance]:
        return [row for row in self.instances.values() if row.owner == owner]

    def owned_attempts(self, owner: WorkerKey) -> list[AttemptRecord]:
        return [row for row in self.attempts.values() if row.owner == owner and row.closed_at_ms is None]


def as_record(kind: type[Wanted], row: msgspec.Struct, **fields: Any) -> Wanted:
    """A row as the record that the contract names, without the fields that only this store has."""
    values = {name: getattr(row, name) for name in kind.__struct_fields__}
    return kind(**(values | fields))


def instance_record(row: Instance, **fields: Any) -> InstanceRecord:
    return as_record(InstanceRecord, row, **fields)
