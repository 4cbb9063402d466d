"""Views of instances: plain values without a reference to the store, which a program can keep, compare and encode.

`Handle.describe` returns a `Description`, `Client.list` a page of `Summary`, newest first.
"""

import datetime as dt
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from holdfast.authoring.validation import checked_integer
from holdfast.core.activity_options import decode_options
from holdfast.core.attributes import Attributes, read_value
from holdfast.core.history import AttributesChanged, HistoryEvent, Payload, Started, encode_event
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.updates import UpdateState
from holdfast.errors import InstanceNotFound
from holdfast.payloads.failures import RecordedFailure
from holdfast.storage.contract import Store
from holdfast.storage.large_payloads import MARK, reference_of
from holdfast.storage.records import AttemptRecord, InstanceRecord, NoteRow

EPOCH: Final = dt.datetime.fromtimestamp(0, dt.UTC)
"""Replaces a damaged time."""
LONGEST_VALUE: Final = 2_000
"""Bytes of JSON; a longer value is cut."""
LONGEST_EXCERPT: Final = 200
DAMAGE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError)
"""The errors of decoding a damaged column."""
_failure: Final = msgspec.json.Decoder(RecordedFailure)


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a stored value that is long, stored apart because it is large, or damaged."""

    text: str
    length: int | None
    """Of the whole value, in bytes of JSON; None if it was not read."""
    reason: str
    """`cut`, `large` or `unreadable`."""


class Values:
    """Decodes stored JSON for display; damaged JSON becomes an `Excerpt`, and so do long values unless `is_whole`.

    `payloads` are the large payloads that were read, by reference.
    """

    __slots__ = ("is_whole", "payloads")

    def __init__(self, payloads: Mapping[str, bytes] | None = None, *, is_whole: bool) -> None:
        self.payloads = payloads or {}
        self.is_whole = is_whole

    def of(self, data: object) -> Any:
        """The value of a column with JSON."""
        if not isinstance(data, bytes):
            return Excerpt(text=str(data)[:LONGEST_EXCERPT], length=None, reason="unreadable")
        if len(data) > LONGEST_VALUE and not self.is_whole:
            return Excerpt(text=_beginning(data), length=len(data), reason="cut")
        try:
            return msgspec.json.decode(data)
        except DAMAGE:
            return Excerpt(text=_beginning(data), length=len(data), reason="unreadable")

    def of_payload(self, payload: Payload) -> Any:
        """The value of a payload. A large payload that was not read is an `Excerpt` without text."""
        data = self.data(payload)
        return Excerpt(text="", length=None, reason="large") if data is None else self.of(data)

    def of_input(self, stored: object) -> Any:
        """The value of the column `input` of an instance or an attempt."""
        if isinstance(stored, bytes) and stored.startswith(MARK):
            return self.of_payload(Payload(reference=reference_of(stored)))
        return self.of(stored)

    def data(self, payload: Payload) -> bytes | None:
        """The JSON of a payload; None for a large one that was not read."""
        return self.payloads.get(payload.reference) if payload.reference else bytes(payload.data)

    def failure_text(self, payload: Payload) -> str:
        """Type and message of a failure, in one line."""
        data = self.data(payload)
        return "a large failure" if data is None else failure_text(data)


def _beginning(data: bytes) -> str:
    return data[:LONGEST_EXCERPT].decode(errors="replace")


WHOLE: Final = Values(is_whole=True)


class NoteView(msgspec.Struct, frozen=True, kw_only=True):
    """A note of an executor about an attempt of an external activity (A7)."""

    value: Any
    """As it was sent, or an `Excerpt`."""
    source: str | None
    sent_at: str | None
    """By the executor's own clock, as it was given."""
    inserted_at: dt.datetime


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one activity."""

    activity: str
    number: int
    attempt: int
    state: AttemptState
    ledger: int
    queue: str
    worker: str | None
    scheduled_at: dt.datetime
    started_at: dt.datetime | None
    closed_at: dt.datetime | None
    failure: str | None
    input: Any = None
    """Its arguments by name, or an `Excerpt`."""
    heartbeat_at: dt.datetime | None = None
    details: Any = None
    """The argument of the last `hf.heartbeat`."""
    losses: int = 0
    """Workers that were lost while they ran this activity."""
    cancel_requested_at: dt.datetime | None = None
    """When its cancel was requested from outside of the workflow, which still waits for it (A1)."""
    notes: list[NoteView] = []
    """The newest notes of its executors, oldest first (A7)."""
    node: str = ""
    """In a flow, the node of the attempt.

    A node that waits for its dependencies has an attempt in state REQUESTED with `number` -1, which is not stored (A3).
    """
    dimension: str = ""
    """In a flow, the round of the node and the item of a fan-out (K8)."""


class SetAsideEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event whose value did not fit the type that the workflow waited for. The workflow still waits (G6)."""

    name: str
    reason: str
    received_at: dt.datetime
    value: Any
    """As it was sent, or an `Excerpt`."""
    id: str = ""
    """The id set by the sender. A corrected event may have the same one."""
    execution: int = 1
    """The execution that set it aside."""


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """A step of an execution (K9)."""

    kind: str
    """`activity`, `timer`, `event` or `child`."""
    number: int
    name: str
    is_open: bool
    result: Any = None
    """Its result, the value of its event, or an `Excerpt`."""
    failure: str | None = None
    due_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    id: str = ""
    """For a child, the id of its instance."""
    node: str = ""
    dimension: str = ""


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """A message in the inbox that no turn has consumed yet."""

    kind: str
    """`event`, `update`, `cancel` (a request to cancel), `attributes` (set by a client), `answer` (of an activity or a
    child) or `unreadable`."""
    name: str
    id: str
    value: Any
    """The value of the event, the arguments of the update, the reason to cancel, or the attributes by name, None for
    one that is deleted; or an `Excerpt`."""
    sent_at: dt.datetime | None
    is_awaited: bool = True
    """False for an event for which no wait is open."""


