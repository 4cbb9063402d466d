"""The history of an instance: every event, in the order in which it was applied (G9-G11).

Two kinds of events alternate. *Inputs* come from outside and are applied to the code: the start, completions, fired
timers. *Commands* are what the code does in response. Replay applies the inputs again and compares the commands (G12).
An external end may follow them: it ends the instance without running its code.

A row of the history holds the events of one turn as JSON. Stored events never change: a release may add a field with a
default, and never removes or renames one. A large payload is stored in a table of its own, and its event holds a
reference to it.

An event class carries everything that other modules need to know about its kind: its tag, the field with its payload,
the fields that replay compares, and a description. Tables elsewhere that are keyed by event class are checked for
completeness by `tests/tidy/test_type_tables.py`; `docs/contributing/add-a-history-event.md` lists them.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import ClassVar, Final

import msgspec

from holdfast.core.attributes import StoredAttribute


class HistoryEventBase(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="event", kw_only=True, gc=False):
    """An event of a history."""

    payload_field: ClassVar[str] = ""
    """The field that holds the payload; empty if events of this class carry none."""
    identity: ClassVar[tuple[str, ...]] = ()
    """The fields that are equal in a recorded command and the one that replay produces for it (G12)."""

    def describe(self) -> str:
        """This step in words, for the message of a mismatch."""
        return f"an event {type(self).__struct_config__.tag!r}"

    def is_same_step(self, produced: "HistoryEventBase") -> bool:
        """Whether replay accepts `produced` for this command: arguments and due times may differ, steps may not."""
        if type(produced) is not type(self):
            return False
        return all(getattr(self, name) == getattr(produced, name) for name in self.identity)


class Payload(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Encoded data: in place, or, when it is large, by reference."""

    data: msgspec.Raw = msgspec.Raw(b"null")
    reference: str = ""


class _FailureMessage(msgspec.Struct, frozen=True):
    """The part of an encoded failure that a description shows."""

    message: str = ""


# ---------------------------------------------------------------- inputs


class Started(HistoryEventBase, frozen=True, tag="started"):
    """An execution begins. Its random numbers are derived from `seed`."""

    payload_field = "input"

    time_ms: int
    workflow: str
    version: str
    """The version on which the execution runs, recorded by its first turn. Before that, the version of the start, or ""
    if none was chosen."""
    seed: int
    input: Payload
    execution: int = 1
    kept: dict[str, msgspec.Raw] | None = None
    """The state values and the status of the execution before this one: replay begins with them (G4)."""
    parent: str = ""
    """The id of the parent; empty if a client started the instance. `depth` is the number of all its ancestors."""
    depth: int = 0
    flow: str = ""
    """Of a flow: the hash of the definition that the instance runs."""
    payload_limit: int = 0
    """The largest payload in bytes that this execution may produce; 0 if an older release started it."""
    attributes: dict[str, StoredAttribute] | None = None
    """The attributes with which it begins: those of the start, or of the execution before this one (F2)."""
    attempt: int = 1
    """With a retry policy: how many executions have had this input, in a row, with this one (G18)."""
    root: str = ""
    """The id of the topmost ancestor; empty without a parent, and in executions that older releases started."""
    begins_at_ms: int = 0
    """The code begins at this time, if it is later: the delay of a retry."""
    trace: str = ""
    """The trace context of the start (`core.trace_context`); empty if it was not traced (M4)."""


class ActivityCompleted(HistoryEventBase, frozen=True, tag="activity_completed"):
    """An activity returned."""

    payload_field = "result"

    time_ms: int
    activity: int
    result: Payload
    attempt: int = 1


class ActivityFailed(HistoryEventBase, frozen=True, tag="activity_failed"):
    """An activity failed: its last attempt failed, and no retry follows."""

    payload_field = "failure"

    time_ms: int
    activity: int
    failure: Payload
    attempt: int = 1


class TimerFired(HistoryEventBase, frozen=True, tag="timer_fired"):
    """A timer fired."""

    time_ms: int
    timer: int


class EventReceived(HistoryEventBase, frozen=True, tag="event_received"):
    """An event that was raised from outside reached the oldest wait for its name (G6)."""

    payload_field = "value"

    time_ms: int
    name: str
    value: Payload
    id: str = ""
    at_end: bool = False
    """It was in the inbox when the main function ended, and was applied before its tasks were cancelled (G14)."""
    trace: str = ""
    """The trace context of its sender."""


