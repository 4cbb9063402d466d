"""The contract of a store: commits of groups of guarded changes, reads, and heartbeats.

Every store implements `Store`. An engine also uses the parts of `OpenableStore`; `StoreDefaults` has a default for each
of them. The conformance kit (`holdfast.testing.conformance`) checks a store.

`Store.commit` writes a *group* of members. They are applied in order, and each is conditional on its own guard (owner,
fence, turn, state, digits), so that a stale member changes nothing and the others are applied. A member that was
applied is on disk when the call returns. Each group has an id that is stored with it, so that an unknown outcome is
settled by `Store.was_committed`, never by applying twice. These rules hold for every member:

- A member in the name of a worker (`CommitMember.actor`) that is not ACTIVE is `Rejected` (W6, W7).
- A member whose guard does not hold is `Rejected` and changes nothing. A `Turn` is the exception: the completions of a
  rejected turn are applied as if they had come without it (G5). Its `effects.stream_values` are not.
- A member that is wrong in itself (it opens an attempt that exists, it consumes a message that does not) is `Failed`.
  It changes nothing, and the other members of the group are applied.
- A group whose id is stored is `Rejected` as a whole. The id is stored with the first member that is not `Failed`.
- All times are the store's own, in milliseconds, and the time is the same for all members of a group. A store's clock
  never goes back, for any process that opens the store (W9). A message is stamped when it enters an inbox (G10).
- An input above `payloads.limits.INLINE_LIMIT_BYTES` and a large payload of an event are stored once for an instance,
  under a reference, by the functions of `storage.large_payloads`. `ClaimAttempts` returns inputs in place; the reads
  return references.
- A message in an inbox makes its instance claimable, except for an event whose name is not in `TurnEffects.waits`. With
  an empty name in `waits` an update does not make a released instance claimable: it is for the next execution (G4).

Ids of old commits and keys of dead workers are kept for a limited time. Any worker deletes them in batches (C1).
"""

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from holdfast.core.attributes import StoredAttribute
from holdfast.core.leases import Heartbeat, HeartbeatReply, WorkerKey
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import StoreError, UsageError
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome, PendingQueries
from holdfast.storage.members.workers import Registration
from holdfast.storage.records import (
    AttemptKey,
    AttemptRecord,
    BlockedInstance,
    CommitId,
    DeadlineRecord,
    HistoryRow,
    InboxRow,
    InstanceId,
    InstanceNumber,
    InstanceRecord,
    LoadedInstance,
    NextDue,
    NoteRow,
    OfferRecord,
    OpenCount,
    OwnedRows,
    ParentAndChildren,
    QueueRow,
    ReportAnswer,
    ReportRow,
    RequestRecord,
    RequestRow,
    RestoreCounts,
    RowPage,
    UpdateRow,
    VersionCount,
    WorkerLoad,
    WorkerRow,
)
from holdfast.storage.versions import CodeVersion
from holdfast.storage.wakeups import Heard, Notify, Wakeups, ignore_wakeups

if TYPE_CHECKING:  # imported by the first search
    from holdfast.core.filters import Filter
    from holdfast.core.retention import FamilyMember
    from holdfast.storage.search import FoundInstance, SearchQuery


