"""Records that a store returns, the types of the ids and numbers in them, and the columns that they are read from.

The columns of a record are its fields, in their order. `COLUMNS` names the column lists; statements refer to them as
`{instance_columns}`, and rows are read by position in the same lists. A field that a record has besides the columns of
its table (`InstanceRecord.custom_status`) comes last, and the statements that read it append it to the list.
"""

from enum import StrEnum
from typing import Final, Generic, NewType, TypeVar

import msgspec

from holdfast.core.leases import WorkerKey
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.pauses import is_withheld
from holdfast.core.updates import UpdateState

InstanceId = NewType("InstanceId", str)
InstanceNumber = NewType("InstanceNumber", int)
Fence = NewType("Fence", int)
CommitId = NewType("CommitId", int)
RowT = TypeVar("RowT")


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A value that a store takes or returns. It cannot be part of a cycle, so the garbage collector skips it."""


class LargePayload(Record, frozen=True):
    """A payload for the side table."""

    reference: str
    data: bytes


class AttemptKey(msgspec.Struct, frozen=True, gc=False):
    """Identifies one attempt for ever: instance numbers are never reused (G1)."""

    number: InstanceNumber
    execution: int
    activity: int
    attempt: int
    dimension: str = ""

    @property
    def primary_key(self) -> tuple[int, int, int, str, int]:
        """In the order of the table's primary key, in which statements name an attempt."""
        return self.number, self.execution, self.activity, self.dimension, self.attempt


class NewAttempt(Record, frozen=True):
    """An attempt to be inserted: READY for any worker, or RUNNING here at once (eager dispatch)."""

    activity: int
    attempt: int
    name: str
    queue: str
    state: AttemptState
    ledger: int
    input: bytes
    options: bytes
    available_at_ms: int
    scheduled_at_ms: int
    expires_at_ms: int | None = None
    owner: WorkerKey | None = None
    failures: int = 0
    losses: int = 0
    details: bytes | None = None
    is_external: bool = False
    """It is offered to executors that are not Holdfast workers (C4)."""


class AttemptRecord(Record, frozen=True):
    """An attempt as it is stored. A claim returns its input; other reads return a reference to a large one (see
    `large_payloads`)."""

    key: AttemptKey
    name: str
    queue: str
    state: AttemptState
    ledger: int
    input: bytes
    options: bytes
    available_at_ms: int
    scheduled_at_ms: int
    started_at_ms: int | None = None
    closed_at_ms: int | None = None
    expires_at_ms: int | None = None
    heartbeat_at_ms: int | None = None
    owner: WorkerKey | None = None
    failures: int = 0
    losses: int = 0
    details: bytes | None = None
    failure: bytes | None = None
    cancel_requested_at_ms: int | None = None
    """When the cancel of this activity was requested from outside of its workflow, which still waits for the answer."""
    instance_id: str = ""
    """Set where the attempt is claimed or has expired; and so is `workflow`."""
    workflow: str = ""

    @property
    def is_withheld(self) -> bool:
        """Whether a pause of its instance withholds it (R21)."""
        return self.state is AttemptState.READY and is_withheld(self.available_at_ms)

    @property
    def is_exhausted(self) -> bool:
        """Whether it waits for a person, because the retries before it are used up (R26)."""
        return self.state is AttemptState.READY and self.failure is not None


ATTEMPT_COLUMNS: Final = (
    *AttemptKey.__struct_fields__,
    *AttemptRecord.__struct_fields__[len(("key",)) : -len(("instance_id", "workflow"))],
)


class InstanceRecord(Record, frozen=True):
    """An instance as it is stored. A large input is a reference (see `large_payloads`)."""

    number: InstanceNumber
    id: InstanceId
    workflow: str
    version: str | None
    """The version of the workflow on which it runs (R6). None: its first turn is yet to choose one."""
    state: InstanceState
    execution: int
    turn: int
    fence: Fence
    owner: WorkerKey | None
    claimable_at_ms: int | None
    stamp_ms: int
    input: bytes
    input_hash: bytes
    outcome: bytes | None
    blocked: str | None
    created_at_ms: int
    closed_at_ms: int | None
    superseded_at_ms: int | None = None
    """G3: when its id was given to a new instance. None while it has the id."""
    losses: int = 0
    """Owners that were lost while they ran its code, since its last turn (G12)."""
    start_at_ms: int | None = None
    """Its first turn is taken no earlier (G15). None: at once."""
    paused_at_ms: int | None = None
    """Since when it is PAUSED (R20). None in any other state, as the two below."""
    paused_from: str | None = None
    """The state to which it returns."""
    pause_reason: str | None = None
    custom_status: bytes | None = None
    """The value of `hf.set_status`, encoded. Only in lists of instances and from `Store.read_latest`."""
    parent_id: InstanceId | None = None
    """The instance whose code started it. Only in lists of instances."""

    def may_begin(self, now_ms: int) -> bool:
        """Whether its first turn may be taken: a message for it makes it claimable."""
        return self.state is not InstanceState.REQUESTED or self.start_at_ms is None or self.start_at_ms <= now_ms

    @property
    def has_begun(self) -> bool:
        """Whether its code has run: a cancel of an instance that has not begun ends it at once (A9)."""
        state = self.paused_from if self.state is InstanceState.PAUSED else self.state
        return state != InstanceState.REQUESTED

    @property
    def begins_at_ms(self) -> int:
        """The time from which its deadline counts: that of its creation, or the later one for its first turn."""
        return self.created_at_ms if self.start_at_ms is None else max(self.created_at_ms, self.start_at_ms)


