"""Members that delete what is kept no longer (R30-R34). Their guards are the states of the rows, in one transaction."""

from holdfast.storage.members.base import CommitMember
from holdfast.storage.records import InstanceNumber

FAMILY_SLICE = 500
"""Instances that one member deletes. Only a family with more is larger, because it is deleted as a whole."""
EXECUTION_SLICE = 50
"""Continued instances whose executions one member deletes."""


class Deletion(CommitMember, frozen=True):
    """A deletion needs no lease: any process may make it, and several at once do no harm (C1)."""

    @property
    def needs_lease(self) -> bool:
        return False

    @property
    def takes_long(self) -> bool:
        return True


class DeleteFamilies(Deletion, frozen=True):
    """Delete every row of the families of these roots, each as `core.retention.decide_families` decides (R31, R32)."""

    roots: tuple[InstanceNumber, ...]
    ended_by_ms: int | None = None
    """The latest allowed end of a member; None: any."""
    limit: int = FAMILY_SLICE


class DeleteExecutions(Deletion, frozen=True):
    """Delete the executions of open instances that ended by continue-as-new, with what only they refer to (R34)."""

    numbers: tuple[InstanceNumber, ...]
    ended_by_ms: int
