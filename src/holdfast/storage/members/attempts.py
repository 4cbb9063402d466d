"""New module."""

from holdfast.core.history import ActivityCompleted, ActivityFailed
from holdfast.core.leases import WorkerKey
from holdfast.core.lifecycle import AttemptState
from holdfast.storage.records import AttemptKey, NewAttempt, Record


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


class OpenNextAttempt(Record, frozen=True):
    """An attempt failed, timed out or was lost, and the next one opens in the same commit (G13)."""

    ended: Transition
    next: NewAttempt
    by_owner: bool = True


class ClaimAttempts(Record, frozen=True):
    """Take READY attempts of these queues, and run them at once."""

    owner: WorkerKey
    queues: tuple[str, ...]
    names: tuple[str, ...]
    limit: int


class HeartbeatAttempt(Record, frozen=True):
    """A running body says that it lives (A6)."""

    key: AttemptKey
    owner: WorkerKey
    details: bytes | None
    expires_at_ms: int | None