class CancelRequested(HistoryEventBase, frozen=True, tag="cancel_requested"):
    """A client, the parent or the deadline cancels the instance. `descendants`: with all children of a flow."""

    time_ms: int
    reason: str = ""
    by_deadline: bool = False
    descendants: bool = False


class AttributesChanged(HistoryEventBase, frozen=True, tag="attributes_changed"):
    """A client set or deleted attributes (F10). The store has them already; None deletes one."""

    time_ms: int
    values: dict[str, StoredAttribute | None]


class ActivityYielded(HistoryEventBase, frozen=True, tag="activity_yielded"):
    """An activity yielded values. Numbering continues across its attempts (L15).

    Values that were ready together are one message: `number` is that of `value`, and those of `more` follow.
    """

    payload_field = "value"

    time_ms: int
    activity: int
    number: int
    value: Payload
    attempt: int = 1
    more: tuple[Payload, ...] = ()

    @property
    def values(self) -> tuple[Payload, ...]:
        """All values, in order."""
        return (self.value, *self.more)

    @property
    def numbers(self) -> range:
        """The numbers of the values."""
        return range(self.number, self.number + 1 + len(self.more))


class ChildStarted(HistoryEventBase, frozen=True, tag="child_started"):
    """A child whose id the code chose was created. Default ids are always free: their children have no such event."""

    time_ms: int
    child: int


class ChildRefused(HistoryEventBase, frozen=True, tag="child_refused"):
    """A child was not created: another instance has its id."""

    time_ms: int
    child: int
    reason: str


class ChildCompleted(HistoryEventBase, frozen=True, tag="child_completed"):
    """A child completed."""

    payload_field = "result"

    time_ms: int
    child: int
    result: Payload


class ChildFailed(HistoryEventBase, frozen=True, tag="child_failed"):
    """A child failed."""

    payload_field = "failure"

    time_ms: int
    child: int
    failure: Payload


class ChildStopped(HistoryEventBase, frozen=True, tag="child_stopped"):
    """A child ended without a result or an error: `state` is CANCELLED or TERMINATED."""

    time_ms: int
    child: int
    state: str
    reason: str = ""


class SendJudged(HistoryEventBase, frozen=True, tag="send_judged"):
    """The verdict on an event or a cancel that the code sent: the name of an `EventVerdict` (G19)."""

    time_ms: int
    number: int
    verdict: str


class UpdateAccepted(HistoryEventBase, frozen=True, tag="update_accepted"):
    """The validator accepted an update, and its handler begins. The inbox stores an unvalidated update in this form."""

    payload_field = "input"

    time_ms: int
    id: str
    name: str
    input: Payload
    at_end: bool = False
    """As in `EventReceived`."""
    trace: str = ""
    """As in `EventReceived`."""


# ---------------------------------------------------------------- commands


STREAM_RESTARTS: Final = "restarts"
"""A new attempt of the activity yields all values again."""
STREAM_RESUMES: Final = "resumes"
"""A new attempt of the activity continues behind the values that were delivered (`resumable=True`)."""


class ActivityScheduled(HistoryEventBase, frozen=True, tag="activity_scheduled"):
    """The code, or a node of a flow for an `item` of its list, called an activity. Its attempts hold the input."""

    identity = ("activity", "name")

    activity: int
    name: str
    node: str = ""
    item: int = -1
    stream: str = ""
    """Of a node of a flow whose activity yields values: one of `STREAM_RESTARTS` and `STREAM_RESUMES` (K10)."""
    waits: bool = False
    """Of code: a cancelled call waits for the end of the attempt (A14). A replay does what is recorded."""

    def describe(self) -> str:
        return f"a call of activity {self.name!r} (number {self.activity})"


class ActivityAbandoned(HistoryEventBase, frozen=True, tag="activity_abandoned"):
    """The code stopped waiting for an activity; the activity is cancelled."""

    identity = ("activity",)

    activity: int

    def describe(self) -> str:
        return f"the end of waiting for activity number {self.activity}"


class ActivityCancelRequested(HistoryEventBase, frozen=True, tag="activity_asked_to_end"):
    """The code cancelled a call with ``on_cancel="wait"``: it waits until the activity has ended."""

    identity = ("activity",)

    activity: int

    def describe(self) -> str:
        return f"a request to activity number {self.activity} to end"


