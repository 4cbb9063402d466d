"""What a store must do: a few verbs around groups of guarded changes, and the records they carry.

`Store` is what every store implements. `OpenableStore` is what an engine uses besides; `StoreDefaults` has a default
for each part of that. The conformance kit (`holdfast.testing.conformance`) checks a store.

`Store.commit` writes a *group* of members. They are applied in order, and each is conditional on its own guard (owner,
fence, turn, state, digits), so that a stale member changes nothing and the others go on. A member that was applied is
on disk when the call returns. Each group has an id that is stored with it, so that an unknown outcome is settled by
asking `Store.was_committed`, never by applying twice. What holds for every member:

- A member in the name of a worker (`members.member.actor_of`) that is not ACTIVE is `Rejected` (W6, W7).
- A guard that does not hold is `Rejected`, and the member changes nothing. A `Turn` is the exception: of a rejected one
  the completions are applied as if they had come without it (G5). Its `entries` are not.
- A member that is wrong in itself (it opens an attempt that is there, it consumes a message that is not) is `Failed`.
  It changes nothing, and the other members of the group are applied.
- A group of an id that is stored is `Rejected` as a whole. The id is stored with the first member that is not `Failed`.
- All times are the store's own, in milliseconds, and the time is the same for all members of a group. A store's clock
  never goes back, for any process that opens the store (W9). A message is stamped when it enters an inbox (G10).
- An input above `payloads.limits.INLINE_LIMIT_BYTES` and a large payload of an event are stored once for an instance,
  under a reference, by the functions of `storage.large_payloads`. `ClaimAttempts` returns inputs in place; the reads
  return references.
- A message in an inbox makes its instance claimable, except for an event whose name is not in `Turn.waits`. With an
  empty name in `Turn.waits` an update does not make a released instance claimable: it is for the next execution (G4).

Records of old commits and of dead workers are kept for a limited time. Any worker removes them, a piece at a time (C1).
"""

import os
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, Protocol

from holdfast.core.leases import Heartbeat, HeartbeatReply, WorkerKey
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import StoreError
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome, PendingQueries
from holdfast.storage.members.workers import Registration
from holdfast.storage.records import (
    AttemptRecord,
    CommitId,
    DeadlineRecord,
    HistoryRow,
    InboxRow,
    InstanceId,
    InstanceNumber,
    InstanceRecord,
    LoadedInstance,
    OwnedRows,
    ParentAndChildren,
    QueueRow,
    UpdateRow,
    WorkerLoad,
    WorkerRow,
)