INSTANCE_COLUMNS: Final = InstanceRecord.__struct_fields__[: -len(("custom_status", "parent_id"))]


class BlockedInstance(Record, frozen=True):
    """A BLOCKED instance, as reports about blocked instances read it."""

    number: InstanceNumber
    id: InstanceId
    workflow: str
    version: str | None
    reason: str
    """The beginning of the reason."""
    builds: tuple[str, ...]
    """The builds that blocked it, in their order."""
    created_at_ms: int


LONGEST_BLOCKED: Final = 8_000
"""The characters of a reason in a `BlockedInstance`."""


class DeadlineRecord(Record, frozen=True):
    """The deadline of an instance. `expires_at_ms` is the same time, and from then on the end of its grace."""

    at_ms: int
    grace_ms: int
    expires_at_ms: int | None
    """None: it has passed while the instance was PAUSED, and is applied at the resume (R25)."""

    @property
    def is_in_grace(self) -> bool:
        """Whether the deadline has passed and the code was cancelled."""
        return self.expires_at_ms is not None and self.expires_at_ms > self.at_ms


class InboxRow(Record, frozen=True):
    """A message in the inbox of an instance."""

    row: int
    number: InstanceNumber
    execution: int
    stamp_ms: int
    event: bytes


INBOX_COLUMNS: Final = InboxRow.__struct_fields__


class StateValue(Record, frozen=True):
    """A change of a state value of an instance; None deletes it. The empty key is the status."""

    key: str
    value: bytes | None


class UpdateRow(Record, frozen=True):
    """An update as it is stored. `answer` is an encoded payload, None while there is none."""

    id: str
    state: UpdateState
    answer: bytes | None


class TimerRow(Record, frozen=True):
    """A timer that has not fired."""

    timer: int
    due_at_ms: int


class HistoryRow(Record, frozen=True):
    """The events of one turn."""

    turn: int
    events: bytes


class NextDue(Record, frozen=True):
    """When the next rows become due that a worker could act on; None: none will by itself."""

    expiry_ms: int | None
    """The deadline of any attempt or instance."""
    instance_ms: int | None
    """An instance of its workflows becomes claimable."""
    attempt_ms: int | None
    """An attempt of its activities and queues becomes available."""

    @property
    def earliest_ms(self) -> int | None:
        """The earliest of the three."""
        times = (self.expiry_ms, self.instance_ms, self.attempt_ms)
        return min((time for time in times if time is not None), default=None)


class LoadedInstance(Record, frozen=True):
    """Everything that a worker needs to load an instance."""

    history: list[HistoryRow]
    inbox: list[InboxRow]
    timers: list[TimerRow]
    attempts: list[AttemptRecord]
    payloads: dict[str, bytes]


class OwnedAttempt(Record, frozen=True):
    """An attempt in a worker's name. The ledger distinguishes one claim of it from the next."""

    key: AttemptKey
    state: AttemptState
    ledger: int
    cancel_requested_at_ms: int | None = None


class OwnedInstance(Record, frozen=True):
    """An instance in a worker's name, with the fence of its claim."""

    number: InstanceNumber
    fence: Fence


class OwnedRows(Record, frozen=True):
    """Everything in one worker's name."""

    attempts: list[OwnedAttempt]
    instances: list[OwnedInstance]


class WorkerRow(Record, frozen=True):
    """A worker as it is stored. `host` identifies its host and process, for W11."""

    key: WorkerKey
    state: str
    token: int
    deadline_ms: int
    lease_ms: int
    host: bytes
    queues: str
    build: str
    registered_at_ms: int
    slots: int = 0
    workflows: str | None = None
    """Names as a JSON list. None if an older release registered the worker."""
    activities: str | None = None
    abandoned: int = 0
    """The number of abandoned bodies that still run (A5), as of its last heartbeat."""
    versions: str | None = None
    """The versions of its workflows that are written as code, as a JSON object. None as for `workflows`."""