class TimerStarted(HistoryEventBase, frozen=True, tag="timer_started"):
    """The code started a timer."""

    identity = ("timer",)

    timer: int
    due_at_ms: int
    node: str = ""

    def describe(self) -> str:
        return f"the start of timer number {self.timer}"


class TimerCancelled(HistoryEventBase, frozen=True, tag="timer_cancelled"):
    """The code stopped waiting for a timer."""

    identity = ("timer",)

    timer: int

    def describe(self) -> str:
        return f"the end of waiting for timer number {self.timer}"


class SideEffectRecorded(HistoryEventBase, frozen=True, tag="side_effect_recorded"):
    """The code recorded a value that replay returns without computing it again."""

    payload_field = "value"
    identity = ("number",)

    number: int
    value: Payload

    def describe(self) -> str:
        return f"side effect number {self.number}"


class PatchApplied(HistoryEventBase, frozen=True, tag="patch_applied"):
    """The code reached ``hf.patched(name)`` for the first time in this execution, and takes the new branch (R14).

    Replay does not compare it with what the code does: code without the call takes the new branch, too.
    """

    identity = ("name",)

    name: str

    def describe(self) -> str:
        return f"the patch {self.name!r}"


class ExecutionCompleted(HistoryEventBase, frozen=True, tag="workflow_completed"):
    """The main function returned."""

    payload_field = "result"

    result: Payload

    def describe(self) -> str:
        return "the end of the workflow"


class ExecutionFailed(HistoryEventBase, frozen=True, tag="workflow_failed"):
    """The main function raised."""

    payload_field = "failure"

    failure: Payload
    retry_at_ms: int | None = None
    """The next execution, with the same input, begins then (G18). None: the instance fails."""

    def describe(self) -> str:
        if self.failure.reference:
            return "the failure of the workflow"
        return f"the failure of the workflow ({msgspec.json.decode(self.failure.data, type=_FailureMessage).message})"


class EventAwaited(HistoryEventBase, frozen=True, tag="event_awaited"):
    """The code, or a node of a flow, waits for an event of this name."""

    identity = ("wait", "name")

    wait: int
    name: str
    node: str = ""

    def describe(self) -> str:
        return f"a wait for event {self.name!r} (number {self.wait})"


class EventWaitEnded(HistoryEventBase, frozen=True, tag="event_wait_ended"):
    """The code stopped waiting for an event."""

    identity = ("wait",)

    wait: int

    def describe(self) -> str:
        return f"the end of wait number {self.wait} for an event"


class EventSetAside(HistoryEventBase, frozen=True, tag="event_set_aside"):
    """The value of the preceding event does not fit the type of the wait that it reached. The wait stays open."""

    identity = ("wait", "name")

    wait: int
    name: str
    reason: str = ""

    def describe(self) -> str:
        return f"an event {self.name!r} that was set aside ({self.reason})"


class EventRaised(HistoryEventBase, frozen=True, tag="event_raised"):
    """The code raised an event to another instance. The message carries the value."""

    identity = ("number", "name")

    number: int
    target: str
    name: str

    def describe(self) -> str:
        return f"an event {self.name!r} raised to {self.target!r}"


class CancelSent(HistoryEventBase, frozen=True, tag="cancel_sent"):
    """The code asked another instance to end."""

    identity = ("number",)

    number: int
    target: str
    reason: str = ""

    def describe(self) -> str:
        return f"a request to {self.target!r} to end (number {self.number})"


class SendAwaited(HistoryEventBase, frozen=True, tag="send_awaited"):
    """The code waits for the verdict on an event or a cancel that it sent."""

    identity = ("number",)

    number: int

    def describe(self) -> str:
        return f"a wait for the delivery of message number {self.number}"


class UpdateHandlerCompleted(HistoryEventBase, frozen=True, tag="update_completed"):
    """The handler of an update returned."""

    payload_field = "result"
    identity = ("id",)

    id: str
    result: Payload

    def describe(self) -> str:
        return f"the end of update {self.id!r}"


class UpdateHandlerFailed(HistoryEventBase, frozen=True, tag="update_failed"):
    """The handler of an update raised, or was cancelled with the workflow."""

    payload_field = "failure"
    identity = ("id",)

    id: str
    failure: Payload

    def describe(self) -> str:
        return f"the failure of update {self.id!r}"


