"""The raw tables for an audit: one snapshot, read through a connection that cannot write. Each database has its own.

Rows are returned as they are. A row whose values do not have the types of its columns is `Unreadable`, so that an audit
reports it and continues.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from holdfast.storage.relational.statements import ColumnLists, Statements
from holdfast.storage.relational.transaction import Row

LONGEST_PART: Final = 40
"""The characters of each column that a report quotes of an unreadable row."""
_PLACE: Final = re.compile(r"`\$\[(\d+)\]`")


class Raw(msgspec.Struct, frozen=True, array_like=True):
    """A row, with its columns in the order of its statement."""


class RawInstance(Raw, frozen=True):
    """A row of `instances`."""

    number: int
    id: str
    workflow: str
    version: str
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
    paused_at_ms: int | None = None
    paused_from: str | None = None


class RawChild(Raw, frozen=True):
    """A row of `instances` that has a parent."""

    parent: int
    parent_execution: int
    parent_step: int
    number: int
    id: str
    workflow: str
    state: str
    outcome: bytes | None
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
    cancel_requested_at_ms: int | None
    available_at_ms: int


class RawOffer(Raw, frozen=True):
    """A row of `offers`."""

    number: int
    execution: int
    activity: int
    dimension: str
    attempt: int
    entry: int
    exec_id: str
    name: str
    claim: str | None
    sequences: str | None
    withdrawn_at_ms: int | None


class RawMessage(Raw, frozen=True):
    """A row of `inbox`."""

    number: int
    execution: int
    row: int
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


class RawAttribute(Raw, frozen=True):
    """A row of `attributes`."""

    number: int
    name: str
    position: int
    type: str
    value: str
    created_at_ms: int


class RawWorker(Raw, frozen=True):
    """A row of `workers`."""

    key: str
    state: str
    registered_at_ms: int
    deadline_ms: int
    lease_ms: int
    activities: str | None
    """The names of the activities that it has, a JSON list."""

    @property
    def heard_at_ms(self) -> int:
        """The time of its last heartbeat."""
        return self.deadline_ms - self.lease_ms


class RawRequest(Raw, frozen=True):
    """A row of `requests` whose columns of the engine contradict one another."""

    row: int
    state: str
    has_refusal: int
    is_handled: int
    instance_number: int | None
    instances: int
    """The instances with that number."""


class RawReport(Raw, frozen=True):
    """A row of `activity_events` whose columns of the engine contradict one another."""

    row: int
    state: str
    has_refusal: int
    is_handled: int


class RawStranded(Raw, frozen=True):
    """A row of `activity_events` that waits although its attempt has ended or was released."""

    row: int
    name: str | None
    """Of the activity; None if no offer has its exec id."""
    ended_at_ms: int


class RawClosing(Raw, frozen=True):
    """A row of `closings`."""

    number: int
    execution: int


class Unreadable(msgspec.Struct, frozen=True):
    """A row whose columns have values of other types. `number` is that of its instance, if it can be read."""

    table: str
    number: int | None
    row: str
    reason: str


RawKind = TypeVar("RawKind", bound=Raw)

RAW_COLUMNS: Final[ColumnLists] = {
    "raw_instance_columns": RawInstance.__struct_fields__,
    "raw_attempt_columns": RawAttempt.__struct_fields__,
    "raw_offer_columns": RawOffer.__struct_fields__,
    "raw_worker_columns": RawWorker.__struct_fields__,
}
"""The column lists of the audit by the names that statements use for them."""


class RawTables(ABC):
    """A store's tables in one snapshot. Close it when done.

    Tables are streamed in the order of instance numbers, so that an audit needs one pass over each and the memory of
    one execution of one instance. Large payloads are read one at a time.
    """

    sql: Statements

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def damage(self) -> list[str]:
        """The findings of the database's own check of its files; empty if they are sound."""

    @abstractmethod
    def are_there(self) -> bool:
        """Whether the tables exist: a process may have died before it created them."""

    @abstractmethod
    def _rows(self, statement: str, *bindings: Any) -> list[Row]:
        """The rows of a statement that returns few."""

    @abstractmethod
    def _stream(self, statement: str, table: str) -> Iterator[Row | Unreadable]:
        """The rows of a statement without parameters, streamed."""

    def count(self) -> int:
        """The number of instances."""
        [[count]] = self._rows(self.sql.audit_count)
        return int(count)

    def instances(self) -> Iterator[RawInstance | Unreadable]:
        """All instances, oldest first."""
        return self._read("instances", RawInstance, self.sql.audit_instances)

    def turns(self) -> Iterator[RawTurn | Unreadable]:
        return self._read("history", RawTurn, self.sql.audit_history)

    def attempts(self) -> Iterator[RawAttempt | Unreadable]:
        return self._read("attempts", RawAttempt, self.sql.audit_attempts)

    def offers(self) -> Iterator[RawOffer | Unreadable]:
        return self._read("offers", RawOffer, self.sql.audit_offers)

    def requests(self) -> Iterator[RawRequest | Unreadable]:
        """Requests that contradict themselves."""
        return self._read("requests", RawRequest, self.sql.audit_requests)

    def reports(self) -> Iterator[RawReport | Unreadable]:
        """Reports that contradict themselves."""
        return self._read("activity_events", RawReport, self.sql.audit_events)

    def stranded(self) -> Iterator[RawStranded | Unreadable]:
        """Reports that wait for nothing."""
        return self._read("activity_events", RawStranded, self.sql.audit_stranded)

    def messages(self) -> Iterator[RawMessage | Unreadable]:
        return self._read("inbox", RawMessage, self.sql.audit_inbox)

    def timers(self) -> Iterator[RawTimer | Unreadable]:
        return self._read("timers", RawTimer, self.sql.audit_timers)

    def updates(self) -> Iterator[RawUpdate | Unreadable]:
        return self._read("updates", RawUpdate, self.sql.audit_updates)

    def attributes(self) -> Iterator[RawAttribute | Unreadable]:
        return self._read("attributes", RawAttribute, self.sql.audit_attributes)

    def children(self) -> Iterator[RawChild | Unreadable]:
        """Instances that have a parent, in the order of the parents' numbers."""
        return self._read("children", RawChild, self.sql.audit_children)

    def closings(self) -> Iterator[RawClosing | Unreadable]:
        """Executions whose children are being closed."""
        return self._read("closings", RawClosing, self.sql.audit_closings)

    def payload(self, number: int, reference: str) -> bytes | None:
        """One large payload of an instance."""
        rows = self._rows(self.sql.read_payload, number, reference)
        return bytes(rows[0][0]) if rows else None

    def flow(self, digest: str) -> bytes | None:
        """The definition of a flow that is saved under this hash."""
        rows = self._rows(self.sql.read_flow, digest)
        return bytes(rows[0][0]) if rows else None

    def id_of(self, number: int) -> str | None:
        """The id of an instance; None if there is none. For an unreadable id, its number."""
        try:
            rows = self._rows(self.sql.audit_id, number)
        except UnicodeDecodeError:
            return f"number {number}"
        return str(rows[0][0]) if rows else None

    def workers(self) -> Iterator[RawWorker | Unreadable]:
        return self._read("workers", RawWorker, self.sql.audit_workers)

    def shared_ids(self) -> Iterator[tuple[str, int, int]]:
        """Ids whose newest instance is not the only current one: how many are current, and the newest number."""
        for row in self._stream(self.sql.audit_ids, "instances"):
            if not isinstance(row, Unreadable):
                yield str(row[0]), row[1], row[2]

    def orphans(self) -> Iterator[tuple[str, int, int]]:
        """Table, instance number and count of rows of no instance, in the tables that are not streamed."""
        for row in self._stream(self.sql.audit_orphans, "payloads"):
            if not isinstance(row, Unreadable):
                yield row[0], row[1], row[2]

    def _read(self, table: str, kind: type[RawKind], statement: str) -> Iterator[RawKind | Unreadable]:
        convert = msgspec.convert
        for row in self._stream(statement, table):
            if isinstance(row, Unreadable):
                yield row
                continue
            try:
                yield convert(row, kind)
            except msgspec.ValidationError as error:
                columns = ", ".join(str(part)[:LONGEST_PART] for part in row[:5] if not isinstance(part, bytes))
                number = row[0] if isinstance(row[0], int) else None
                yield Unreadable(table=table, number=number, row=columns, reason=_with_column(str(error), kind))


def _with_column(message: str, kind: type[Raw]) -> str:
    """A message of msgspec with the name of the column instead of its place."""
    columns = kind.__struct_fields__
    return _PLACE.sub(lambda found: f"column {columns[int(found[1])]}", message)
