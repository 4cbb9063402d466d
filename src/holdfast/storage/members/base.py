"""The bases of all members: in whose name a member acts, whether it needs a lease, and whether others are notified."""

from holdfast.core.leases import WorkerKey
from holdfast.storage.records import Record


class CommitMember(Record, frozen=True):
    """One guarded change of a group. It is applied as a whole or not at all."""

    @property
    def actor(self) -> WorkerKey | None:
        """The worker in whose name it acts, which has to be ACTIVE (W6, W7). None: a client, or maintenance (C1)."""
        return None

    @property
    def needs_lease(self) -> bool:
        """W7: whether a worker whose lease has ended by its own clock must not commit it. A client's need none."""
        return True

    @property
    def takes_long(self) -> bool:
        """Whether it changes so many rows that it is committed alone and beside other groups, which do not wait."""
        return False


class WorkerMember(CommitMember, frozen=True):
    """A change in the name of its owner."""

    owner: WorkerKey

    @property
    def actor(self) -> WorkerKey | None:
        return self.owner