class ExecutionCancelled(HistoryEventBase, frozen=True, tag="workflow_cancelled"):
    """The main function ended after a cancel."""

    reason: str = ""

    def describe(self) -> str:
        return "the end of the workflow by cancellation"


class ContinuedAsNew(HistoryEventBase, frozen=True, tag="continued_as_new"):
    """The main function ended this execution and requested the next one, with this input (G4)."""

    payload_field = "input"

    input: Payload
    on_newest: bool = False
    """The next execution moves to the newest version (R7)."""

    def describe(self) -> str:
        return "the end of this execution, to be continued as new"


class ChildScheduled(HistoryEventBase, frozen=True, tag="child_scheduled"):
    """The code started a child, whose instance holds the input. `named`: the code chose the id."""

    identity = ("child", "name", "named")

    child: int
    name: str
    id: str
    named: bool = False
    node: str = ""
    item: int = -1
    detached: bool = False

    def describe(self) -> str:
        return f"the start of a child of workflow {self.name!r} (number {self.child}, id {self.id!r})"

    def is_same_step(self, produced: HistoryEventBase) -> bool:
        if self.named and self.id != getattr(produced, "id", ""):
            return False
        return HistoryEventBase.is_same_step(self, produced)


class ChildCancelRequested(HistoryEventBase, frozen=True, tag="child_asked_to_end"):
    """The code cancelled a child, or stopped waiting for it."""

    identity = ("child",)

    child: int
    reason: str = ""

    def describe(self) -> str:
        return f"a request to child number {self.child} to end"


# ---------------------------------------------------------------- commands of flows


class FlowAdvanced(HistoryEventBase, frozen=True, tag="flow_advanced"):
    """Moves of digits, and the edges that were decided (K3). See `core.flow.scheduler`.

    `offered`, `caught` and `escaped` name the nodes whose failures went along an error edge (K4). `unclear` has the
    edges whose condition could not be evaluated, with the reason: their target fails with it when it starts.
    """

    digits: dict[str, str]
    taken: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    offered: tuple[str, ...] = ()
    caught: tuple[str, ...] = ()
    escaped: tuple[str, ...] = ()
    unclear: dict[int, str] = {}

    def describe(self) -> str:
        return f"moves of the nodes {', '.join(self.digits)}"


class NodeFailed(HistoryEventBase, frozen=True, tag="node_failed"):
    """A node failed without an activity: an expression failed, its wait timed out, or its cycle reached its limit."""

    payload_field = "failure"

    node: str
    failure: Payload

    def describe(self) -> str:
        return f"the failure of node {self.node!r}"


class NodeCompleted(HistoryEventBase, frozen=True, tag="node_completed"):
    """A node without a single result completed: a fan-out, a stream, or a node that only computes its output.

    With `item`, the stream of one item of a fan-out completed.
    """

    payload_field = "output"

    node: str
    output: Payload
    item: int = -1

    def describe(self) -> str:
        return f"the completion of node {self.node!r}"


class NodeReleased(HistoryEventBase, frozen=True, tag="node_released"):
    """A held node was released (K11). `output` replaces the output with which it was held, unless it is None."""

    payload_field = "output"

    node: str
    output: Payload | None = None

    def describe(self) -> str:
        return f"the release of node {self.node!r}"


class FanOutStarted(HistoryEventBase, frozen=True, tag="fan_out_began"):
    """A node runs once for each of `count` items. `items` are stored if they do not all start at once.

    With `stream` the items are the responses of that node, and `count` is 0 (K10).
    """

    payload_field = "items"

    node: str
    count: int
    items: Payload | None = None
    stream: str = ""

    def describe(self) -> str:
        if self.stream:
            return f"the fan-out of node {self.node!r} over the responses of {self.stream!r}"
        return f"the fan-out of node {self.node!r} over {self.count} items"


class CycleRestarted(HistoryEventBase, frozen=True, tag="cycle_restarted"):
    """A cycle runs its target, and every node after it, once more (K8)."""

    node: str
    target: str
    round: int

    def describe(self) -> str:
        return f"round {self.round} of the cycle {self.node!r}"


# ---------------------------------------------------------------- external ends


