"""Members about the deadlines of instances."""

from holdfast.core.admission import IdPolicy
from holdfast.core.deadlines import Deadline
from holdfast.core.leases import WorkerKey
from holdfast.storage.members.base import CommitMember, WorkerMember
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.turns import Turn
from holdfast.storage.records import Fence, InstanceId, InstanceNumber, LargePayload


class CloseChildren(CommitMember, frozen=True):
    """Go on with the children of an execution that has ended: a batch of what its own commit left to others (C1)."""

    number: InstanceNumber
    execution: int
    limit: int


class SetDeadline(WorkerMember, frozen=True):
    """Whoever is about to run an instance for the first time says what its code says, unless its start said it."""

    number: InstanceNumber
    deadline: Deadline


class Expire(CommitMember, frozen=True):
    """The deadline of an instance, or the grace after it, has passed (C1): in nobody's name, guarded by the time."""

    number: InstanceNumber


class Start(CommitMember, frozen=True):
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

    @property
    def actor(self) -> WorkerKey | None:
        return None if self.first is None else self.first.owner

    @property
    def notifies(self) -> bool:
        ends_another = self.policy is IdPolicy.TERMINATE_EXISTING
        return self.first is None or ends_another or self.first.notifies


class Terminate(CommitMember, frozen=True):
    """End an open instance from outside, whoever owns it (A9): a client's member, with no guard but its state."""

    id: InstanceId
    number: InstanceNumber | None = None
    """Which instance of the id; the newest if it is not said."""
    reason: str = ""


class ClaimInstances(WorkerMember, frozen=True):
    """Take instances that have something to do; each claim raises the fence (G1)."""

    workflows: tuple[str, ...]
    limit: int
    blocked: bool = False
    """Take BLOCKED ones instead, and try them again (G12): those that `build` has not tried, or all if it is empty."""
    build: str = ""

    @property
    def notifies(self) -> bool:
        return False


class Release(WorkerMember, frozen=True):
    """Let go of an instance; it becomes claimable when it has something to do (G2)."""

    number: InstanceNumber
    fence: Fence


class Block(WorkerMember, frozen=True):
    """Park an instance whose turn cannot be taken by this build (G12)."""

    number: InstanceNumber
    fence: Fence
    reason: str
    build: str


class SaveFlow(CommitMember, frozen=True):
    """Keep a flow as it is now, under its hash: instances stay on the version that they were started with."""

    hash: str
    name: str
    version: str
    definition: bytes