WORKER_COLUMNS: Final = WorkerRow.__struct_fields__


class WorkerLoad(Record, frozen=True):
    """The numbers of open attempts and of instances in a worker's name."""

    key: WorkerKey
    attempts: int
    instances: int


class QueueRow(Record, frozen=True):
    """The attempts of a queue. `later` are READY and not available yet: retries, mostly."""

    queue: str
    ready: int
    later: int
    running: int
    oldest_at_ms: int | None = None
    """When the oldest of the `ready` attempts became available."""


class OpenCount(Record, frozen=True):
    """The number of open instances of a workflow in one state."""

    workflow: str
    state: InstanceState
    instances: int


class VersionCount(Record, frozen=True):
    """The number of open instances of one version of a workflow that have the same owner, or none."""

    workflow: str
    version: str | None
    owner: WorkerKey | None
    instances: int


class RestoreCounts(Record, frozen=True):
    """The open instances, and the open external attempts."""

    instances: int
    external_attempts: int


class Parent(Record, frozen=True):
    """The parent of an instance, and the step that started it."""

    id: InstanceId
    number: InstanceNumber
    execution: int
    child: int


class ParentAndChildren(Record, frozen=True, gc=True):
    """The parent of an instance, if it has one, and the number of its children by state."""

    parent: Parent | None
    children: dict[InstanceState, int]


class RequestState(StrEnum):
    """The states of a row of `requests`."""

    NEW = "NEW"
    ACCEPTED = "ACCEPTED"
    REFUSED = "REFUSED"
    TRACE = "TRACE"


class RequestRow(Record, frozen=True):
    """A NEW row of `requests`. Texts that are too long or not UTF-8 are None, and `fault` says so."""

    row: int
    request_id: str
    kind: str
    workflow: str | None
    instance_id: str | None
    event_name: str | None
    input: bytes
    policy: str | None
    start_at_ms: int | None
    deadline_after_ms: int | None
    manual: bool
    fault: str | None = None


class NoteRow(Record, frozen=True):
    """A note of an executor about an attempt (A7). `payload` is JSON."""

    key: AttemptKey
    payload: str | None
    source: str | None
    sent_at: str | None
    """By the executor's own clock, as it was given."""
    inserted_at_ms: int


class ReportRow(Record, frozen=True):
    """A NEW or WAITING row of `activity_events`. `key` and `name` are those of its attempt, None if it has none."""

    row: int
    event_id: str
    exec_id: str
    claim: str | None
    transition: str
    sequence: int | None
    payload: bytes | None
    error: bytes | None
    inserted_at_ms: int
    key: AttemptKey | None = None
    name: str | None = None
    fault: str | None = None
    is_unread: bool = False
    """Its values were not read, because those of the rows before it are large."""


class RowPage(Record, Generic[RowT], frozen=True):
    """The NEW rows of clients that one read has passed, oldest first."""

    rows: list[RowT]
    """Those that the worker can handle."""
    others: int = 0
    """The number of those that it cannot."""
    last_row: int | None = None
    """The last of all; None if there was none."""
    has_more: bool = False
    """Whether there may be more rows behind the last one."""
    has_unread: bool = False
    """Whether values of these rows were not read. The rows are read again from the first one."""


class RequestRecord(Record, frozen=True):
    """A row of `requests` (C2). Its text may be anything that a client wrote."""

    row: int
    request_id: str
    kind: str
    workflow: str | None
    instance_id: str | None
    event_name: str | None
    input: str
    policy: str | None
    start_at_ms: int | None
    deadline_after_ms: int | None
    manual: bool
    source: str | None
    inserted_at_ms: int
    state: str
    refusal: str | None
    instance_number: InstanceNumber | None
    handled_at_ms: int | None


class ReportAnswer(Record, frozen=True):
    """The answer of the engine to a row of `activity_events`. The state is NEW until a worker has handled the row."""

    state: str
    refusal: str | None
    cancel_requested: bool
    handled_at_ms: int | None


class OfferRecord(Record, frozen=True):
    """An offer of an external attempt to executors, with the attempt, whose input is in place (C4)."""

    exec_id: str
    entry: int
    withdrawn_at_ms: int | None
    attempt: AttemptRecord

    @property
    def is_current(self) -> bool:
        """Whether reports under this id are about the attempt as it is now, and it is open."""
        return self.withdrawn_at_ms is None and self.attempt.closed_at_ms is None


COLUMNS: Final = {
    "request_columns": RequestRecord.__struct_fields__,
    "instance_columns": INSTANCE_COLUMNS,
    "attempt_columns": ATTEMPT_COLUMNS,
    "inbox_columns": INBOX_COLUMNS,
    "worker_columns": WORKER_COLUMNS,
}
"""The column lists by the names that statements use for them."""
