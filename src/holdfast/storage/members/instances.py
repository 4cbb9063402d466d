"""Members about instances: start, end, claim, release, block, deadline, children; also saved flows."""

from holdfast.core.admission import IdPolicy
from holdfast.core.attributes import AttributeChange
from holdfast.core.deadlines import Deadline
from holdfast.core.leases import WorkerKey
from holdfast.storage.members.base import CommitMember, WorkerMember
from holdfast.storage.members.contract_rows import InsertRequest
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.turns import Turn
from holdfast.storage.records import Fence, InstanceId, InstanceNumber, LargePayload
from holdfast.storage.versions import CodeVersion


class CloseChildren(CommitMember, frozen=True):
    """Close a batch of the children of an execution that has ended, which its own commit left open (C1)."""

    number: InstanceNumber
    execution: int
    limit: int


class SetDeadline(WorkerMember, frozen=True):
    """Set the deadline that the code of an instance has, before its first turn, unless its start has set one."""

    number: InstanceNumber
    deadline: Deadline


class Expire(CommitMember, frozen=True):
    """Act on a deadline, or the grace after it, that has passed. Any worker may do it (C1); the time is the guard."""

    number: InstanceNumber


class Start(CommitMember, frozen=True):
    """Create an instance by the policy for its id (G3), with its first turn if its creator can run it."""

    id: InstanceId
    workflow: str
    version: str | None
    """None: the worker that takes the first turn chooses it (R6). Never None with `first`."""
    input: bytes
    input_hash: bytes
    started: bytes = b""
    """The first row of its inbox. Not used with `first`, which has applied it."""
    policy: IdPolicy = IdPolicy.IDEMPOTENT
    first: Turn | None = None
    payloads: tuple[LargePayload, ...] = ()
    mail: Deliver | None = None
    """An event or an update for the instance that has the id after this start (G17)."""
    mail_taken: bool = False
    """The first turn has applied the event: it is delivered only if the start finds an instance."""
    deadline: Deadline | None = None
    """The deadline that its creator sets. None: the worker that first runs its code sets it (`SetDeadline`)."""
    key: str | None = None
    """Of a flow that is started by object: its key before its first turn (K1)."""
    start_at_ms: int | None = None
    """Its first turn is taken no earlier than at this store time (G15). It has no `first` then."""
    watcher: str | None = None
    """The process that waits for its end, as in `Watch`. Not used with `first`, whose process runs it."""
    attributes: tuple[AttributeChange, ...] = ()
    """For a store with the capability `SEARCH`. They are not compared with those of an existing instance (F2)."""
    trace: InsertRequest | None = None
    """A request that is stored in the state TRACE with the start, unless the start is rejected (C3)."""

    @property
    def actor(self) -> WorkerKey | None:
        return None if self.first is None else self.first.owner

    @property
    def needs_lease(self) -> bool:
        return self.first is not None


class Watch(CommitMember, frozen=True):
    """Write the name of a process that waits for an open instance into the instance's row; rejected if it has ended.

    The commit that ends or blocks the instance wakes the process. After `wakeups.EVERY_CHANGE` the name is that of a
    process which is also woken by answers to updates and by state values.
    """

    number: InstanceNumber
    watcher: str

    @property
    def needs_lease(self) -> bool:
        return False


class Terminate(CommitMember, frozen=True):
    """End an open instance, whichever worker owns it (A9). Its state is the only guard."""

    id: InstanceId
    number: InstanceNumber | None = None
    """Which instance of the id; by default the newest."""
    reason: str = ""

    @property
    def needs_lease(self) -> bool:
        return False


class ClaimInstances(WorkerMember, frozen=True):
    """Claim instances that have something to do; each claim raises the fence (G1)."""

    workflows: tuple[str, ...]
    """Workflows of the owner. Of one without any pair in `versions`, a flow, every saved version is claimed (R8)."""
    limit: int
    versions: tuple[CodeVersion, ...] = ()
    """The versions of those that are written as code."""
    blocked: bool = False
    """Claim BLOCKED instances instead, to retry them (G12): those that `build` has not tried, or all if it is empty."""
    build: str = ""


class Release(WorkerMember, frozen=True):
    """Release an instance; it becomes claimable when it has something to do (G2)."""

    number: InstanceNumber
    fence: Fence


class Block(WorkerMember, frozen=True):
    """Block an instance whose turn cannot be taken by this build (G12)."""

    number: InstanceNumber
    fence: Fence
    reason: str
    build: str


class RetryBlocked(CommitMember, frozen=True):
    """Make a BLOCKED instance claimable again, whichever builds blocked it (G12). Its state is the only guard."""

    id: InstanceId
    number: InstanceNumber | None = None
    """Which instance of the id; by default the newest."""

    @property
    def needs_lease(self) -> bool:
        return False


class Pause(CommitMember, frozen=True):
    """Pause an instance that has not ended, whichever worker owns it (R20). Its state is the only guard."""

    id: InstanceId
    number: InstanceNumber | None = None
    """Which instance of the id; by default the newest."""
    reason: str = ""

    @property
    def needs_lease(self) -> bool:
        return False


class Resume(CommitMember, frozen=True):
    """Let a PAUSED instance continue (R22). Its state is the only guard."""

    id: InstanceId
    number: InstanceNumber | None = None
    """Which instance of the id; by default the newest."""
    extend_ms: int = 0
    """Move its deadline by so much (R25)."""
    fail: bool = False
    """Let the failures through of activities whose retries are used up, instead of trying them again (R27)."""

    @property
    def needs_lease(self) -> bool:
        return False


class SetAttributes(CommitMember, frozen=True):
    """Set and delete attributes for a client, and put the change into the inbox of an open instance (F10).

    For a store with the capability `SEARCH`. A repetition sets the same values again.
    """

    id: InstanceId
    changes: tuple[AttributeChange, ...]
    number: InstanceNumber | None = None
    """Which instance of the id; by default the newest."""

    @property
    def needs_lease(self) -> bool:
        return False


class SaveFlow(CommitMember, frozen=True):
    """Save the definition of a flow under its hash: instances stay on the version that they were started with."""

    hash: str
    name: str
    version: str
    definition: bytes
