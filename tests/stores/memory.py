"""A store in memory: plain dictionaries, no SQL and no file. It shows what the contract asks of a store.

Stores that are made with the same `MemoryTables` share their data, as processes that open one database do.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import msgspec
from tests.stores import memory_attempts as attempts
from tests.stores import memory_endings as endings
from tests.stores import memory_instances as instances
from tests.stores import memory_pauses as pauses
from tests.stores import memory_restoring as restoring
from tests.stores import memory_retention as retention
from tests.stores.filter_model import ModelInstance, matches
from tests.stores.memory_instances import may_run
from tests.stores.memory_tables import Commit, Instance, MemoryTables, Worker, as_record, instance_record

from holdfast.core.attributes import StoredAttribute, read_value
from holdfast.core.filters import Filter
from holdfast.core.history import EventSetAside
from holdfast.core.leases import (
    Heartbeat,
    HeartbeatReply,
    Renewed,
    WorkerKey,
    WorkerRecord,
    WorkerState,
    judge_heartbeat,
)
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.retention import FamilyMember
from holdfast.errors import ClientClosed, StoreError
from holdfast.storage.contract import (
    CODE_CHECKS,
    COMMITS_KEPT_MS,
    COUNTS,
    PAUSE,
    RESTORE,
    RETENTION,
    SEARCH,
    TOMBSTONES_KEPT_MS,
    Notifier,
    StoreDefaults,
)
from holdfast.storage.large_payloads import read_stored, references_in
from holdfast.storage.members.attempts import (
    CancelActivity,
    ClaimAttempts,
    Completion,
    HeartbeatAttempt,
    OpenNextAttempt,
    RunPrepared,
)
from holdfast.storage.members.instances import (
    Block,
    ClaimInstances,
    CloseChildren,
    Expire,
    Pause,
    Release,
    Resume,
    RetryBlocked,
    SaveFlow,
    SetAttributes,
    SetDeadline,
    Start,
    Terminate,
    Watch,
)
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import AnswerQuery, AskQuery, ClaimQueries, DeleteQueries, Deliver
from holdfast.storage.members.outcomes import Failed, Outcome, PendingQueries, Rejected
from holdfast.storage.members.restoring import LiftNumbers, RestoreInstances
from holdfast.storage.members.retention import DeleteExecutions, DeleteFamilies
from holdfast.storage.members.turns import StreamValues, Turn
from holdfast.storage.members.workers import MarkWorkerLost, Registration, ReleaseUnknown
from holdfast.storage.records import (
    LONGEST_BLOCKED,
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
    OpenCount,
    OwnedAttempt,
    OwnedInstance,
    OwnedRows,
    ParentAndChildren,
    QueueRow,
    RestoreCounts,
    TimerRow,
    UpdateRow,
    VersionCount,
    WorkerLoad,
    WorkerRow,
)
from holdfast.storage.search import FoundInstance, OrderField, Position, SearchQuery
from holdfast.storage.versions import CodeVersion
from holdfast.storage.wakeups import EVERYTHING, Heard, Notify, Wakeups, ignore_wakeups

SET_ASIDE: Final = f'"{EventSetAside.__struct_config__.tag}"'.encode()

APPLY_BY_TYPE: Final[dict[type[Member], Callable[[MemoryTables, Any], Outcome]]] = {
    Start: instances.apply_start,
    Turn: instances.apply_turn,
    Terminate: endings.apply_terminate,
    Completion: attempts.apply_completion,
    OpenNextAttempt: attempts.apply_open_next_attempt,
    ClaimInstances: instances.apply_claim_instances,
    CancelActivity: attempts.apply_cancel_activity,
    ClaimAttempts: attempts.apply_claim_attempts,
    RunPrepared: attempts.apply_run_prepared,
    Release: instances.apply_release,
    RetryBlocked: instances.apply_retry_blocked,
    Pause: pauses.apply_pause,
    Resume: pauses.apply_resume,
    Block: instances.apply_block,
    SetAttributes: instances.apply_set_attributes,
    HeartbeatAttempt: attempts.apply_heartbeat_attempt,
    MarkWorkerLost: attempts.apply_mark_worker_lost,
    ReleaseUnknown: attempts.apply_release_unknown,
    Deliver: instances.apply_deliver,
    StreamValues: attempts.apply_stream_values,
    SetDeadline: endings.apply_set_deadline,
    Expire: endings.apply_expire,
    CloseChildren: endings.apply_close_children,
    SaveFlow: instances.apply_save_flow,
    Watch: instances.apply_watch,
    LiftNumbers: restoring.apply_lift_numbers,
    RestoreInstances: restoring.apply_restore_instances,
    DeleteFamilies: retention.apply_delete_families,
    DeleteExecutions: retention.apply_delete_executions,
    AskQuery: instances.apply_ask_query,
    ClaimQueries: instances.apply_claim_queries,
    AnswerQuery: instances.apply_answer_query,
    DeleteQueries: instances.apply_delete_queries,
}


class MemoryStore(StoreDefaults):
    """Implements `Store` and `SearchStore`. What is about files it leaves to `StoreDefaults`."""

    capabilities = frozenset({SEARCH, PAUSE, RESTORE, COUNTS, CODE_CHECKS, RETENTION})

    def __init__(self, clock: Callable[[], int], tables: MemoryTables | None = None) -> None:
        self._clock = clock
        self._data = MemoryTables() if tables is None else tables
        self._is_open = self._is_closed = False

    async def open(self) -> None:
        if self._is_closed:
            raise StoreError("the store in memory was closed and cannot be opened again; make another one")
        self._is_open = True

    async def close(self) -> None:
        self._is_closed = True

    @property
    def tables(self) -> MemoryTables:
        """The tables, for a store that is open."""
        if self._is_closed:
            raise ClientClosed("the store in memory was closed during this call")
        if not self._is_open:
            raise StoreError("the store in memory is not open")
        return self._data

    def now_ms(self) -> int:
        with self._data.lock:
            return self._data.advance_clock(self._clock())

    def make_notifier(self, name: str, heard: Heard) -> Notifier:
        return MemoryNotifier(self._data, name, heard)

    # ------------------------------------------------------------ groups and heartbeats

    async def commit(
        self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
    ) -> list[Outcome]:
        outcomes = self.commit_apart(commit_id, members)
        notify(Wakeups(to_all=EVERYTHING))  # it does not know whom a member concerns
        return outcomes

    def commit_apart(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        """Apply members in order. Each is applied as a whole or not at all."""
        tables = self.tables
        with tables.lock:
            if commit_id in tables.commits:
                return [Rejected(reason="a commit of this id was made before") for _ in members]
            tables.advance_clock(self._clock())
            outcomes = [_apply(tables, member) for member in members]
            if not all(isinstance(outcome, Failed) for outcome in outcomes):
                tables.commits.put(commit_id, Commit(at_ms=tables.now_ms))
            tables.keep_changes()
            return outcomes

    async def was_committed(self, commit_id: CommitId) -> bool:
        return commit_id in self.tables.commits

    async def prune(self) -> bool:
        tables = self.tables
        with tables.lock:
            now_ms = tables.advance_clock(self._clock())
            tables.commits.remove_all(
                key for key, commit in tables.commits.items() if commit.at_ms < now_ms - COMMITS_KEPT_MS
            )
            tables.workers.remove_all(
                key
                for key, worker in tables.workers.items()
                if worker.state == WorkerState.INACTIVE
                and worker.deadline_ms < now_ms - TOMBSTONES_KEPT_MS
                and not tables.owned_instances(key)
                and not tables.owned_attempts(key)
            )
            tables.keep_changes()
        return False

    async def read_families(self, roots: Sequence[InstanceNumber]) -> list[FamilyMember]:
        return retention.families(self.tables, roots)

    async def continued_instances(self, *, after: InstanceNumber, limit: int) -> list[tuple[InstanceNumber, str]]:
        return retention.continued(self.tables, after, limit)

    async def has_closed(self, count: int) -> bool:
        return sum(not row.is_open for row in self.tables.instances.values()) >= count

    async def size_bytes(self) -> int:
        return 0

    async def give_back(self, limit_bytes: int) -> int:
        del limit_bytes
        return 0

    def heartbeat(self, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
        tables = self.tables
        with tables.lock:
            now_ms = tables.advance_clock(self._clock())
            known = tables.workers.get(beat.key)
            record = None
            if known is not None:
                record = WorkerRecord(known.key, WorkerState(known.state), known.token, known.deadline_ms)
            _, reply = judge_heartbeat(record, beat, now_ms=now_ms)
            if isinstance(reply, Renewed):
                self._renew(beat.key, reply, registration)
            tables.keep_changes()
            return reply

    def _renew(self, key: WorkerKey, lease: Renewed, registration: Registration) -> None:
        tables = self.tables
        known = tables.workers.get(key)
        if known is None:
            known = Worker(
                key=key,
                state=WorkerState.ACTIVE,
                token=lease.token,
                deadline_ms=lease.deadline_ms,
                lease_ms=lease.lease_ms,
                host=registration.host,
                queues=registration.queues,
                build=registration.build,
                registered_at_ms=tables.now_ms,
                slots=registration.slots,
                workflows=registration.workflows,
                activities=registration.activities,
                versions=registration.versions,
            )
        renewed = msgspec.structs.replace(
            known,
            token=lease.token,
            deadline_ms=lease.deadline_ms,
            lease_ms=lease.lease_ms,
            abandoned=registration.abandoned,
        )
        tables.workers.put(key, renewed)

    # ------------------------------------------------------------ reads of one instance

    async def find_instance(self, instance_id: InstanceId) -> InstanceRecord | None:
        found = self.tables.current(instance_id)
        return None if found is None else instance_record(found)

    async def read_instances(self, numbers: Collection[InstanceNumber]) -> list[InstanceRecord]:
        found = [await self.read_instance(number) for number in numbers]
        return [record for record in found if record is not None]

    async def read_instance(self, number: InstanceNumber) -> InstanceRecord | None:
        found = self.tables.instances.get(number)
        return None if found is None else instance_record(found)

    async def count_earlier(self, instance_id: InstanceId) -> int:
        rows = self.tables.instances.values()
        return sum(row.id == instance_id and row.superseded_at_ms is not None for row in rows)

    async def load(self, number: InstanceNumber, execution: int) -> LoadedInstance:
        history, inbox = await self.read_history(number, execution), self.tables.inbox_of(number)
        named = references_in([*(row.events for row in history), *(row.event for row in inbox)])
        return LoadedInstance(
            history=history,
            inbox=inbox,
            timers=_timers(self.tables, number, execution),
            attempts=await self.read_attempts(number, execution),
            payloads=await self.read_payloads(number, named),
        )

    async def load_many(self, executions: Sequence[tuple[InstanceNumber, int]]) -> list[LoadedInstance]:
        return [await self.load(number, execution) for number, execution in executions]

    async def read_history(self, number: InstanceNumber, execution: int) -> list[HistoryRow]:
        rows = [row for key, row in self.tables.history.items() if key[:2] == (number, execution)]
        return sorted(rows, key=lambda row: row.turn)

    async def read_set_aside(
        self, number: InstanceNumber, *, first: int, before: int, limit: int
    ) -> list[tuple[int, bytes]]:
        found = sorted(
            (execution, turn, row.events)
            for (owner, execution, turn), row in self.tables.history.items()
            if owner == number and first <= execution < before and SET_ASIDE in row.events
        )
        return [(execution, events) for execution, _, events in found[-limit:]]

    async def read_attempts(self, number: InstanceNumber, execution: int) -> list[AttemptRecord]:
        rows = [row for row in self.tables.attempts_of(number) if row.key.execution == execution]
        return sorted(rows, key=lambda row: (row.key.activity, row.key.dimension, row.key.attempt))

    async def read_payloads(
        self, number: InstanceNumber, references: Collection[str] | None = None
    ) -> dict[str, bytes]:
        return {
            reference: read_stored(reference, row.data)
            for (owner, reference), row in self.tables.payloads.items()
            if owner == number and (references is None or reference in references)
        }

    async def read_key(self, number: InstanceNumber) -> str | None:
        found = self.tables.instances.get(number)
        return None if found is None else found.key

    async def read_flow(self, digest: str) -> bytes | None:
        found = self.tables.flows.get(digest)
        return None if found is None else found.definition

    async def read_state_values(self, number: InstanceNumber) -> dict[str, bytes]:
        return {
            key: row.data for (owner, key), row in sorted(self.tables.state_values.items(), key=_key) if owner == number
        }

    async def peek_inbox(self, number: InstanceNumber, limit: int) -> list[InboxRow]:
        return self.tables.inbox_of(number)[:limit]

    async def read_updates(self, number: InstanceNumber, limit: int) -> list[UpdateRow]:
        rows = [
            UpdateRow(id=key, state=row.state, answer=row.answer)
            for (owner, key), row in sorted(self.tables.updates.items(), key=_key)
            if owner == number
        ]
        return rows[:limit]

    async def read_update(self, number: InstanceNumber, update_id: str) -> UpdateRow | None:
        found = self.tables.updates.get((number, update_id))
        return None if found is None else UpdateRow(id=update_id, state=found.state, answer=found.answer)

    async def read_latest(self, number: InstanceNumber) -> tuple[InstanceRecord, bytes | None] | None:
        found = self.tables.instances.get(number)
        if found is None:
            return None
        history = await self.read_history(number, found.execution)
        return self._listed(found), history[-1].events if history else None

    async def read_deadline(self, number: InstanceNumber) -> DeadlineRecord | None:
        found = self.tables.instances.get(number)
        return None if found is None else found.deadline

    async def read_relatives(self, number: InstanceNumber) -> ParentAndChildren:
        found = self.tables.instances.get(number)
        children: dict[InstanceState, int] = {}
        for row in self.tables.instances.values():
            if row.parent is not None and row.parent.number == number:
                children[row.state] = children.get(row.state, 0) + 1
        return ParentAndChildren(parent=None if found is None else found.parent, children=children)

    # ------------------------------------------------------------ reads of the whole store

    async def list_instances(
        self,
        *,
        before: int,
        limit: int,
        state: InstanceState | None = None,
        workflow: str | None = None,
        parent: InstanceNumber | None = None,
    ) -> list[InstanceRecord]:
        found = [
            self._listed(row)
            for row in sorted(self.tables.instances.values(), key=lambda row: -row.number)
            if row.number < before
            and state in (None, row.state)
            and workflow in (None, row.workflow)
            and (parent is None or (row.parent is not None and row.parent.number == parent))
        ]
        return found[:limit]

    async def search(self, query: SearchQuery) -> list[FoundInstance]:
        keys: dict[OrderField, Callable[[Instance], int | None]] = {
            OrderField.CREATED: lambda row: row.created_at_ms,
            OrderField.CLOSED: lambda row: row.closed_at_ms,
            OrderField.DURATION: lambda row: None if row.closed_at_ms is None else row.closed_at_ms - row.created_at_ms,
        }
        key_of = keys[query.order.field]
        places = [
            (key, row.number)
            for row in self.tables.instances.values()
            if (key := key_of(row)) is not None and matches(query.filter, self._as_model(row))
        ]
        places.sort(reverse=not query.order.is_ascending)
        if query.after is not None:
            last = (query.after.key, query.after.number)
            places = [place for place in places if (place > last if query.order.is_ascending else place < last)]
        return [
            FoundInstance(
                instance=self._listed(self.tables.instances[number]),
                position=Position(key=key, number=number),
                attributes=await self.read_attributes(number),
            )
            for key, number in places[: query.limit]
        ]

    async def count_found(self, found: Filter | None, limit: int) -> int:
        return min(limit, sum(matches(found, self._as_model(row)) for row in self.tables.instances.values()))

    async def read_attributes(self, number: InstanceNumber) -> dict[str, StoredAttribute]:
        rows = sorted(self.tables.attributes.items(), key=_key)
        return {name: row.value for (owner, name), row in rows if owner == number}

    async def read_secret(self, name: str) -> bytes:
        return f"{id(self.tables)} {name}".encode()

    def _as_model(self, row: Instance) -> ModelInstance:
        return ModelInstance(
            number=row.number,
            id=row.id,
            workflow=row.workflow,
            version=row.version,
            state=row.state.value,
            created=row.created_at_ms,
            closed=row.closed_at_ms,
            execution=row.execution,
            parent=None if row.parent is None else row.parent.id,
            root=self._root_of(row),
            error=row.error,
            blocked=row.blocked,
            waits=sorted(row.waits - {""}) if row.is_open else [],
            attributes={
                name: read_value(value.value)
                for (owner, name), value in self.tables.attributes.items()
                if owner == row.number
            },
        )

    def _root_of(self, row: Instance) -> str:
        while row.parent is not None and row.parent.number in self.tables.instances:
            row = self.tables.instances[row.parent.number]
        return row.id

    def _listed(self, row: Instance) -> InstanceRecord:
        status = self.tables.state_values.get((row.number, ""))
        return instance_record(
            row,
            custom_status=None if status is None else status.data,
            parent_id=None if row.parent is None else row.parent.id,
        )

    async def pending_queries(self) -> PendingQueries:
        now_ms, queries = self.now_ms(), self.tables.queries.values()
        ends = [row.expires_at_ms for row in queries]
        ends += [row.expires_at_ms for row in self.tables.updates.values() if row.expires_at_ms is not None]
        return PendingQueries(
            has_queries=any(row.taken_by is None and row.expires_at_ms > now_ms for row in queries),
            has_expired=any(at_ms <= now_ms for at_ms in ends),
        )

    async def read_query_reply(self, query_id: str) -> bytes | None:
        found = self.tables.queries.get(query_id)
        return None if found is None else found.answer

    async def read_inbox_of(self, owner: WorkerKey, after_row: int) -> list[InboxRow]:
        owned = {row.number for row in self.tables.owned_instances(owner)}
        rows = (message.row for message in self.tables.inbox.values())
        return [row for row in rows if row.number in owned and row.row > after_row]

    async def rows_owned_by(self, owner: WorkerKey) -> OwnedRows:
        held = self.tables.owned_attempts(owner)
        return OwnedRows(
            attempts=[
                OwnedAttempt(
                    key=row.key,
                    state=row.state,
                    ledger=row.ledger,
                    cancel_requested_at_ms=row.cancel_requested_at_ms,
                )
                for row in held
            ],
            instances=[OwnedInstance(number=row.number, fence=row.fence) for row in self.tables.owned_instances(owner)],
        )

    async def dead_owners(self) -> list[WorkerKey]:
        return [load.key for load in await self.worker_loads() if not self.tables.is_active(load.key)]

    async def workers(self) -> list[WorkerRow]:
        rows = sorted(self.tables.workers.values(), key=lambda row: row.registered_at_ms)
        return [as_record(WorkerRow, row) for row in rows]

    async def worker_loads(self) -> list[WorkerLoad]:
        owners = {row.owner for row in self.tables.instances.values() if row.owner is not None}
        owners |= {row.owner for row in self.tables.attempts.values() if row.owner is not None}
        held = [(key, self.tables.owned_attempts(key), self.tables.owned_instances(key)) for key in sorted(owners)]
        return [
            WorkerLoad(key=key, attempts=len(attempts), instances=len(instances))
            for key, attempts, instances in held
            if attempts or instances
        ]

    async def queues(self) -> list[QueueRow]:
        now_ms, rows = self.now_ms(), self.tables.attempts.values()
        ready = [row for row in rows if row.state is AttemptState.READY and not row.is_withheld]
        running = [row.queue for row in rows if row.owner is not None and row.closed_at_ms is None]
        found: list[QueueRow] = []
        for queue in sorted({*(row.queue for row in ready), *running}):
            since = [row.available_at_ms for row in ready if row.queue == queue]
            waiting = [at_ms for at_ms in since if at_ms <= now_ms]
            found.append(
                QueueRow(
                    queue=queue,
                    ready=len(waiting),
                    later=len(since) - len(waiting),
                    running=running.count(queue),
                    oldest_at_ms=min(waiting, default=None),
                )
            )
        return found

    async def expired_attempts(self, limit: int) -> list[AttemptRecord]:
        now_ms, tables = self.now_ms(), self.tables
        rows = [(row.expires_at_ms, row) for row in tables.attempts.values() if row.expires_at_ms is not None]
        late = sorted((pair for pair in rows if pair[0] <= now_ms), key=lambda pair: pair[0])
        return [attempts.with_instance(tables, row) for _, row in late[:limit]]

    async def expired_instances(self, limit: int) -> list[InstanceNumber]:
        now_ms = self.now_ms()
        late = sorted((at_ms, row.number) for at_ms, row in _open_deadlines(self.tables) if at_ms <= now_ms)
        return [number for _, number in late[:limit]]

    async def next_due(
        self,
        *,
        workflows: Sequence[str],
        queues: Sequence[str],
        names: Sequence[str],
        versions: Sequence[CodeVersion] = (),
        after_ms: int = -1,
    ) -> NextDue:
        def earliest(times: Iterable[int | None]) -> int | None:
            return min((at_ms for at_ms in times if at_ms is not None and at_ms > after_ms), default=None)

        attempts = self.tables.attempts.values()
        ready = (row for row in attempts if row.state is AttemptState.READY and not row.is_withheld)
        deadlines = [at_ms for at_ms, _ in _open_deadlines(self.tables)]
        instances = self.tables.instances.values()
        return NextDue(
            expiry_ms=earliest([*deadlines, *(row.expires_at_ms for row in attempts)]),
            instance_ms=earliest(
                row.claimable_at_ms for row in instances if may_run(self.tables, workflows, versions, row)
            ),
            attempt_ms=earliest(row.available_at_ms for row in ready if row.queue in queues and row.name in names),
        )

    async def has_blocked(self, workflows: Sequence[str], build: str, versions: Sequence[CodeVersion] = ()) -> bool:
        rows = (row for row in self.tables.instances.values() if row.state is InstanceState.BLOCKED)
        return any(build not in row.blocked_by and may_run(self.tables, workflows, versions, row) for row in rows)

    async def open_closings(self, limit: int) -> list[tuple[InstanceNumber, int]]:
        return list(self.tables.closings)[:limit]

    async def count_open(self, limit: int) -> list[OpenCount]:
        counted = Counter((row.workflow, row.state) for row in self.tables.instances.values() if row.is_open)
        ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        return [OpenCount(workflow=name, state=state, instances=count) for (name, state), count in ordered[:limit]]

    async def open_numbers(self, *, after: int, limit: int) -> list[InstanceNumber]:
        return sorted(row.number for row in self.tables.instances.values() if row.is_open and row.number > after)[
            :limit
        ]

    async def blocked_instances(self, *, after: int, limit: int) -> list[BlockedInstance]:
        rows = (row for row in self.tables.instances.values() if row.state is InstanceState.BLOCKED)
        found = sorted((row for row in rows if row.number > after), key=lambda row: row.number)
        return [
            BlockedInstance(
                number=row.number,
                id=row.id,
                workflow=row.workflow,
                version=row.version,
                reason=(row.blocked or "")[:LONGEST_BLOCKED],
                builds=tuple(sorted(row.blocked_by)),
                created_at_ms=row.created_at_ms,
            )
            for row in found[:limit]
        ]

    async def count_versions(self, limit: int) -> list[VersionCount]:
        rows = (row for row in self.tables.instances.values() if row.is_open)
        counted = Counter((row.workflow, row.version, row.owner) for row in rows)
        return [
            VersionCount(workflow=workflow, version=version, owner=owner, instances=count)
            for (workflow, version, owner), count in counted.most_common(limit)
        ]

    async def count_blocked_by(self, limit: int) -> dict[str, int]:
        rows = (row for row in self.tables.instances.values() if row.state is InstanceState.BLOCKED)
        return dict(Counter(build for row in rows for build in row.blocked_by).most_common(limit))

    async def running_attempts(self, *, after: AttemptKey | None, limit: int) -> list[AttemptRecord]:
        running = (AttemptState.RUNNING, AttemptState.CANCELLED_RUNNING)
        rows = sorted(
            (row for row in self.tables.attempts.values() if row.state in running),
            key=lambda row: row.key.primary_key,
        )
        behind = [row for row in rows if after is None or row.key.primary_key > after.primary_key]
        return [attempts.with_instance(self.tables, row) for row in behind[:limit]]

    async def count_restored(self) -> RestoreCounts:
        return RestoreCounts(instances=sum(row.is_open for row in self.tables.instances.values()), external_attempts=0)


class MemoryNotifier:
    """Wakes the other clients and workers that use the same tables, each in its own event loop."""

    def __init__(self, tables: MemoryTables, name: str, heard: Heard) -> None:
        self._listeners = tables.listeners
        self._name = name
        self._heard = heard

    def open(self) -> None:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._heard, EVERYTHING)

        self._listeners[self._name] = wake

    def close(self) -> None:
        self._listeners.pop(self._name, None)

    def notify(self, wakeups: Wakeups) -> None:
        del wakeups
        for name, wake in list(self._listeners.items()):
            if name != self._name:
                wake()


def _apply(tables: MemoryTables, member: Member) -> Outcome:
    """Apply one member. What a worker sends that is not active is rejected (W6, W7)."""
    actor = member.actor
    if actor is not None and not tables.is_active(actor):
        return Rejected(reason=f"worker {actor} is not active")
    try:
        with tables.undone_on_error():
            return APPLY_BY_TYPE[type(member)](tables, member)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told to the member that caused it
        return Failed(error=error)


def _timers(tables: MemoryTables, number: InstanceNumber, execution: int) -> list[TimerRow]:
    rows = [row for key, row in tables.timers.items() if key[:2] == (number, execution)]
    return sorted(rows, key=lambda row: row.timer)


def _open_deadlines(tables: MemoryTables) -> Iterable[tuple[int, Instance]]:
    for row in tables.instances.values():
        if row.deadline is not None and row.deadline.expires_at_ms is not None and row.is_open:
            yield row.deadline.expires_at_ms, row


def _key(item: tuple[Any, Any]) -> Any:
    return item[0]