class Store(Protocol):
    """The only place that workers and clients share (C1)."""

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

    async def commit(
        self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
    ) -> list[Outcome]:
        """Write a group; several calls may run at once. Outcomes are in the order of members.

        When the group is on disk, `notify` is called with its wake-ups, in the event loop of the caller: the workers
        that can claim what it made claimable, the owners of instances with new messages, and the processes that wait
        for an instance which it ended (`storage.wakeups`). A store that cannot tell wakes all processes for everything.
        `notify` is not called for a group that raises.
        """
        ...

    async def was_committed(self, commit_id: CommitId) -> bool:
        """Whether a group is on disk: for a caller that lost its connection at the commit."""
        ...

    async def prune(self) -> bool:
        """Delete a batch of old commit ids, of keys that are long dead, and of rows of clients that are kept no longer
        (C1, C11, W5). Returns whether there may be more.

        Any number of workers may call it concurrently.
        """
        ...

    async def find_instance(self, instance_id: InstanceId) -> InstanceRecord | None:
        """The newest instance of an id (G3)."""
        ...

    async def read_instance(self, number: InstanceNumber) -> InstanceRecord | None:
        """The instance of a number. Numbers are never reused (G1)."""
        ...

    async def read_instances(self, numbers: Collection[InstanceNumber]) -> list[InstanceRecord]:
        """The instances of these numbers, in any order. Unknown numbers are left out."""
        ...

    async def count_earlier(self, instance_id: InstanceId) -> int:
        """The number of earlier instances of an id."""
        ...

    async def load(self, number: InstanceNumber, execution: int) -> LoadedInstance:
        """Everything that a turn of an instance needs."""
        ...

    async def load_many(self, executions: Sequence[tuple[InstanceNumber, int]]) -> list[LoadedInstance]:
        """The same for several instances, in their order. Over a network it takes as long as for one."""
        ...

    async def read_history(self, number: InstanceNumber, execution: int) -> list[HistoryRow]:
        """The committed turns, in order."""
        ...

    async def read_set_aside(
        self, number: InstanceNumber, *, first: int, before: int, limit: int
    ) -> list[tuple[int, bytes]]:
        """The newest turns of executions `first` to `before` - 1 that set an event aside, oldest first (G6).

        Each is its execution and its encoded events. The search is for the tag of the event, so a turn with the tag in
        a payload may be among them.
        """
        ...

    async def read_attempts(self, number: InstanceNumber, execution: int) -> list[AttemptRecord]:
        """Every attempt of an execution."""
        ...

    async def read_payloads(
        self, number: InstanceNumber, references: Collection[str] | None = None
    ) -> dict[str, bytes]:
        """The large payloads of an instance by reference: all, or those of `references` that are stored."""
        ...

    async def read_key(self, number: InstanceNumber) -> str | None:
        """The collation key of a flow; None for a workflow written as code, whose key is derived (K9)."""
        ...

    async def read_flow(self, digest: str) -> bytes | None:
        """The definition of a flow that was saved under this hash."""
        ...

    async def read_state_values(self, number: InstanceNumber) -> dict[str, bytes]:
        """The committed state values of an instance; the empty key is its status."""
        ...

    async def peek_inbox(self, number: InstanceNumber, limit: int) -> list[InboxRow]:
        """The messages in the inbox of an instance, oldest first."""
        ...

    async def read_updates(self, number: InstanceNumber, limit: int) -> list[UpdateRow]:
        """The updates of an instance, by their ids."""
        ...

    async def read_update(self, number: InstanceNumber, update_id: str) -> UpdateRow | None:
        """An update of an instance; None if it is unknown, or its rejection has expired."""
        ...

    async def read_latest(self, number: InstanceNumber) -> tuple[InstanceRecord, bytes | None] | None:
        """An instance with its status, and the events of its last turn, in one snapshot."""
        ...

    async def pending_queries(self) -> PendingQueries:
        """Whether there are queries that no worker has claimed, or rows that have expired."""
        ...

    async def read_query_reply(self, query_id: str) -> bytes | None:
        """The answer to a query; None while there is none."""
        ...

    async def read_inbox_of(self, owner: WorkerKey, after_row: int) -> list[InboxRow]:
        """The messages for the instances of a worker behind the row `after_row`, in the order of the rows.

        Rows before `after_row` that became visible later are returned, too. A row may be returned twice.
        """
        ...

    async def rows_owned_by(self, owner: WorkerKey) -> OwnedRows:
        """Every open instance and every open attempt of a worker (W3)."""
        ...

    async def dead_owners(self) -> list[WorkerKey]:
        """Keys of workers that are not ACTIVE, or unknown, and that still own rows (W8)."""
        ...

    async def expired_attempts(self, limit: int) -> list[AttemptRecord]:
        """Attempts whose nearest deadline has passed (A5)."""
        ...

    async def read_deadline(self, number: InstanceNumber) -> DeadlineRecord | None:
        """The deadline of an instance; None if it has none."""
        ...

    async def expired_instances(self, limit: int) -> list[InstanceNumber]:
        """Open instances whose deadline has passed, or the grace that followed it."""
        ...

    async def next_due(
        self,
        *,
        workflows: Sequence[str],
        queues: Sequence[str],
        names: Sequence[str],
        versions: Sequence[CodeVersion] = (),
        after_ms: int = -1,
    ) -> NextDue:
        """The next times after `after_ms` at which something becomes claimable, available or overdue by itself.

        Only instances that the worker may run count (`ClaimInstances` has `workflows` and `versions`), and attempts of
        these activities in these queues: this worker polls for no others. The deadline of any attempt and of any
        instance counts.
        """
        ...

    async def has_blocked(self, workflows: Sequence[str], build: str, versions: Sequence[CodeVersion] = ()) -> bool:
        """Whether there is a BLOCKED instance that the worker may run and that this build has not tried (G12)."""
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
        """Executions that have ended and whose children are still to be closed (C1)."""
        ...

    async def workers(self) -> list[WorkerRow]:
        """All workers, also those that are not ACTIVE."""
        ...

    async def worker_loads(self) -> list[WorkerLoad]:
        """The number of open rows of each worker that has any."""
        ...

    async def queues(self) -> list[QueueRow]:
        """Every queue with open attempts, by name."""
        ...

    def commit_apart(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        """Write a group from the worker's heartbeat thread, while its event loop is blocked (W1). It may block."""
        ...

    def heartbeat(self, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
        """Judge and record one heartbeat (W1-W5). Called from the worker's own heartbeat thread; it may block.

        A store never repeats a heartbeat that may have been recorded: the worker would not know its token. It raises
        `ReplyLost` if only the reply was lost.
        """
        ...


class Notifier(Protocol):
    """Notifies other processes that use the store, and is notified by them."""

    def open(self) -> None:
        """Start to listen. Called in the event loop of the client."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...

    def notify(self, wakeups: Wakeups) -> None:
        """Wake other processes: a group was committed that concerns them. It does not wait."""
        ...


class RowNotifier(Notifier, Protocol):
    """The notifier of a store whose tables clients of the open contract write to (C2-C4).

    A notifier without these methods is a valid one: its process polls for rows, and notifies no client.
    """

    def watch_rows(self, inserted: Callable[[str | None], None] | None) -> None:
        """Call `inserted`, in the event loop, when a client has inserted rows; None ends this.

        The argument is `requests:` and the name of a workflow, `activity_events:` and the name of an activity, or None
        for rows of unknown names. Only a process with a worker watches. A call may come without a new row, and a lost
        notification is not repeated: the worker polls as well, less often.
        """
        ...

    def rows_handled(self, table: str, ids: Sequence[str]) -> None:
        """Notify clients that rows of `requests` or `activity_events` were handled. Called after the commit; it does
        not wait."""
        ...

    def offered(self, queues: Collection[str]) -> None:
        """Notify clients that external attempts of these queues became READY. Called after the commit; it does not
        wait."""
        ...


class OpenableStore(Store, Protocol):
    """The parts that an engine or a client uses besides `Store`. They are optional: see `StoreDefaults`."""

    @property
    def companion_path(self) -> Path:
        """The prefix of the files that processes of one machine share beside the store."""
        ...

    @property
    def crash_marker_folder(self) -> Path:
        """The folder in which workers of one machine write which instance they run, to be read after a crash (G12)."""
        ...

    def make_notifier(self, name: str, heard: Heard) -> Notifier:
        """Make the notifier of one client, under whose name other processes wake it. It calls `heard`, in the event
        loop in which it was opened, with the wake-ups of other processes."""
        ...

    async def check_files(self) -> None:
        """Raise `StoreReplaced` if a file of the store was removed or replaced. Commits check this by themselves."""
        ...

    def open_for_reading(self) -> None:
        """Open an existing store for reads only: nothing is created, migrated or changed."""
        ...


class NullNotifier:
    """The notifier of a store that cannot notify other processes: they poll, about once a second."""

    def open(self) -> None:
        """Nothing is opened."""

    def close(self) -> None:
        """Nothing was opened."""

    def notify(self, wakeups: Wakeups) -> None:
        """No process is notified."""

    def watch_rows(self, inserted: Callable[[str | None], None] | None) -> None:
        """Nothing is watched."""

    def rows_handled(self, table: str, ids: Sequence[str]) -> None:
        """No client is notified."""

    def offered(self, queues: Collection[str]) -> None:
        """No client is notified."""


def _temporary_folder() -> Path:
    import tempfile  # noqa: PLC0415 - slow to import, and a SQLite file does not need it

    return Path(tempfile.gettempdir())


class StoreDefaults:
    """The defaults of the optional parts. A store may derive from it; an engine adds it to a store that does not.

    They fit a store whose data is not in files of this machine.
    """

    capabilities: frozenset[str] = frozenset()
    """The optional features of the store, by the constants of this module (`RAW_TABLES`). A store that was written for
    this release has no names of later ones, and continues to work with them."""

    @property
    def companion_path(self) -> Path:
        """A path that no other store object has. No file is made there."""
        return _temporary_folder() / f"holdfast-{os.getuid()}-{id(self):x}"

    @property
    def crash_marker_folder(self) -> Path:
        """One folder for all stores of a user: the file in it has the key of a worker, which is unique."""
        return _temporary_folder() / f"holdfast-{os.getuid()}-turns"

    def make_notifier(self, name: str, heard: Heard) -> Notifier:
        """A notifier that notifies no process."""
        del name, heard
        return NullNotifier()

    async def check_files(self) -> None:
        """There are no files."""

    def open_for_reading(self) -> None:
        """Only stores that commands open by path or URL support it."""
        raise StoreError(f"{type(self).__name__} cannot be opened for reading only")


RAW_TABLES: Final = "raw_tables"
"""The capability of a store with a method `open_tables()`, which returns its tables for `verify`."""

CLAIMS_APART: Final = "claims_apart"
"""The capability of a store that writes claims in another way than turns, so that a claim would slow down its whole
group. The engine gives it groups with claims only, and groups without claims."""

OPEN_CONTRACT: Final = "open_contract"
"""The capability of a store with the tables of the open contract (C2-C4): it implements `OpenContractStore` and applies
the members of `members.contract_rows`."""


SEARCH: Final = "search"
"""The capability of a store that has attributes and searches by filters (F): it implements `SearchStore`, and writes
the attributes of `Start` and `TurnEffects`, and `InstanceEnd.error`. Any other store ignores them."""


class SearchStore(OpenableStore, Protocol):
    """A store with the capability `SEARCH`. A search sees every group that was acknowledged before it began (F6)."""

    async def search(self, query: "SearchQuery") -> "list[FoundInstance]":
        """A page of instances. `FilterTooBroad` and `SearchTimedOut` bound what it reads (F8, F9)."""
        ...

    async def count_found(self, found: "Filter | None", limit: int) -> int:
        """How many instances match a filter without relative times, up to `limit`."""
        ...

    async def read_attributes(self, number: InstanceNumber) -> dict[str, StoredAttribute]:
        """The committed attributes of an instance, by name."""
        ...

    async def read_secret(self, name: str) -> bytes:
        """A key of this store; `cursors` is the one that signs cursors (F7)."""
        ...


def searchable(store: Store) -> SearchStore | None:
    """The store itself, if it has attributes and searches by filters."""
    return cast("SearchStore", store) if SEARCH in getattr(store, "capabilities", ()) else None


PAUSE: Final = "pause"
"""The capability of a store that pauses instances (R20): it applies `Pause` and `Resume`, and pauses an instance by an
`OpenNextAttempt` whose retries are used up."""
RESTORE: Final = "restore"
"""The capability of a store that can be made fit for use after a backup was restored (R2): it implements
`RestorableStore` and applies the members of `members.restoring`."""


class RestorableStore(OpenableStore, Protocol):
    """A store with the capability `RESTORE`."""

    async def running_attempts(self, *, after: AttemptKey | None, limit: int) -> list[AttemptRecord]:
        """The next `limit` attempts that are RUNNING or CANCELLED_RUNNING behind a key, in the order of their keys.

        They have the ids and the workflows of their instances.
        """
        ...

    async def count_restored(self) -> RestoreCounts:
        """The rows that the members of a restore change."""
        ...


RETENTION: Final = "retention"
"""The capability of a store that can delete instances (R30-R36): it implements `RetentionStore` and applies the members
of `members.retention`. It has the capability `SEARCH`, too."""


class RetentionStore(SearchStore, Protocol):
    """A store with the capability `RETENTION`."""

    async def read_families(self, roots: Sequence[InstanceNumber]) -> "list[FamilyMember]":
        """The members of families, in the order of their numbers. Roots that do not exist have none."""
        ...

    async def continued_instances(self, *, after: InstanceNumber, limit: int) -> list[tuple[InstanceNumber, str]]:
        """Open instances behind a number that have executions before the current one, each with its workflow."""
        ...

    async def has_closed(self, count: int) -> bool:
        """Whether at least so many instances have ended. Cheap for a store with few instances."""
        ...

    async def size_bytes(self) -> int:
        """How much of the disk the store takes, about."""
        ...

    async def give_back(self, limit_bytes: int) -> int:
        """Return a piece of the space of deleted rows to the file system, without delaying commits for long. Returns
        the bytes; 0 if there is none, or if the store only uses the space again."""
        ...


def deletable(store: Store) -> RetentionStore | None:
    """The store itself, if it can delete instances."""
    return cast("RetentionStore", store) if RETENTION in getattr(store, "capabilities", ()) else None


COUNTS: Final = "counts"
"""The capability of a store that counts its open instances for metrics: it implements `CountingStore`."""


class CountingStore(OpenableStore, Protocol):
    """A store with the capability `COUNTS`."""

    async def count_open(self, limit: int) -> list[OpenCount]:
        """The open instances by workflow and state, at most `limit` pairs, the largest numbers first."""
        ...

    async def count_versions(self, limit: int) -> list[VersionCount]:
        """The open instances by workflow, version and owner, at most `limit` rows, the largest numbers first."""
        ...

    async def count_blocked_by(self, limit: int) -> dict[str, int]:
        """The number of BLOCKED instances that each build has blocked (G12), of at most `limit` builds."""
        ...


def counting(store: Store) -> CountingStore:
    """The store itself, if it counts its open instances; else a `UsageError`."""
    if COUNTS not in getattr(store, "capabilities", ()):
        raise UsageError(f"{type(store).__name__} does not count its open instances")
    return cast("CountingStore", store)


CODE_CHECKS: Final = "code_checks"
"""The capability of a store whose open instances are listed for checks of code: it implements `CheckableStore`."""


class CheckableStore(OpenableStore, Protocol):
    """A store with the capability `CODE_CHECKS`."""

    async def open_numbers(self, *, after: int, limit: int) -> list[InstanceNumber]:
        """The next `limit` open instances behind a number, in the order of their numbers (R16)."""
        ...

    async def blocked_instances(self, *, after: int, limit: int) -> list[BlockedInstance]:
        """The next `limit` BLOCKED instances behind a number, in the order of their numbers (R17)."""
        ...


class OpenContractStore(OpenableStore, Protocol):
    """A store with the capability `OPEN_CONTRACT`: programs without this library take part by inserting rows.

    A text of a client that is too long, or not UTF-8, is never read as a whole: the row has a `fault`.
    """

    async def has_new_rows(self) -> bool:
        """Whether there are NEW requests or reports, of any name: a cheap read for polls."""
        ...

    async def new_requests(
        self, workflows: Sequence[str], *, limit: int, largest: int, after: int = 0
    ) -> RowPage[RequestRow]:
        """The next `limit` NEW requests behind a row: starts of these workflows, and all that need no workflow.

        An event or a cancel of an instance that does not exist is left to others while an earlier request, which this
        worker cannot handle, is to start it. An input above `largest` bytes is not read. A page ends early when its
        inputs are large, so that memory and the time of one page are bounded. Requests that are left to others are
        counted.
        """
        ...

    async def new_reports(
        self, names: Sequence[str], *, limit: int, largest: int, after: int = 0
    ) -> RowPage[ReportRow]:
        """The next `limit` NEW reports behind a row: about attempts of these activities, and about unknown exec ids.

        WAITING rows of the same attempts are returned, too. A page ends early when its values are large. Reports about
        other activities are counted.
        """
        ...

    async def reports_of(self, exec_id: str, *, limit: int, largest: int) -> list[ReportRow]:
        """The NEW and WAITING reports of one offer, oldest first.

        Of large values, those of NEW rows are read before those of WAITING rows; the rest is unread.
        """
        ...

    async def current_offer(self, key: AttemptKey) -> str | None:
        """The exec id under which an external attempt is offered or held."""
        ...

    async def has_new_report(self, exec_id: str) -> bool:
        """Whether an offer has NEW reports."""
        ...

    async def stranded_offers(self, limit: int) -> list[str]:
        """Exec ids with rows that wait although the attempt has ended or was released."""
        ...

    async def read_request(self, request_id: str) -> RequestRecord | None:
        """A request."""
        ...

    async def list_requests(self, *, before: int, limit: int, state: str | None = None) -> list[RequestRecord]:
        """A page of requests, newest first, of rows below `before`. Of long texts the beginning is read."""
        ...

    async def count_new_requests(self) -> dict[str, int]:
        """The number of NEW starts of each workflow that has any, by name."""
        ...

    async def read_report(self, event_id: str) -> ReportAnswer | None:
        """The answer to a report."""
        ...

    async def read_offer(self, exec_id: str) -> OfferRecord | None:
        """An offer with its attempt, whether it is current or not."""
        ...

    async def open_activities(
        self, *, limit: int, queues: Sequence[str] | None = None, names: Sequence[str] | None = None
    ) -> list[OfferRecord]:
        """The current offers of READY attempts that are available now, oldest first; None: of all queues or names."""
        ...

    async def count_open_activities(self) -> dict[str, int]:
        """The number of `open_activities` in each queue that has any."""
        ...

    async def read_notes(self, number: InstanceNumber, execution: int, *, limit: int) -> list[NoteRow]:
        """The newest notes about the attempts of an execution (A7), oldest first."""
        ...

    async def newest_flow(self, name: str) -> bytes | None:
        """The definition of a flow that was saved last under this name."""
        ...


def open_contract_tables(store: Store) -> OpenContractStore | None:
    """The store itself, if it has the tables of the open contract (C2-C4)."""
    is_there = OPEN_CONTRACT in getattr(store, "capabilities", ())
    return cast("OpenContractStore", store) if is_there else None


IN_MEMORY: Final = ":memory:"
"""The name of a store that lasts as long as its object and is not shared."""
COMMITS_KEPT_MS: Final = 3_600_000
"""How long commit ids are kept, for callers that have to settle an unknown outcome."""
TOMBSTONES_KEPT_MS: Final = 24 * 3_600_000
"""W5: how long the key of a dead worker is kept, so that it is never revived."""
CLIENT_ROWS_KEPT_MS: Final = 24 * 3_600_000
"""How long events of external attempts are kept after their instance closed, and refused requests and refused events
of unknown attempts after they were handled (C11)."""
REQUESTS: Final = "requests"
ACTIVITY_EVENTS: Final = "activity_events"
"""The tables that clients of the open contract write to."""
