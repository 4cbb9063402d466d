"""New module."""

from holdfast.core.leases import WorkerKey
from holdfast.errors import StoreError
from holdfast.storage.members.base import CommitMember, WorkerMember
from holdfast.storage.records import InstanceNumber, OwnedAttempt, OwnedInstance, Record


class MarkWorkerLost(CommitMember, frozen=True):
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


class ReleaseUnknown(WorkerMember, frozen=True):
    """A worker lets go of what is in its name and what it does not know (W3): the reply to a commit was lost.

    What is no longer as it was seen (another claim, another state) is left alone. Attempts go the way of a lost
    worker's (W6), instances become claimable as if released.
    """

    attempts: tuple[OwnedAttempt, ...] = ()
    instances: tuple[OwnedInstance, ...] = ()


class Registration(Record, frozen=True):
    """What a worker says about itself when it registers."""

    host: bytes
    queues: str
    """The names of the queues that it serves, as a JSON list."""
    build: str
    slots: int = 0
    """How many bodies it runs at once."""
    workflows: str | None = None
    """The names of the workflows and flows that it has, as a JSON list."""
    activities: str | None = None
    abandoned: int = 0
    """How many bodies it has abandoned that still run. Each heartbeat brings the number of that moment."""


class ReplyLost(StoreError):
    """A heartbeat was sent, and nobody knows whether the store took it: the next one tells (W4, W9)."""
