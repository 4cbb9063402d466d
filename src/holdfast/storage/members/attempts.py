"""Members about attempts of activities."""

from holdfast.core.history import ActivityCompleted, ActivityFailed
from holdfast.core.leases import WorkerKey
from holdfast.core.lifecycle import AttemptState
from holdfast.storage.members.base import CommitMember, WorkerMember
from holdfast.storage.records import AttemptKey, AttemptRecord, InstanceNumber, NewAttempt, Record


class Transition(Record, frozen=True):
    """One guarded change of an attempt (A2): from the state, ledger and owner it expects to the next."""

    key: AttemptKey
    owner: WorkerKey | None
    from_state: AttemptState
    from_ledger: int
    to_state: AttemptState
    to_ledger: int
    failure: bytes | None = None


class Completion(CommitMember, frozen=True):
    """The end of an attempt and of its activity.

    Applied with a turn, its response enters and leaves leg 2 in one commit (`applied_ledger`). As a member of its own,
    it enters (`entered_ledger`) and the event is put into the inbox. Without an event nothing waits for the answer.
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
    """False if another worker ends the attempt: at its deadline, or because its owner was lost."""
    values: int | None = None
    """The number of values of the stream that it ends: it is applied behind them, and waits in the inbox with them
    (L15)."""
    attempt: AttemptRecord | None = None
    """The attempt as it was, for metrics. A store does not read it."""

    @property
    def actor(self) -> WorkerKey | None:
        return self.owner if self.by_owner else None


class OpenNextAttempt(CommitMember, frozen=True):
    """An attempt failed, timed out or was lost, and the next one opens in the same commit (G13)."""

    ended: Transition
    next: NewAttempt
    by_owner: bool = True
    exhausted: str | None = None
    """The retries are used up, and the instance is paused for this reason (R26): a person decides whether the next
    attempt, which has a fresh budget, runs."""
    attempt: AttemptRecord | None = None
    """As in `Completion`."""

    @property
    def actor(self) -> WorkerKey | None:
        return self.ended.owner if self.by_owner else None


class CancelActivity(CommitMember, frozen=True):
    """Cancel one activity of an open execution from outside of its workflow, which gets the answer (A1)."""

    number: InstanceNumber
    execution: int
    activity: int
    dimension: str = ""

    @property
    def needs_lease(self) -> bool:
        return False


class ClaimAttempts(WorkerMember, frozen=True):
    """Claim READY attempts of these activities in these queues; they are RUNNING from then on, or PREPARING if their
    options say so."""

    queues: tuple[str, ...]
    names: tuple[str, ...]
    limit: int


class RunPrepared(WorkerMember, frozen=True):
    """The preparation of an attempt has ended: PREPARING -> RUNNING, before its body begins (L3)."""

    key: AttemptKey
    from_ledger: int
    expires_at_ms: int | None


class HeartbeatAttempt(WorkerMember, frozen=True):
    """The heartbeat of a running body (A6)."""

    key: AttemptKey
    details: bytes | None
    expires_at_ms: int | None
