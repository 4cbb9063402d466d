"""The raw tables for an audit: one snapshot, read through a connection that cannot write. Each database makes its own.

Rows come as they are. What does not even have the types of its columns comes as `Unreadable`, so that an audit can
name it and go on.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from holdfast.storage.relational.statements import Statements
from holdfast.storage.relational.transaction import Row

PAGE: Final = 1_000
"""Instances that are read at once."""


class Raw(msgspec.Struct, frozen=True, array_like=True):
    """A row, with its columns in the order of its statement."""


class RawInstance(Raw, frozen=True):
    """A row of `instances`."""

    number: int
    id: str
    workflow: str
    state: str
    execution: int
    turn: int
    fence: int
    owner: str | None
    claimable_at_ms: int | None
    input: bytes
    outcome: bytes | None
    blocked: str | None
    closed_at_ms: int | None
    superseded_at_ms: int | None
    created_at_ms: int
    deadline_at_ms: int | None
    grace_ms: int | None
    expires_at_ms: int | None
    parent: int | None = None
    collation_key: str | None = None


class RawChild(Raw, frozen=True):
    """A row of `instances`, as its parent knows it."""

    number: int
    id: str
    workflow: str
    state: str
    outcome: bytes | None
    parent_execution: int
    parent_step: int
    parent_close: str
    was_asked: int


class RawTurn(Raw, frozen=True):
    """A row of `history`."""

    number: int
    execution: int
    turn: int
    events: bytes


class RawAttempt(Raw, frozen=True):
    """A row of `attempts`."""

    number: int
    execution: int
    activity: int
    dimension: str
    attempt: int
    name: str
    state: str
    ledger: int
    owner: str | None
    input: bytes
    options: bytes
    closed_at_ms: int | None
    failure: bytes | None


class RawMessage(Raw, frozen=True):
    """A row of `inbox`."""

    row: int
    number: int
    execution: int
    event: bytes


class RawTimer(Raw, frozen=True):
    """A row of `timers`."""

    number: int
    execution: int
    timer: int
    due_at_ms: int


class RawUpdate(Raw, frozen=True):
    """A row of `updates`."""

    number: int
    id: str
    state: str
    answer: bytes | None


class RawWorker(Raw, frozen=True):
    """A row of `workers`."""

    key: str
    state: str


class Unreadable(msgspec.Struct, frozen=True):
    """A row whose columns do not hold what they should."""

    table: str
    row: str
    reason: str


Kind = TypeVar("Kind", bound=Raw)


class RawTables(ABC):
    """A store's tables at one moment. Close it when done."""

    sql: Statements

    @abstractmethod
    def close(self) -> None:
        """Let go of the store."""

    @abstractmethod
    def damage(self) -> list[str]:
        """What the database itself finds wrong with its files; nothing if they are sound."""

    @abstractmethod
    def are_there(self) -> bool:
        """Whether there are tables at all: a process may have died before it made them."""

    @abstractmethod
    def _rows(self, statement: str, *bindings: Any) -> list[Row]:
        """The rows of a statement."""

    def instances(self) -> Iterator[RawInstance | Unreadable]:
        """All of them, oldest first, a page at a time."""
        last = -1
        while rows := self._rows(self.sql.audit_instances, last, PAGE):
            last = rows[-1][0]
            yield from self._convert("instances", RawInstance, rows)

    def turns(self, number: int) -> list[RawTurn | Unreadable]:
        return list(self._read("history", RawTurn, self.sql.audit_history, number))

    def attempts(self, number: int) -> list[RawAttempt | Unreadable]:
        return list(self._read("attempts", RawAttempt, self.sql.audit_attempts, number))

    def messages(self, number: int) -> list[RawMessage | Unreadable]:
        return list(self._read("inbox", RawMessage, self.sql.audit_inbox, number))

    def timers(self, number: int) -> list[RawTimer | Unreadable]:
        return list(self._read("timers", RawTimer, self.sql.audit_timers, number))

    def updates(self, number: int) -> list[RawUpdate | Unreadable]:
        return list(self._read("updates", RawUpdate, self.sql.audit_updates, number))

    def children(self, number: int) -> list[RawChild | Unreadable]:
        return list(self._read("instances", RawChild, self.sql.audit_children, number))

    def closings(self, number: int) -> set[int]:
        """Its executions whose children are being gone through."""
        return {execution for (execution,) in self._rows(self.sql.audit_closings, number)}

    def payloads(self, number: int) -> dict[str, bytes]:
        return {str(reference): bytes(data) for reference, data in self._rows(self.sql.read_payloads, number)}

    def flow(self, digest: str) -> bytes | None:
        """The definition of a flow that is kept under this hash."""
        rows = self._rows(self.sql.read_flow, digest)
        return bytes(rows[0][0]) if rows else None

    def workers(self) -> list[RawWorker | Unreadable]:
        return list(self._read("workers", RawWorker, self.sql.audit_workers))

    def shared_ids(self) -> list[tuple[str, int, int]]:
        """Ids that do not mean one instance, the newest: how many are current, and the newest one's number."""
        return [(str(instance), current, newest) for instance, current, newest in self._rows(self.sql.audit_ids)]

    def orphans(self) -> list[tuple[str, int, int]]:
        """Table, instance number and count of rows that hang on no instance."""
        return [(table, number, count) for table, number, count in self._rows(self.sql.audit_orphans)]

    def _read(self, table: str, kind: type[Kind], statement: str, *bindings: Any) -> Iterator[Kind | Unreadable]:
        return self._convert(table, kind, self._rows(statement, *bindings))

    def _convert(self, table: str, kind: type[Kind], rows: list[Row]) -> Iterator[Kind | Unreadable]:
        for row in rows:
            try:
                yield msgspec.convert(row, kind)
            except msgspec.ValidationError as error:
                column = ", ".join(str(part)[:40] for part in row[:5] if not isinstance(part, bytes))
                yield Unreadable(table=table, row=column, reason=str(error))
