"""Members of a group, each with its own guard, and what can come of them.

A member says which rows it expects and what it makes of them. It is applied as a whole or not at all.
"""

from typing import Final

from holdfast.core.deadlines import Deadline, DeadlineVerdict
from holdfast.core.events import (
    ActivityCompleted,
    ActivityFailed,
    ActivityYielded,
    CancelRequested,
    EventReceived,
    UpdateAccepted,
)
from holdfast.core.gates import EventVerdict, IdPolicy, Mailbox
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.liveness import WorkerKey
from holdfast.storage.answers import ClaimedQueries, QueryMember, UpdateAnswer
from holdfast.storage.children import CancelChild, CloseChildren, EndedInstance, NewChild
from holdfast.storage.deadlines import Expire, SetDeadline
from holdfast.storage.records import (
    AttemptKey,
    AttemptRecord,
    Fence,
    InstanceId,
    InstanceNumber,
    InstanceRecord,
    LargePayload,
    NewAttempt,
    OwnedAttempt,
    OwnedInstance,
    Record,
    StateValue,
    TimerRow,
)


class Transition(Record, frozen=True):
    """One guarded change of an attempt (A2): from the state, ledger and owner it expects to the next."""

    key: AttemptKey
    owner: WorkerKey | None
    from_state: AttemptState
    from_ledger: int
    to_state: AttemptState
    to_ledger: int
    failure: bytes | None = None


class Completion(Record, frozen=True):
    """An attempt came to its end, and the activity with it.

    Applied with a turn, its response enters and leaves leg 2 in one commit (`applied_ledger`). Alone, it enters
    (`entered_ledger`) and the event waits in the inbox. Without an event nobody waits for the answer any more.
    """

    key: AttemptKey
    owner: WorkerKey | None
    from_state: AttemptState
    from_ledger: int
    to_state: AttemptState
    entered_ledger: int
    applied_ledger: int
    event: ActivityCompleted | ActivityFailed | None
    failure: bytes | None = None
    by_owner: bool = True
    """False when somebody else ends the attempt: a janitor at its deadline, or whoever found its worker dead."""
    values: int | None = None
    """It ends a stream of so many values: it is applied behind them, and waits in the inbox where they do (L15)."""


class AppliedValues(Record, frozen=True):
    """So many pending responses of an attempt leave leg 2 with the turn that applied them (L5)."""

    key: AttemptKey
    count: int


class Deliver(Record, frozen=True):
    """A message from outside, or from another instance's turn, for the newest instance of an id (G5, G7).

    `message_id` makes it one message however often it is sent; without one, each is another. An update has its own id.
    `number` names one instance of the id.
    """

    id: InstanceId
    event: EventReceived | CancelRequested | UpdateAccepted
    number: InstanceNumber | None = None
    message_id: str = ""


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


class Start(Record, frozen=True):
    """Create an instance, with its first turn if its creator can run it, as the policy for its id says (G3)."""

    id: InstanceId
    workflow: str
    version: str
    input: bytes
    input_hash: bytes
    started: bytes = b""
    """What waits in its inbox for whoever claims it; its first turn, if there is one, has it already."""
    policy: IdPolicy = IdPolicy.IDEMPOTENT
    first: Turn | None = None
    payloads: tuple[LargePayload, ...] = ()
    mail: Deliver | None = None
    """An event for whatever instance has the id in the end."""
    mail_taken: bool = False
    """The first turn has applied the event: it is delivered only if the start finds an instance."""
    deadline: Deadline | None = None
    """What its creator says about its end. None: whoever first runs its code says it."""
    key: str | None = None
    """Of a flow that is started by object: its key before its first turn (K1)."""


class Terminate(Record, frozen=True):
    """End an open instance from outside, whoever owns it (A9): a client's member, with no guard but its state."""

    id: InstanceId
    number: InstanceNumber | None = None
    """Which instance of the id; the newest if it is not said."""
    reason: str = ""


class OpenNextAttempt(Record, frozen=True):
    """An attempt failed, timed out or was lost, and the next one opens in the same commit (G13)."""

    ended: Transition
    next: NewAttempt
    by_owner: bool = True


class ClaimInstances(Record, frozen=True):
    """Take instances that have something to do; each claim raises the fence (G1)."""

    owner: WorkerKey
    workflows: tuple[str, ...]
    limit: int
    blocked: bool = False
    """Take BLOCKED ones instead, and try them again (G12): those that `build` has not tried, or all if it is empty."""
    build: str = ""


class ClaimAttempts(Record, frozen=True):
    """Take READY attempts of these queues, and run them at once."""

    owner: WorkerKey
    queues: tuple[str, ...]
    names: tuple[str, ...]
    limit: int