class UpdateView(msgspec.Struct, frozen=True, kw_only=True):
    """An update that was sent to an instance."""

    id: str
    name: str
    state: UpdateState
    input: Any = None
    result: Any = None
    """The return value of its handler, or an `Excerpt`."""
    failure: str | None = None


class Stateful(msgspec.Struct, frozen=True, kw_only=True):
    """A view with the state of an instance, which the previous release called `status`."""

    state: InstanceState

    @property
    def status(self) -> InstanceState:
        """Deprecated: use `state`."""
        warnings.warn("`.status` is called `.state`; the old name works in this release only", DeprecationWarning, 2)
        return self.state


class Description(Stateful, frozen=True, kw_only=True):
    """An instance at one moment."""

    id: str
    workflow: str
    version: str | None
    """None until the first turn has chosen it (R6)."""
    execution: int
    """The execution that is described: the newest, unless another one was asked for."""
    turn: int
    collation_key: str
    waiting_for: list[str]
    attempts: list[AttemptView]
    blocked: str | None
    created_at: dt.datetime
    closed_at: dt.datetime | None
    custom_status: Any = None
    """The argument of the last `hf.set_status`."""
    deadline: dt.datetime | None = None
    """The end of its time limit."""
    start_at: dt.datetime | None = None
    """The time before which its first turn is not taken, if its start names one."""
    parent: str | None = None
    """The id of the instance that started it."""
    children: dict[InstanceState, int] = {}
    """The number of children of all its executions, by state."""
    composite_key: str | None = None
    """The key without padding; the key of a flow contains the keys of the children that it awaits (K6).

    None for more than a thousand children.
    """
    set_aside: list[SetAsideEvent] = []
    """Events set aside by this execution and the hundred before it, oldest first; with `whole=True` by all."""
    input: Any = None
    """The arguments of the workflow by name, or an `Excerpt`."""
    steps: list[StepView] = []
    """In the order in which they were scheduled."""
    state_values: dict[str, Any] = {}
    """The contents of `hf.state`."""
    attributes: dict[str, Any] = {}
    """The contents of `hf.attributes`, by name."""
    mailbox: list[MessageView] = []
    """Unread messages, oldest first; a hundred at most, without `whole=True`."""
    updates: list[UpdateView] = []
    losses: int = 0
    """Workers that were lost while they ran its code, since its last turn (G12)."""
    damage: list[str] = []
    """Rows and columns that cannot be read. `holdfast verify` checks the whole store."""
    obstacles: list[str] = []
    """Work that no live worker can take, a sentence each."""
    executions: int = 1
    """The number of its executions: continue-as-new begins another one (G4)."""
    paused_at: dt.datetime | None = None
    """Since when it is PAUSED (R20)."""
    pause_reason: str | None = None
    """Why it is PAUSED: as it was given, or which activity has used up its retries."""


