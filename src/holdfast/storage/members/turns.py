"""A turn: everything that one run of workflow code commits, all or nothing (G11)."""

from holdfast.core.admission import IdPolicy, Mailbox
from holdfast.core.attributes import AttributeChange
from holdfast.core.children import ParentClose
from holdfast.core.deadlines import Deadline
from holdfast.core.history import ActivityYielded
from holdfast.core.lifecycle import InstanceState
from holdfast.core.updates import UpdateState
from holdfast.storage.members.attempts import Completion, Transition
from holdfast.storage.members.base import WorkerMember
from holdfast.storage.members.messages import Deliver
from holdfast.storage.records import (
    AttemptKey,
    Fence,
    InstanceId,
    InstanceNumber,
    LargePayload,
    NewAttempt,
    Record,
    StateValue,
    TimerRow,
)


class UpdateAnswer(Record, frozen=True):
    """The state of an update after a turn. `answer` is an encoded payload, None while there is none."""

    id: str
    state: UpdateState
    answer: bytes | None = None


class NewChild(Record, frozen=True):
    """An instance to be created with the turn of its parent, tied to the step `child` of that execution (G11)."""

    child: int
    id: InstanceId
    workflow: str
    version: str | None
    """As in `Start`."""
    input: bytes
    input_hash: bytes
    started: bytes
    parent_close: ParentClose
    named: bool = False
    """The code chose the id, and gets a message whether it was free."""
    payloads: tuple[LargePayload, ...] = ()
    deadline: Deadline | None = None
    policy: IdPolicy = IdPolicy.IDEMPOTENT
    """Of a named child whose id is taken (G3)."""


class CancelChild(Record, frozen=True):
    """A child that its parent's turn cancels."""

    child: int
    reason: str = ""
    descendants: bool = False


class AppliedValues(Record, frozen=True):
    """`count` pending responses of an attempt leave leg 2 with the turn that applied them (L5)."""

    key: AttemptKey
    count: int


class InstanceEnd(Record, frozen=True):
    """The end of an instance."""

    state: InstanceState
    outcome: bytes
    error: str | None = None
    """The type of the error of a FAILED instance, without its module (F4)."""


class NextExecution(Record, frozen=True):
    """The execution that follows the one which this turn ends (G4). `started` is its first inbox row."""

    input: bytes
    started: bytes
    is_on_newest: bool = False
    """The worker that takes its first turn chooses the version again (R7)."""


class StreamValues(WorkerMember, frozen=True):
    """Values that a running attempt yielded: pending responses that enter leg 2 together (L15).

    As a part of the turn that applies them they leave leg 2 in the same commit; as a member of their own they are put
    into the inbox. A repetition is `Applied` and changes nothing (L11): only the attempt's owner adds responses to it.
    """

    key: AttemptKey
    from_ledger: int
    event: ActivityYielded
    expires_at_ms: int | None = None


class TurnEffects(Record, frozen=True):
    """The parts of a turn besides its history, its completions and its new attempts."""

    close: InstanceEnd | None = None
    next: NextExecution | None = None
    release: bool = False
    read_to: int | None = None
    """With `close`: the last inbox row that the owner has read. If an event or an update is behind it, the turn is
    rejected, and the code takes that message before it ends (G14). None: the instance is closed whatever is in its
    inbox."""
    consumed: tuple[int, ...] = ()
    """The inbox rows of the messages that it applied."""
    events_taken: int = 0
    """The number of consumed messages that are events."""
    responses: tuple[Transition, ...] = ()
    """Responses of consumed messages leave leg 2 (L5)."""
    applied_values: tuple[AppliedValues, ...] = ()
    stream_values: tuple[StreamValues, ...] = ()
    """Values that it applied and that are not stored yet. If one is stale, the turn is rejected."""
    abandoned: tuple[int, ...] = ()
    """Activities that the code no longer waits for."""
    activities_asked: tuple[int, ...] = ()
    """Activities that the code cancels and waits for (A14)."""
    timers_started: tuple[TimerRow, ...] = ()
    timers_ended: tuple[int, ...] = ()
    payloads: tuple[LargePayload, ...] = ()
    waits: tuple[str, ...] | None = None
    """The names of the events that the code waits for after this turn; None: no change."""
    ids_set_aside: tuple[str, ...] = ()
    """The ids of events that this turn set aside: a message with such an id is delivered again (G6)."""
    sent: tuple[Deliver, ...] = ()
    mailbox: Mailbox | None = None
    """With the first turn of a workflow whose policy for events is not the default."""
    state_values: tuple[StateValue, ...] = ()
    attributes: tuple[AttributeChange, ...] = ()
    """For a store with the capability `SEARCH` (F2)."""
    answers: tuple[UpdateAnswer, ...] = ()
    version: str | None = None
    """With the first turn of an instance whose version was not chosen: the version on which it runs (R6)."""
    children: tuple[NewChild, ...] = ()
    children_cancelled: tuple[CancelChild, ...] = ()
    has_relatives: bool = False
    """With `close` or `next`: the execution that it ends has a parent or has started children."""

    @property
    def changes_children(self) -> bool:
        """Whether it starts or cancels children."""
        return len(self.children) > 0 or len(self.children_cancelled) > 0


class Turn(WorkerMember, frozen=True):
    """All or nothing (G11): history, activities, timers and consumed messages of one turn."""

    number: InstanceNumber
    execution: int
    fence: Fence
    turn: int
    stamp_ms: int
    events: bytes = b""
    completions: tuple[Completion, ...] = ()
    attempts: tuple[NewAttempt, ...] = ()
    key: str | None = None
    """Of a flow: its collation key after this turn (K2)."""
    effects: TurnEffects | None = None
    """None in most turns: the store then has nothing else to write."""
