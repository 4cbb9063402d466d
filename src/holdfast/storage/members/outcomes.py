"""The outcomes of members."""

from typing import Final, NamedTuple

from holdfast.core.admission import EventVerdict
from holdfast.core.attributes import MOST_ATTRIBUTES, StoredAttribute
from holdfast.core.deadlines import DeadlineVerdict
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.pauses import PauseVerdict, ResumeVerdict
from holdfast.core.retention import FamilyDecision
from holdfast.storage.members.messages import QueryRow
from holdfast.storage.members.row_handling import HandledReport, HandledRequest
from holdfast.storage.records import (
    AttemptKey,
    AttemptRecord,
    InstanceId,
    InstanceNumber,
    InstanceRecord,
    OfferRecord,
    Record,
)


class ClaimedQueries(Record, frozen=True):
    """Queries that are now in the claimer's name."""

    queries: list[QueryRow]


class PendingQueries(Record, frozen=True):
    """Whether there are queries that no worker has claimed, and rows that have expired."""

    has_queries: bool
    has_expired: bool


class EndedInstance(NamedTuple):
    """An instance that ended because another one did."""

    id: InstanceId
    number: InstanceNumber
    workflow: str = ""
    state: InstanceState | None = None
    """Its final state; None if the store does not tell it."""


class Applied(Record, frozen=True):
    """The change is on disk."""

    changed: int = 1
    ended: tuple[EndedInstance, ...] = ()
    """Children that ended with it, without running code."""
    attempts_ended: tuple[AttemptRecord, ...] = ()
    """Attempts that ended with their worker (W6), as they are now."""


class Rejected(Record, frozen=True):
    """A guard did not hold; nothing was changed, except where the member says so."""

    reason: str
    stale: tuple[AttemptKey, ...] = ()
    """The completions of a rejected turn that were not applied, because their attempts had ended before."""


class Failed(Record, frozen=True, gc=True):
    """The database refused this member for a reason that no guard covers. It changed nothing."""

    error: Exception


class StartedInstance(Record, frozen=True):
    """The instance that has the id, new or not."""

    instance: InstanceRecord
    created: bool
    replaced: InstanceNumber | None = None
    """The open instance that was terminated for it, by the policy `terminate_existing`."""
    mail: "Delivered | None" = None
    """The outcome of the event or update that came with the start."""
    ended: tuple[EndedInstance, ...] = ()


class TerminatedInstance(Record, frozen=True):
    """The instance as it was found. An instance that was closed before is not changed."""

    instance: InstanceRecord
    was_open: bool
    ended: tuple[EndedInstance, ...] = ()


class RetriedInstance(Record, frozen=True):
    """The instance as it was found. An instance that was not BLOCKED is not changed."""

    instance: InstanceRecord

    @property
    def was_blocked(self) -> bool:
        return self.instance.state is InstanceState.BLOCKED


class PausedInstance(Record, frozen=True):
    """The verdict on a request to pause, and the instance as it was before."""

    instance: InstanceRecord
    verdict: PauseVerdict


class ResumedInstance(Record, frozen=True):
    """The verdict on a request to resume, and the instance as it was before."""

    instance: InstanceRecord
    verdict: ResumeVerdict
    has_ended: bool = False
    """Its deadline had passed before it began: it has FAILED (R25)."""
    ended: tuple[EndedInstance, ...] = ()
    queues: tuple[str, ...] = ()
    """The queues with attempts that are available again."""


class ChangedAttributes(Record, frozen=True):
    """The instance as it was found, with the attributes that it would have. More than are allowed change nothing."""

    instance: InstanceRecord
    attributes: dict[str, StoredAttribute]

    @property
    def was_changed(self) -> bool:
        return len(self.attributes) <= MOST_ATTRIBUTES


class ClaimedInstances(Record, frozen=True):
    """Instances that are now in the claimer's name."""

    instances: list[InstanceRecord]


class ClaimedAttempts(Record, frozen=True):
    """Attempts that are now RUNNING or PREPARING in the claimer's name."""

    attempts: list[AttemptRecord]


class CancelledActivity(Record, frozen=True):
    """The newest attempt of an activity that was cancelled from outside, and its state since then."""

    key: AttemptKey
    state: AttemptState


class QueuedAttempts(Record, frozen=True):
    """External attempts that are now QUEUED in the claimer's name, to be launched."""

    offers: list[OfferRecord]


class TargetInstance(Record, frozen=True):
    """The instance that an event is for: the columns that its delivery reads."""

    number: InstanceNumber
    state: InstanceState
    execution: int


class Delivered(Record, frozen=True):
    """The verdict on a message, and its instance as it was before."""

    instance: InstanceRecord | TargetInstance
    verdict: EventVerdict
    ended: tuple[EndedInstance, ...] = ()


class Expired(Record, frozen=True):
    """The verdict on a deadline that has passed, and the instance as it was before."""

    instance: InstanceRecord
    verdict: DeadlineVerdict
    ended: tuple[EndedInstance, ...] = ()


class HandledRows(Record, frozen=True):
    """The rows of the open contract that a member has handled; the others were handled before."""

    requests: tuple[HandledRequest, ...] = ()
    reports: tuple[HandledReport, ...] = ()
    offered: tuple[str, ...] = ()
    """The queues in which attempts were offered to executors."""
    wakes: bool = True
    """Whether an instance may have become claimable."""
    ended: tuple[EndedInstance, ...] = ()
    attempts_ended: tuple[AttemptRecord, ...] = ()
    """The attempt that the reports are about, as it is now, if they ended it."""


class RestoredInstances(Record, frozen=True):
    """The instances with a raised fence, and the external attempts with a new exec id."""

    fences: int
    external_attempts: int
    last: InstanceNumber | None
    """The last of a full batch; None after the last batch."""


class DeletedFamilies(Record, frozen=True):
    """The verdicts on the families that a member named, in its order."""

    decisions: tuple[FamilyDecision, ...]

    @property
    def instances(self) -> int:
        """The number of deleted instances."""
        return sum(decision.instances for decision in self.decisions)


class DeletedExecutions(Record, frozen=True):
    """The number of deleted executions of each continued instance, by its number; those without any are left out."""

    executions: dict[InstanceNumber, int]


Outcome = (
    Applied
    | Rejected
    | Failed
    | StartedInstance
    | TerminatedInstance
    | RetriedInstance
    | PausedInstance
    | ResumedInstance
    | ChangedAttributes
    | ClaimedInstances
    | ClaimedAttempts
    | QueuedAttempts
    | CancelledActivity
    | Delivered
    | Expired
    | ClaimedQueries
    | HandledRows
    | RestoredInstances
    | DeletedFamilies
    | DeletedExecutions
)

APPLIED: Final = Applied()


def applied_if_changed(count: int) -> Outcome:
    return Applied(changed=count) if count else Rejected(reason="the fence or the owner has moved on")