class Release(Record, frozen=True):
    """Let go of an instance; it becomes claimable when it has something to do (G2)."""

    number: InstanceNumber
    owner: WorkerKey
    fence: Fence


class Block(Record, frozen=True):
    """Park an instance whose turn cannot be taken by this build (G12)."""

    number: InstanceNumber
    owner: WorkerKey
    fence: Fence
    reason: str
    build: str


class HeartbeatAttempt(Record, frozen=True):
    """A running body says that it lives (A6)."""

    key: AttemptKey
    owner: WorkerKey
    details: bytes | None
    expires_at_ms: int | None


class MarkWorkerLost(Record, frozen=True):
    """A worker is gone: it becomes INACTIVE, and a batch of what it had moves on (W6)."""

    key: WorkerKey
    at_deadline: bool
    limit: int
    is_clean: bool = False
    """A worker that stops cleanly (W10) gives its attempts up; that is no loss to be counted (A10)."""
    culprit: InstanceNumber | None = None
    """The instance whose code the worker was running when it was lost; counted once, if the worker has it (G12)."""
    unexplained: bool = False
    """Nobody knows what it was running when it was lost: the loss is counted for everything that it had (G12)."""
    instances_only: bool = False
    """W1: its event loop is blocked. It stays ACTIVE with its attempts, and only its instances move on."""


class ReleaseUnknown(Record, frozen=True):
    """A worker lets go of what is in its name and what it does not know (W3): the reply to a commit was lost.

    What is no longer as it was seen (another claim, another state) is left alone. Attempts go the way of a lost
    worker's (W6), instances become claimable as if released.
    """

    owner: WorkerKey
    attempts: tuple[OwnedAttempt, ...] = ()
    instances: tuple[OwnedInstance, ...] = ()


class SaveFlow(Record, frozen=True):
    """Keep a flow as it is now, under its hash: instances stay on the version that they were started with."""

    hash: str
    name: str
    version: str
    definition: bytes


Member = (
    Start
    | Turn
    | Terminate
    | Completion
    | OpenNextAttempt
    | ClaimInstances
    | ClaimAttempts
    | Release
    | Block
    | HeartbeatAttempt
    | MarkWorkerLost
    | ReleaseUnknown
    | Deliver
    | StreamValues
    | SetDeadline
    | Expire
    | CloseChildren
    | SaveFlow
    | QueryMember
)


class Applied(Record, frozen=True):
    """The change is on disk."""

    changed: int = 1
    ended: tuple[EndedInstance, ...] = ()
    """Children that ended with it, without having been asked."""


CANCEL_REQUESTED: Final = "cancel requested"
"""Why the heartbeat of an attempt that was cancelled is rejected."""


class Rejected(Record, frozen=True):
    """A guard did not hold; nothing was changed, except where the member says so."""

    reason: str


class Failed(Record, frozen=True, gc=True):
    """The database refused this member for a reason that no guard foresaw. Nothing of it was kept."""

    error: Exception


class StartedInstance(Record, frozen=True):
    """The instance that has the id, new or not."""

    instance: InstanceRecord
    created: bool
    replaced: InstanceNumber | None = None
    """The open instance that was terminated for it, by the policy `terminate_existing`."""
    mail: "Delivered | None" = None
    """What became of the event that came with the start."""
    ended: tuple[EndedInstance, ...] = ()


class TerminatedInstance(Record, frozen=True):
    """The instance as it was found. One that was closed already was left alone."""

    instance: InstanceRecord
    was_open: bool
    ended: tuple[EndedInstance, ...] = ()


class ClaimedInstances(Record, frozen=True):
    """What was taken."""

    instances: list[InstanceRecord]


class ClaimedAttempts(Record, frozen=True):
    """What was taken, RUNNING in the claimer's name."""

    attempts: list[AttemptRecord]


class TargetInstance(Record, frozen=True):
    """The instance that an event was for: as much of it as had to be read."""

    number: InstanceNumber
    state: InstanceState
    execution: int


class Delivered(Record, frozen=True):
    """What became of a message, and the instance it was for, as it was before."""

    instance: InstanceRecord | TargetInstance
    verdict: EventVerdict
    ended: tuple[EndedInstance, ...] = ()


class Expired(Record, frozen=True):
    """What was done about a deadline, and the instance as it was before."""

    instance: InstanceRecord
    verdict: DeadlineVerdict
    ended: tuple[EndedInstance, ...] = ()


Outcome = (
    Applied
    | Rejected
    | Failed
    | StartedInstance
    | TerminatedInstance
    | ClaimedInstances
    | ClaimedAttempts
    | Delivered
    | Expired
    | ClaimedQueries
)
