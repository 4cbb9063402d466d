"""Members that make a store fit for use after a backup was restored (R2).

A restored store has an earlier state, and programs of the time after the backup, which is lost, may still run. These
members give new values to everything by which the store knows such programs. `client.restoring` commits them in order:
worker keys first (`MarkWorkerLost`), then the counter, then the instances in batches.
"""

from typing import Final

from holdfast.storage.members.base import CommitMember
from holdfast.storage.records import InstanceNumber

NUMBERS_LIFTED: Final = 2**32
"""By how much a restore lifts the counter of instance numbers and each fence: more than the lost time can have used,
and 2**21 restores stay below 2**53, so that the numbers are exact in JSON."""


class LiftNumbers(CommitMember, frozen=True):
    """Lift the counter of instance numbers, so that numbers which the lost time gave do not return (R2, G1).

    Rejected while a worker is ACTIVE, unless it is forced.
    """

    is_forced: bool = False

    @property
    def needs_lease(self) -> bool:
        return False


class RestoreInstances(CommitMember, frozen=True):
    """Raise the fences of the next `limit` open instances behind a number, and give new exec ids to the open external
    attempts up to the last of these instances (R2). Rejected as `LiftNumbers`.

    - An attempt that no worker has handled all reports of, and a READY one, keeps its state; its offer and its reports
      have a new exec id.
    - Every other external attempt ends as that of a lost worker (W6), and no loss is counted (A10).
    """

    after: InstanceNumber
    limit: int
    is_forced: bool = False

    @property
    def needs_lease(self) -> bool:
        return False