class Summary(Stateful, frozen=True, kw_only=True):
    """An instance in a list, read without its history."""

    number: int
    """Unique in the store, unlike the id (G3). The next page is the one `before` the last number."""
    id: str
    workflow: str
    version: str | None
    """None until the first turn has chosen it (R6)."""
    execution: int
    created_at: dt.datetime
    closed_at: dt.datetime | None
    blocked: str | None
    custom_status: Any
    """The argument of the last `hf.set_status`."""
    is_current: bool
    """False once a newer instance has the id."""
    parent: str | None
    """The id of the instance that started it."""
    start_at: dt.datetime | None = None
    """The time before which its first turn is not taken, if its start names one."""
    attributes: dict[str, Any] = {}
    """The contents of `hf.attributes`, by name."""


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the history, with the number of its turn."""

    number: int
    turn: int
    kind: str
    fields: dict[str, Any]


def moment(milliseconds: int | None) -> dt.datetime | None:
    """A stored time, in UTC; None for a damaged one, which is out of range or not a number."""
    if not isinstance(milliseconds, int):
        return None
    try:
        return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return None


def note_view(note: NoteRow, values: Values) -> NoteView:
    return NoteView(
        value=None if note.payload is None else values.of(note.payload.encode()),
        source=note.source,
        sent_at=note.sent_at,
        inserted_at=moment(note.inserted_at_ms) or EPOCH,
    )


def is_external(record: AttemptRecord) -> bool:
    """Whether an executor outside of workers runs the attempt (C4). Damaged options are those of a worker."""
    try:
        return decode_options(record.options).external is not None
    except DAMAGE:
        return False


def attempt_view(record: AttemptRecord, values: Values, notes: Iterable[NoteRow] = ()) -> AttemptView:
    return AttemptView(
        activity=record.name,
        number=record.key.activity,
        attempt=record.key.attempt,
        state=record.state,
        ledger=record.ledger,
        queue=record.queue,
        worker=record.owner,
        scheduled_at=moment(record.scheduled_at_ms) or EPOCH,
        started_at=moment(record.started_at_ms),
        closed_at=moment(record.closed_at_ms),
        failure=None if record.failure is None else failure_text(record.failure),
        input=values.of_input(record.input),
        heartbeat_at=moment(record.heartbeat_at_ms),
        details=None if record.details is None else values.of(record.details),
        losses=record.losses,
        cancel_requested_at=moment(record.cancel_requested_at_ms),
        notes=[note_view(note, values) for note in notes],
    )


def stored_failure(stored: object) -> RecordedFailure:
    """A failure from its column or payload. A damaged one is replaced by a failure of type `unreadable`."""
    try:
        return _failure.decode(cast("bytes", stored))
    except DAMAGE:
        return RecordedFailure(type="unreadable", message="the stored failure cannot be decoded")


def failure_text(stored: object) -> str:
    """Type and message of a stored failure, in one line."""
    return short_failure(stored_failure(stored))


def short_failure(failure: RecordedFailure) -> str:
    """Type without its module, and message, in one line."""
    name = failure.type.rpartition(".")[2]
    return f"{name}: {failure.message}" if failure.message else name


def attribute_values(stored: Attributes) -> dict[str, Any]:
    """The values of attributes. One that cannot be read, because its row is damaged, is an `Excerpt`."""
    values: dict[str, Any] = {}
    for name, value in stored.items():
        try:
            values[name] = read_value(value)
        except (ValueError, OverflowError):
            text = ", ".join(value.keys)[:LONGEST_EXCERPT]
            values[name] = Excerpt(text=text, length=None, reason="unreadable")
    return values


def event_fields(event: HistoryEvent) -> dict[str, Any]:
    """The fields of an event, with its kind as `event`, and with attributes as values instead of keys."""
    fields: dict[str, Any] = msgspec.json.decode(encode_event(event))
    if isinstance(event, AttributesChanged):
        fields["values"] = changed_values(event)
    elif isinstance(event, Started) and event.attributes:
        fields["attributes"] = attribute_values(event.attributes)
    return fields


def changed_values(event: AttributesChanged) -> dict[str, Any]:
    """The values that a client set, by name; None for an attribute that it deleted."""
    present = {name: value for name, value in event.values.items() if value is not None}
    return dict.fromkeys(event.values) | attribute_values(present)


def summary(record: InstanceRecord, attributes: Attributes | None = None) -> Summary:
    return Summary(
        number=record.number,
        id=record.id,
        workflow=record.workflow,
        version=record.version,
        state=record.state,
        execution=record.execution,
        created_at=moment(record.created_at_ms) or EPOCH,
        closed_at=moment(record.closed_at_ms),
        blocked=record.blocked,
        custom_status=None if record.custom_status is None else WHOLE.of(record.custom_status),
        is_current=record.superseded_at_ms is None,
        parent=record.parent_id,
        start_at=moment(record.start_at_ms),
        attributes=attribute_values(attributes or {}),
    )


async def require_there(store: Store, record: InstanceRecord) -> None:
    """R38: `InstanceNotFound` if the instance was deleted while it was read, so that no part of it is returned."""
    if await store.read_instance(record.number) is None:
        raise InstanceNotFound(f"the instance {record.id!r} was deleted while it was read")


NEWEST: Final = 2**62
"""Above the number of every instance."""
LONGEST_PAGE: Final = 10_000


def check_page(limit: int, before: int) -> None:
    """Checks the arguments of a method that returns a page of instances."""
    checked_integer(limit, "limit", least=1, most=LONGEST_PAGE)
    checked_integer(before, "before, the number of an instance,", least=0, most=NEWEST)
