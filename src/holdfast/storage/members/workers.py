"""Members about workers: lost workers and unknown rows. Also the registration of a worker."""

from holdfast.core.leases import WorkerKey
from holdfast.errors import StoreError
from holdfast.storage.members.base import CommitMember, WorkerMember
from holdfast.storage.records import InstanceNumber, OwnedAttempt, OwnedInstance, Record


class MarkWorkerLost(CommitMember, frozen=True):
    """Make a lost worker INACTIVE, and release a batch of its instances and attempts (W6)."""

    key: WorkerKey
    at_deadline: bool
    limit: int
    is_clean: bool = False
    """A worker that stops cleanly (W10) releases its attempts, and no loss is counted (A10)."""
    culprit: InstanceNumber | None = None
    """The instance whose code the worker was running when it was lost: counted if the worker owns it (G12)."""
    unexplained: bool = False
    """It is not known which code it was running: the loss is counted for each of its instances (G12)."""
    instances_only: bool = False
    """W1: its event loop is blocked. It stays ACTIVE and keeps its attempts; only its instances are released."""


class ReleaseUnknown(WorkerMember, frozen=True):
    """Release rows in the name of a worker that it does not hold, because the reply to a commit was lost (W3).

    A row that has changed since it was read (another claim, another state) is not touched. Attempts are ended as those
    of a lost worker (W6), instances become claimable as if released.
    """

    attempts: tuple[OwnedAttempt, ...] = ()
    instances: tuple[OwnedInstance, ...] = ()


class Registration(Record, frozen=True):
    """The data that a worker registers with."""

    host: bytes
    queues: str
    """The names of the queues that it serves, as a JSON list."""
    build: str
    slots: int = 0
    """The number of bodies that it runs at once."""
    workflows: str | None = None
    """The names of its workflows and flows, as a JSON list."""
    activities: str | None = None
    abandoned: int = 0
    """The number of abandoned bodies that still run. Each heartbeat updates it."""
    versions: str | None = None
    """The versions of its workflows that are written as code, as a JSON object."""


class ReplyLost(StoreError):
    """The reply to a heartbeat was lost: the reply to the next one settles whether it was recorded (W4, W9)."""
