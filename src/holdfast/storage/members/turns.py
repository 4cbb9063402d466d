"""New module."""

from holdfast.core.admission import Mailbox
from holdfast.core.children import ParentClose
from holdfast.core.deadlines import Deadline
from holdfast.core.history import ActivityYielded
from holdfast.core.leases import WorkerKey
from holdfast.core.lifecycle import InstanceState
from holdfast.core.updates import UpdateState
from holdfast.storage.members.attempts import Completion, Transition
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
    """How far an update has come with a turn. `answer` is an encoded payload, None while there is none."""

    id: str
    state: UpdateState
    answer: bytes | None = None


class NewChild(Record, frozen=True):
    """An instance to be created with the turn of its parent, tied to the step `child` of that execution (G11)."""

    child: int
    id: InstanceId
    workflow: str
    version: str
    input: bytes
    input_hash: bytes
    started: bytes
    parent_close: ParentClose
    named: bool = False
    """The code chose the id, and waits to hear that it was free."""
    payloads: tuple[LargePayload, ...] = ()
    deadline: Deadline | None = None


class CancelChild(Record, frozen=True):
    """A child that its parent's turn asks to end."""

    child: int
    reason: str = ""
    descendants: bool = False


class AppliedValues(Record, frozen=True):
    """So many pending responses of an attempt leave leg 2 with the turn that applied them (L5)."""

    key: AttemptKey
    count: int


class InstanceEnd(Record, frozen=True):
    """The end of an instance."""

    state: InstanceState
    outcome: bytes


class NextExecution(Record, frozen=True):
    """The execution that follows the one which this turn ends (G4). `started` waits for it in the inbox."""

    input: bytes
    started: bytes


class StreamValues(Record, frozen=True):
    """A running attempt yielded values: pending responses that enter leg 2 together (L15).

    With the turn that applies them they leave it in the same commit; alone they wait in the inbox. The same ones again
    are `Applied` and change nothing (L11): only the attempt's owner adds responses to it.
    """

    key: AttemptKey
    owner: WorkerKey
    from_ledger: int
    event: ActivityYielded
    expires_at_ms: int | None = None


class Turn(Record, frozen=True):
    """All or nothing (G11): history, activities, timers and consumed messages of one turn."""

    number: InstanceNumber
    execution: int
    owner: WorkerKey
    fence: Fence
    turn: int
    stamp_ms: int
    events: bytes = b""
    completions: tuple[Completion, ...] = ()
    responses: tuple[Transition, ...] = ()
    consumed: tuple[int, ...] = ()
    attempts: tuple[NewAttempt, ...] = ()
    abandoned: tuple[int, ...] = ()
    timers_started: tuple[TimerRow, ...] = ()
    timers_ended: tuple[int, ...] = ()
    payloads: tuple[LargePayload, ...] = ()
    close: InstanceEnd | None = None
    release: bool = False
    next: NextExecution | None = None
    waits: tuple[str, ...] | None = None
    """The events that are waited for from here on; None: no change."""
    mail_taken: int = 0
    """How many of the consumed messages were events."""
    ids_set_aside: tuple[str, ...] = ()
    """The ids of events that this turn set aside: a message with such an id is delivered again (G6)."""
    sent: tuple[Deliver, ...] = ()
    mailbox: Mailbox | None = None
    """With the first turn, where the workflow has other rules for events than the usual."""
    kept: tuple[StateValue, ...] = ()
    answers: tuple[UpdateAnswer, ...] = ()

    @property
    def has_mail(self) -> bool:
        """Whether anything about events changes."""
        return self.waits is not None or self.mail_taken > 0 or bool(self.sent) or self.mailbox is not None

    yields: tuple[AppliedValues, ...] = ()
    entries: tuple[StreamValues, ...] = ()
    """Values that this turn applied and that are not stored yet. If one is stale, so is the turn."""
    children: tuple[NewChild, ...] = ()
    children_asked: tuple[CancelChild, ...] = ()
    key: str | None = None
    """Of a flow: its collation key after this turn (K2)."""
    is_plain: bool = False
    """It has a history, a key, answers of activities and new attempts, and nothing besides: the store then does not
    look at the rest."""
    read_to: int | None = None
    """With `close`: the last inbox row that the owner has read. If an event or an update is behind it, the turn is
    rejected, and the code is to take it before it ends (G14). None: the instance is closed whatever is in its inbox."""
    family: bool = False
    """It starts children or asks them to end, or it ends an execution that has a parent or has started children."""