class Store(Protocol):
    """The only meeting point of workers and clients (C1)."""

    def now_ms(self) -> int:
        """The store's clock. It never goes back."""
        ...

    async def open(self) -> None:
        """Connect, check the schema and migrate it if it is older. `StoreError` for a store that was closed."""
        ...

    async def close(self) -> None:
        """Release all connections and files. A second call does nothing. Later calls of other methods raise
        `ClientClosed`."""
        ...

    async def commit(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        """Write a group; several calls may run at once. Outcomes are in the order of members."""
        ...

    async def was_committed(self, commit_id: CommitId) -> bool:
        """Whether a group is on disk: for a caller that does not know (a connection lost at commit)."""
        ...

    async def prune(self) -> bool:
        """Remove a piece of what nobody can need any more: ids of old commits, and keys long dead (C1, W5).

        Any number of workers may do it at once. Whether there may be more to look at.
        """
        ...

    async def find_instance(self, instance_id: InstanceId) -> InstanceRecord | None:
        """The instance that has an id: of several the newest (G3)."""
        ...

    async def read_instance(self, number: InstanceNumber) -> InstanceRecord | None:
        """The instance of a number, which is never given to another (G1)."""
        ...

    async def count_earlier(self, instance_id: InstanceId) -> int:
        """How many instances had an id before the one that has it now."""
        ...

    async def load(self, number: InstanceNumber, execution: int) -> LoadedInstance:
        """Everything about an instance that a turn needs."""
        ...

    async def read_history(self, number: InstanceNumber, execution: int) -> list[HistoryRow]:
        """The committed turns, in order."""
        ...

    async def read_set_aside(
        self, number: InstanceNumber, *, first: int, before: int, limit: int
    ) -> list[tuple[int, bytes]]:
        """The newest turns of executions `first` to `before` - 1 that set an event aside, oldest first (G6).

        Each is its execution and its encoded events. A turn whose payload has the name of that command may be among
        them.
        """
        ...

    async def read_attempts(self, number: InstanceNumber, execution: int) -> list[AttemptRecord]:
        """Every attempt of an execution."""
        ...

    async def read_payloads(
        self, number: InstanceNumber, references: Collection[str] | None = None
    ) -> dict[str, bytes]:
        """The large payloads of an instance, by reference: all of them, or those of the references that are there."""
        ...

    async def read_key(self, number: InstanceNumber) -> str | None:
        """The collation key of a flow; None for a workflow written as code, whose key is derived (K9)."""
        ...

    async def read_flow(self, digest: str) -> bytes | None:
        """The definition of a flow that was saved under this hash."""
        ...

    async def read_state_values(self, number: InstanceNumber) -> dict[str, bytes]:
        """The committed key-values of an instance; under the empty key its status."""
        ...

    async def peek_inbox(self, number: InstanceNumber, limit: int) -> list[InboxRow]:
        """The messages that wait for an instance, oldest first. A look: they stay where they are."""
        ...

    async def read_updates(self, number: InstanceNumber, limit: int) -> list[UpdateRow]:
        """The updates of an instance, by their ids."""
        ...

    async def read_update(self, number: InstanceNumber, update_id: str) -> UpdateRow | None:
        """What became of an update of an instance; None if nobody sent it, or it was rejected long ago."""
        ...

    async def read_latest(self, number: InstanceNumber) -> tuple[InstanceRecord, bytes | None] | None:
        """An instance with its status, and the events of its last turn, as of one moment."""
        ...

    async def pending_queries(self) -> PendingQueries:
        """Whether there is a question that nobody has taken, or a row that has outlived its time."""
        ...

    async def read_query_reply(self, query_id: str) -> bytes | None:
        """The answer to a question; None while there is none."""
        ...

    async def read_inbox_of(self, owner: WorkerKey, after_row: int) -> list[InboxRow]:
        """What waits for the instances that a worker holds, beyond a row it has seen, in the order of the rows.

        A row before that one is among them if it became visible later, and one that was given before may be again.
        """
        ...

    async def rows_owned_by(self, owner: WorkerKey) -> OwnedRows:
        """Every instance and every attempt that is not closed in a worker's name (W3)."""
        ...

    async def dead_owners(self) -> list[WorkerKey]:
        """Keys that are not ACTIVE, or not known, and still have something in their name (W8)."""
        ...

    async def expired_attempts(self, limit: int) -> list[AttemptRecord]:
        """Attempts whose nearest deadline has passed (A5)."""
        ...

    async def read_deadline(self, number: InstanceNumber) -> DeadlineRecord | None:
        """Until when an instance has to end, or had to; None: it may take as long as it takes."""
        ...

    async def expired_instances(self, limit: int) -> list[InstanceNumber]:
        """Open instances whose deadline has passed, or the grace that followed it."""
        ...

    async def next_due_ms(
        self, *, workflows: Sequence[str], queues: Sequence[str], names: Sequence[str], after_ms: int = -1
    ) -> int | None:
        """The next time after `after_ms` at which something becomes claimable, available or overdue by itself.

        Only instances of these workflows count, and attempts of these activities in these queues: what others have to
        do is no reason to look. The deadline of any attempt and of any instance counts.
        """
        ...

    async def has_blocked(self, workflows: Sequence[str], build: str) -> bool:
        """Whether an instance of these workflows is BLOCKED that this build has not tried yet (G12)."""
        ...

    async def list_instances(
        self,
        *,
        before: int,
        limit: int,
        state: InstanceState | None = None,
        workflow: str | None = None,
        parent: InstanceNumber | None = None,
    ) -> list[InstanceRecord]:
        """A page of instances, newest first, of numbers below `before`; with `parent` only its children."""
        ...

    async def read_relatives(self, number: InstanceNumber) -> ParentAndChildren:
        """The parent and the children of an instance."""
        ...

    async def open_closings(self, limit: int) -> list[tuple[InstanceNumber, int]]:
        """Executions that have ended, and whose children still have to learn it (C1)."""
        ...

    async def workers(self) -> list[WorkerRow]:
        """Every worker that is known."""
        ...

    async def worker_loads(self) -> list[WorkerLoad]:
        """How much is in the name of each worker that has anything."""
        ...

    async def queues(self) -> list[QueueRow]:
        """Every queue that has attempts which wait or run, by name."""
        ...

    def commit_apart(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        """Write a group from the worker's heartbeat thread, while its event loop does not run (W1). It may block."""
        ...

    def heartbeat(self, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
        """Judge and record one heartbeat (W1-W5). Called from the worker's own heartbeat thread; it may block.

        A store never sends a beat again that it may have taken: its sender would not know the token. It raises, and
        where that is all that went wrong it raises `ReplyLost`.
        """
        ...


class Notifier(Protocol):
    """Notifies other processes that use the store, and is notified by them."""

    def open(self) -> None:
        """Begin to listen. Called in the event loop of the client."""
        ...

    def close(self) -> None:
        """Listen no more."""
        ...

    def notify(self) -> None:
        """A group was committed that may have something for other processes."""
        ...


class OpenableStore(Store, Protocol):
    """What an engine or a client uses besides `Store`. A store may leave it out: see `StoreDefaults`."""

    @property
    def companion_path(self) -> Path:
        """Beside this path the processes of one machine leave what is for each other only."""
        ...

    @property
    def crash_marker_folder(self) -> Path:
        """A folder that workers of one machine share: in it they keep what they run, for when they are gone (G12)."""
        ...

    def make_notifier(self, name: str, heard: Callable[[], None]) -> Notifier:
        """Make the notifier of one client. It calls `heard`, in the event loop in which it was opened, when another
        one has notified."""
        ...

    async def check_files(self) -> None:
        """Raise `StoreReplaced` if a file of the store was removed or replaced. Commits check this by themselves."""
        ...

    def open_for_reading(self) -> None:
        """Open a store that is there, to look at it: nothing is created, migrated or changed."""
        ...


class NullNotifier:
    """The notifier of a store that cannot notify other processes: they poll, about once a second."""

    def open(self) -> None:
        """There is nothing to listen to."""

    def close(self) -> None:
        """Nothing was opened."""

    def notify(self) -> None:
        """Nobody is reached."""


class StoreDefaults:
    """The defaults of what a store may leave out. A store may derive from it; an engine uses it for one that does not.

    They fit a store whose data is not in files of this machine.
    """

    capabilities: frozenset[str] = frozenset()
    """The optional features that the store has, by the constants of this module (`RAW_TABLES`). A store leaves a name
    out that it does not know, so that one written for this release works with later ones."""

    @property
    def companion_path(self) -> Path:
        """A path that no other store object has. No file is made there."""
        return Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}-{id(self):x}"

    @property
    def crash_marker_folder(self) -> Path:
        """One folder for all stores of a user: the file in it has the key of a worker, which is unique."""
        return Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}-turns"

    def make_notifier(self, name: str, heard: Callable[[], None]) -> Notifier:
        """A notifier that reaches nobody."""
        del name, heard
        return NullNotifier()

    async def check_files(self) -> None:
        """There are no files."""

    def open_for_reading(self) -> None:
        """Only a store that commands open by its name can be opened so."""
        raise StoreError(f"{type(self).__name__} cannot be opened for reading only")


RAW_TABLES: Final = "raw_tables"
"""The capability of a store that has a method `open_tables()`, which gives its tables to `verify`."""

IN_MEMORY: Final = ":memory:"
"""The name of a store that lasts as long as its object and is shared with nobody."""
COMMITS_KEPT_MS: Final = 3_600_000
"""How long the ids of commits are kept for those who do not know whether theirs went through."""
TOMBSTONES_KEPT_MS: Final = 24 * 3_600_000
"""W5: how long the key of a dead worker is remembered, so that it is never revived."""
