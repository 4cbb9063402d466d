"""What a handle tells about an instance: plain values, safe to keep.

Lists of instances come a page at a time, newest first.
"""

import datetime as dt
import warnings
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from holdfast.authoring.validation import checked_integer
from holdfast.core.history import HistoryEvent, Payload, pairs_set_aside
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.steps import ERRORED, RecordedStep, derived_key, read_steps
from holdfast.core.updates import UpdateState
from holdfast.payloads.failures import Failure
from holdfast.storage.large_payloads import MARK, reference_of
from holdfast.storage.records import AttemptRecord, InstanceRecord

EPOCH: Final = dt.datetime.fromtimestamp(0, dt.UTC)
"""Stands for a time that is damaged."""
LONGEST_VALUE: Final = 2_000
"""Bytes of JSON that a value may have before it is cut."""
LONGEST_EXCERPT: Final = 200
_failure: Final = msgspec.json.Decoder(Failure)


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """A stored value that is not shown whole: it is long, is stored aside because it is large, or cannot be decoded."""

    text: str
    """How it begins."""
    length: int | None
    """Of the whole, in bytes of JSON; None where it was not read."""
    reason: str
    """`cut`, `large` or `unreadable`."""


class Values:
    """Stored JSON as values to be shown, whatever it holds. Without `is_whole` long ones are cut."""

    __slots__ = ("_payloads", "is_whole")

    def __init__(self, payloads: Mapping[str, bytes] | None = None, *, is_whole: bool) -> None:
        self._payloads = payloads or {}
        self.is_whole = is_whole

    def of(self, data: object) -> Any:
        """A value, or an `Excerpt` of it."""
        if not isinstance(data, bytes):
            return Excerpt(text=str(data)[:LONGEST_EXCERPT], length=None, reason="unreadable")
        if len(data) > LONGEST_VALUE and not self.is_whole:
            return Excerpt(text=_beginning(data), length=len(data), reason="cut")
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Excerpt(text=_beginning(data), length=len(data), reason="unreadable")

    def of_payload(self, payload: Payload) -> Any:
        """What an event carries. A large value is stored aside and read only for those who ask for it whole."""
        data = self.data(payload)
        return Excerpt(text="", length=None, reason="large") if data is None else self.of(data)

    def of_input(self, stored: object) -> Any:
        """The input of an instance or an attempt, as its column holds it."""
        if isinstance(stored, bytes) and stored.startswith(MARK):
            return self.of_payload(Payload(reference=reference_of(stored)))
        return self.of(stored)

    def data(self, payload: Payload) -> bytes | None:
        """The JSON of a payload; None if it is stored aside and was not read."""
        return self._payloads.get(payload.reference) if payload.reference else bytes(payload.data)


def _beginning(data: bytes) -> str:
    return data[:LONGEST_EXCERPT].decode(errors="replace")


WHOLE: Final = Values(is_whole=True)


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
    """What its body gave to `hf.heartbeat` last."""
    losses: int = 0
    """Workers that were lost while they ran this activity."""
    node: str = ""
    """Of a flow: whose attempt it is, and in which round and for which item (K8).

    A node that waits for others has one that is REQUESTED, whose `number` is -1: it is shown, and nowhere stored (A3).
    """
    dimension: str = ""


class SetAsideEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event whose value did not fit the type that the workflow waited for. The workflow still waits (G6)."""

    name: str
    reason: str
    received_at: dt.datetime
    value: Any
    """As it was sent, or an `Excerpt`."""
    id: str = ""
    """The id that its sender gave it. A corrected event may have the same one."""
    execution: int = 1
    """The execution that set it aside."""


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """An activity, timer, wait for an event, or child, in the order in which the steps were scheduled (K9)."""

    kind: str
    number: int
    name: str
    is_open: bool
    result: Any = None
    """Its result, the value of its event, or an `Excerpt`."""
    failure: str | None = None
    due_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    id: str = ""
    """The instance, of a child."""
    node: str = ""
    dimension: str = ""


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """A message in the inbox that the code has not taken: an event, an update, or a request to end."""

    kind: str
    """`event`, `update`, `cancel`, or `unreadable`."""
    name: str
    id: str
    value: Any
    """What it carries, or an `Excerpt`."""
    sent_at: dt.datetime | None
    is_awaited: bool = True
    """Whether the code waits for an event of this name."""


class UpdateView(msgspec.Struct, frozen=True, kw_only=True):
    """An update that was sent to an instance."""

    id: str
    name: str
    state: UpdateState
    input: Any = None
    result: Any = None
    """What its handler returned, or an `Excerpt`."""
    failure: str | None = None


class Stateful(msgspec.Struct, frozen=True, kw_only=True):
    """A view with the state of an instance. `status` was its name in the release before."""

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
    version: str
    execution: int
    turn: int
    collation_key: str
    waiting_for: list[str]
    attempts: list[AttemptView]
    blocked: str | None
    created_at: dt.datetime
    closed_at: dt.datetime | None
    custom_status: Any = None
    """What its code said last with `hf.set_status`."""
    deadline: dt.datetime | None = None
    """Until when it has to end, or had to."""
    parent: str | None = None
    """The instance whose code started it, if one did."""
    children: dict[InstanceState, int] = {}
    """How many children it has started, in all its executions, by their state."""
    composite_key: str | None = None
    """Its key without the padding and, for a flow, with the keys of the children that it awaits inside (K6).

    None if these are more than a thousand.
    """
    set_aside: list[SetAsideEvent] = []
    """Events that did not fit what was waited for, oldest first: of this execution and of the hundred before it, or of
    all executions if they are asked for whole."""
    input: Any = None
    """The arguments of the workflow by name, or an `Excerpt`."""
    steps: list[StepView] = []
    state_values: dict[str, Any] = {}
    """The values that its code keeps in `hf.state`."""
    mailbox: list[MessageView] = []
    """Messages that its code has not taken, oldest first; a hundred at most, unless they are asked for whole."""
    updates: list[UpdateView] = []
    losses: int = 0
    """Workers that were lost while they ran its code, since its last turn (G12)."""
    damage: list[str] = []
    """What of it cannot be read; `holdfast verify` has more."""
    obstacles: list[str] = []
    """Why it does not move: work that no live worker can take, each as a sentence (see `client.obstacles`)."""


class Summary(Stateful, frozen=True, kw_only=True):
    """An instance in a list: what is known of it without reading its history."""

    number: int
    """Never given to another instance, also where an id is (G3). The next page is `before` the last one's."""
    id: str
    workflow: str
    version: str
    execution: int
    created_at: dt.datetime
    closed_at: dt.datetime | None
    blocked: str | None
    custom_status: Any
    """What its code said last with `hf.set_status`."""
    is_current: bool
    """Whether its id still means this instance."""
    parent: str | None
    """The instance whose code started it, if one did."""


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the history, with the number of its turn."""

    number: int
    turn: int
    kind: str
    fields: dict[str, Any]


def moment(milliseconds: int | None) -> dt.datetime | None:
    """A stored time, in UTC. None also for one that is damaged: out of range, or no number."""
    if not isinstance(milliseconds, int):
        return None
    try:
        return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return None


def attempt_view(record: AttemptRecord, values: Values) -> AttemptView:
    """An attempt, for people."""
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
    )


def failure_text(stored: object) -> str:
    """A stored failure: type and message, in one line."""
    try:
        failure = _failure.decode(cast("bytes", stored))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError):
        return "a failure that cannot be decoded"
    return short_failure(failure)


def short_failure(failure: Failure) -> str:
    """Type and message, in one line."""
    name = failure.type.rpartition(".")[2]
    return f"{name}: {failure.message}" if failure.message else name


def summary(record: InstanceRecord) -> Summary:
    """An instance in a list, for people."""
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
    )


def description(
    record: InstanceRecord, events: list[HistoryEvent], attempts: list[AttemptRecord], values: Values
) -> Description:
    """An instance, for people: what it waits for and its key are read off the history (K9)."""
    steps = read_steps(events)
    key = derived_key(steps)
    return Description(
        id=record.id,
        workflow=record.workflow,
        version=record.version,
        state=record.state,
        execution=record.execution,
        turn=record.turn,
        collation_key=key,
        composite_key=key,
        waiting_for=[waits_for(step) for step in steps if step.is_open] if record.closed_at_ms is None else [],
        attempts=[attempt_view(attempt, values) for attempt in attempts],
        blocked=record.blocked,
        created_at=moment(record.created_at_ms) or EPOCH,
        closed_at=moment(record.closed_at_ms),
        input=values.of_input(record.input),
        steps=[step_view(step, values) for step in steps],
        losses=record.losses,
    )


def step_view(step: RecordedStep, values: Values) -> StepView:
    """A step, for people."""
    has_failed = step.digit == ERRORED
    failure = None
    if has_failed and step.outcome is not None:
        data = values.data(step.outcome)
        failure = "a large failure" if data is None else failure_text(data)
    return StepView(
        kind=step.kind,
        number=step.number,
        name=step.name,
        is_open=step.is_open,
        result=None if has_failed or step.outcome is None else values.of_payload(step.outcome),
        failure=failure,
        due_at=moment(step.due_at_ms),
        ended_at=moment(step.ended_at_ms),
        id=step.id,
        node=step.node,
        dimension=step.dimension,
    )


def read_set_aside(execution: int, events: list[HistoryEvent], values: Values) -> list[SetAsideEvent]:
    """The events that an execution set aside, oldest first."""
    return [
        SetAsideEvent(
            name=event.name,
            id=received.id,
            execution=execution,
            reason=event.reason,
            received_at=moment(received.time_ms) or EPOCH,
            value=values.of_payload(received.value),
        )
        for received, event in pairs_set_aside(events)
    ]


def read_key(events: list[HistoryEvent]) -> tuple[str, list[str]]:
    """K9: the key, and what is still waited for."""
    steps = read_steps(events)
    return derived_key(steps), [waits_for(step) for step in steps if step.is_open]


def waits_for(step: RecordedStep) -> str:
    """A step that is open, in words."""
    if step.due_at_ms is not None:
        due_at = moment(step.due_at_ms)
        due = f"{step.due_at_ms} ms" if due_at is None else f"{due_at:%Y-%m-%d %H:%M:%S} UTC"
        return f"timer {step.number}, due {due}"
    return f"{step.kind} {step.name} {step.id}".rstrip()


NEWEST: Final = 2**62
"""Before this come all."""
LONGEST_PAGE: Final = 10_000


def check_page(limit: int, before: int) -> None:
    """Refuse a page that makes no sense."""
    checked_integer(limit, "limit", least=1, most=LONGEST_PAGE)
    checked_integer(before, "before, the number of an instance,", least=0, most=NEWEST)