class InstanceTerminated(HistoryEventBase, frozen=True, tag="workflow_terminated"):
    """A client or the parent terminated the instance. Its code does not run again (A9), so no replay sees this."""

    time_ms: int
    reason: str = ""

    def describe(self) -> str:
        return "the end of the workflow from outside"


class InstanceCancelled(HistoryEventBase, frozen=True, tag="instance_cancelled"):
    """The instance was cancelled without running its code: before its first turn, or while it was blocked (A9)."""

    time_ms: int
    reason: str = ""

    def describe(self) -> str:
        return "the cancellation of the workflow from outside"


class DeadlinePassed(HistoryEventBase, frozen=True, tag="deadline_passed"):
    """The instance passed its deadline without running its code, or its code did not end in time (A9)."""

    payload_field = "failure"

    time_ms: int
    failure: Payload

    def describe(self) -> str:
        return "the end of the workflow at its deadline"


ChildEnd = ChildRefused | ChildCompleted | ChildFailed | ChildStopped
ChildAnswer = ChildStarted | ChildEnd
Input = (
    Started
    | ActivityCompleted
    | ActivityFailed
    | TimerFired
    | EventReceived
    | CancelRequested
    | AttributesChanged
    | ActivityYielded
    | ChildAnswer
    | SendJudged
    | UpdateAccepted
)
FlowCommand = FlowAdvanced | NodeFailed | NodeCompleted | NodeReleased | FanOutStarted | CycleRestarted
Command = (
    ActivityScheduled
    | ActivityAbandoned
    | ActivityCancelRequested
    | TimerStarted
    | TimerCancelled
    | SideEffectRecorded
    | PatchApplied
    | ExecutionCompleted
    | ExecutionFailed
    | EventAwaited
    | EventWaitEnded
    | EventSetAside
    | EventRaised
    | CancelSent
    | SendAwaited
    | UpdateHandlerCompleted
    | UpdateHandlerFailed
    | ExecutionCancelled
    | ContinuedAsNew
    | ChildScheduled
    | ChildCancelRequested
    | FlowCommand
)
ExternalEnd = InstanceTerminated | InstanceCancelled | DeadlinePassed
HistoryEvent = Input | Command | ExternalEnd

CHILD_ENDS: Final = (ChildRefused, ChildCompleted, ChildFailed, ChildStopped)
INPUTS: Final = (
    Started,
    ActivityCompleted,
    ActivityFailed,
    TimerFired,
    EventReceived,
    CancelRequested,
    AttributesChanged,
    ActivityYielded,
    ChildStarted,
    *CHILD_ENDS,
    SendJudged,
    UpdateAccepted,
)
ANSWERS: Final = (ActivityCompleted, ActivityFailed, TimerFired, ActivityYielded, ChildStarted, *CHILD_ENDS, SendJudged)
"""Replies to commands of one execution: they never reach the next execution (G4)."""
FROM_OUTSIDE: Final = (InstanceTerminated, InstanceCancelled, DeadlinePassed)

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(list[HistoryEvent])
_one: Final[msgspec.json.Decoder[HistoryEvent]] = msgspec.json.Decoder(HistoryEvent)


encode_events: Final[Callable[[list[HistoryEvent]], bytes]] = _encoder.encode
"""The events of one turn as they are stored."""


def decode_events(data: bytes) -> list[HistoryEvent]:
    """The events of one stored turn."""
    return _decoder.decode(data)


def encode_event(event: HistoryEvent) -> bytes:
    """One event as it is stored in an inbox."""
    return _encoder.encode(event)


def decode_event(data: bytes) -> HistoryEvent:
    """One event from an inbox."""
    return _one.decode(data)


def payloads_of(event: HistoryEvent) -> tuple[Payload, ...]:
    """All payloads of an event."""
    if isinstance(event, ActivityYielded):
        return event.values
    payload = payload_of(event)
    return () if payload is None else (payload,)


def payload_of(event: HistoryEvent) -> Payload | None:
    """The payload of an event, if it has one; of several values, the first."""
    field = event.payload_field
    payload: Payload | None = getattr(event, field) if field else None
    return payload


def pairs_set_aside(events: Sequence[HistoryEvent]) -> Iterator[tuple[EventReceived, EventSetAside]]:
    """The events that were set aside, oldest first, each with the `EventSetAside` that follows it."""
    for received, event in pairwise(events):
        if isinstance(event, EventSetAside) and isinstance(received, EventReceived):
            yield received, event
