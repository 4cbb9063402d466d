"""The reads of a store over a relational database. Each database runs the statements in its own way."""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from holdfast.core.history import EventSetAside
from holdfast.core.leases import WorkerKey
from holdfast.core.lifecycle import InstanceState
from holdfast.storage.large_payloads import read_stored, references_in
from holdfast.storage.members.outcomes import PendingQueries
from holdfast.storage.records import (
    AttemptKey,
    AttemptRecord,
    BlockedInstance,
    DeadlineRecord,
    HistoryRow,
    InboxRow,
    InstanceId,
    InstanceNumber,
    InstanceRecord,
    LoadedInstance,
    NextDue,
    OpenCount,
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
from holdfast.storage.relational.rows import (
    attempt_of,
    blocked_of,
    instance_of,
    owned_rows_of,
    relatives_of,
    state_of,
    update_of,
)
from holdfast.storage.relational.statements import Statements
from holdfast.storage.relational.transaction import Row
from holdfast.storage.versions import CodeVersion, claim_keys, read_version

BoundStatement: TypeAlias = tuple[Any, ...]
"""A statement with its values."""
SET_ASIDE: Final = f'"{EventSetAside.__struct_config__.tag}"'.encode()
"""Occurs in the stored events of a turn that set an event aside."""
BEFORE_ALL: Final = (-1, 0, 0, "", 0)
"""The primary key of an attempt before every other."""


class RelationalReads(ABC):
    """Reads of committed data."""

    sql: Statements

    @abstractmethod
    def now_ms(self) -> int:
        """The store's clock."""

    @abstractmethod
    async def _read(self, statement: str, *bindings: Any) -> list[Row]:
        """The rows of one statement."""

    @abstractmethod
    async def _read_all(self, *asked: BoundStatement) -> list[list[Row]]:
        """The rows of several statements, in their order. Over a network they are one round trip."""

    async def find_instance(self, instance_id: InstanceId) -> InstanceRecord | None:
        rows = await self._read(self.sql.find_instance, instance_id)
        return instance_of(rows[0]) if rows else None

    async def read_instance(self, number: InstanceNumber) -> InstanceRecord | None:
        rows = await self._read(self.sql.read_instance, number)
        return instance_of(rows[0]) if rows else None

    async def read_instances(self, numbers: Collection[InstanceNumber]) -> list[InstanceRecord]:
        return [instance_of(row) for row in await self._read(self.sql.read_instances, json.dumps(sorted(numbers)))]

    async def count_earlier(self, instance_id: InstanceId) -> int:
        count: int = (await self._read(self.sql.count_earlier, instance_id))[0][0]
        return count

    async def load(self, number: InstanceNumber, execution: int) -> LoadedInstance:
        [loaded] = await self.load_many([(number, execution)])
        return loaded

    async def load_many(self, executions: Sequence[tuple[InstanceNumber, int]]) -> list[LoadedInstance]:
        sql = self.sql
        wanted = json.dumps(executions)
        turns, messages, timers, attempts = await self._read_all(
            (sql.load_history, wanted), (sql.load_inbox, wanted), (sql.load_timers, wanted), (sql.load_attempts, wanted)
        )
        loaded = {
            number: LoadedInstance(history=[], inbox=[], timers=[], attempts=[], payloads={})
            for number, _ in executions
        }
        for number, *row in turns:
            loaded[number].history.append(HistoryRow(*row))
        for message in (InboxRow(*row) for row in messages):
            loaded[message.number].inbox.append(message)
        for number, *row in timers:
            loaded[number].timers.append(TimerRow(*row))
        for attempt in map(attempt_of, attempts):
            loaded[attempt.key.number].attempts.append(attempt)
        await self._add_payloads(loaded)
        return [loaded[number] for number, _ in executions]

    async def _add_payloads(self, loaded: Mapping[InstanceNumber, LoadedInstance]) -> None:
        """Read the large payloads that the rows of instances name."""
        named = [
            (number, reference)
            for number, each in loaded.items()
            for reference in references_in([*(row.events for row in each.history), *(row.event for row in each.inbox)])
        ]
        if named:
            found = await self._read_all(*((self.sql.read_payload, *one) for one in named))
            for (number, reference), rows in zip(named, found, strict=True):
                if rows:
                    loaded[number].payloads[reference] = read_stored(reference, rows[0][0])

    async def read_history(self, number: InstanceNumber, execution: int) -> list[HistoryRow]:
        return [HistoryRow(*row) for row in await self._read(self.sql.read_history, number, execution)]

    async def read_set_aside(
        self, number: InstanceNumber, *, first: int, before: int, limit: int
    ) -> list[tuple[int, bytes]]:
        rows = await self._read(self.sql.read_set_aside, number, first, before, SET_ASIDE, limit)
        return [(execution, events) for execution, events in reversed(rows)]

    async def read_attempts(self, number: InstanceNumber, execution: int) -> list[AttemptRecord]:
        return [attempt_of(row) for row in await self._read(self.sql.read_attempts, number, execution)]

    async def read_payloads(
        self, number: InstanceNumber, references: Collection[str] | None = None
    ) -> dict[str, bytes]:
        if references is None:
            stored: dict[str, bytes] = dict(await self._read(self.sql.read_payloads, number))
            return {reference: read_stored(reference, data) for reference, data in stored.items()}
        if not references:
            return {}
        found = await self._read_all(*((self.sql.read_payload, number, reference) for reference in references))
        return {
            reference: read_stored(reference, rows[0][0])
            for reference, rows in zip(references, found, strict=True)
            if rows
        }

    async def read_key(self, number: InstanceNumber) -> str | None:
        rows = await self._read(self.sql.read_key, number)
        key: str | None = rows[0][0] if rows else None
        return key

    async def read_flow(self, digest: str) -> bytes | None:
        rows = await self._read(self.sql.read_flow, digest)
        return bytes(rows[0][0]) if rows else None

    async def read_state_values(self, number: InstanceNumber) -> dict[str, bytes]:
        return dict(await self._read(self.sql.read_state_values, number))

    async def peek_inbox(self, number: InstanceNumber, limit: int) -> list[InboxRow]:
        return [InboxRow(*row) for row in await self._read(self.sql.peek_inbox, number, limit)]

    async def read_updates(self, number: InstanceNumber, limit: int) -> list[UpdateRow]:
        return [update_of(row) for row in await self._read(self.sql.read_updates, number, limit)]

    async def read_update(self, number: InstanceNumber, update_id: str) -> UpdateRow | None:
        rows = await self._read(self.sql.read_update, number, update_id)
        return update_of(rows[0]) if rows else None

    async def read_latest(self, number: InstanceNumber) -> tuple[InstanceRecord, bytes | None] | None:
        rows = await self._read(self.sql.read_latest, number)
        return (instance_of(rows[0][:-1]), rows[0][-1]) if rows else None

    async def pending_queries(self) -> PendingQueries:
        has_queries, has_expired = (await self._read(self.sql.pending_queries, self.now_ms()))[0]
        return PendingQueries(has_queries=bool(has_queries), has_expired=bool(has_expired))

    async def read_query_reply(self, query_id: str) -> bytes | None:
        rows = await self._read(self.sql.read_query_reply, query_id)
        return rows[0][0] if rows else None

    async def read_inbox_of(self, owner: WorkerKey, after_row: int) -> list[InboxRow]:
        return [InboxRow(*row) for row in await self._read(self.sql.read_inbox_of_owner, owner, after_row)]

    async def rows_owned_by(self, owner: WorkerKey) -> OwnedRows:
        attempts, instances = await self._read_all(
            (self.sql.owned_attempt_keys, owner), (self.sql.owned_instances, owner)
        )
        return owned_rows_of(attempts, instances)

    async def dead_owners(self) -> list[WorkerKey]:
        return [WorkerKey(key) for (key,) in await self._read(self.sql.dead_owners)]

    async def expired_attempts(self, limit: int) -> list[AttemptRecord]:
        return [attempt_of(row) for row in await self._read(self.sql.expired_attempts, self.now_ms(), limit)]

    async def read_deadline(self, number: InstanceNumber) -> DeadlineRecord | None:
        rows = await self._read(self.sql.read_deadline, number)
        return DeadlineRecord(*rows[0]) if rows else None

    async def expired_instances(self, limit: int) -> list[InstanceNumber]:
        rows = await self._read(self.sql.expired_instances, self.now_ms(), limit)
        return [InstanceNumber(number) for (number,) in rows]

    async def next_due(
        self,
        *,
        workflows: Sequence[str],
        queues: Sequence[str],
        names: Sequence[str],
        versions: Sequence[CodeVersion] = (),
        after_ms: int = -1,
    ) -> NextDue:
        activities = json.dumps(names)
        expiry, instances, *attempts = await self._read_all(
            (self.sql.next_expiry, after_ms),
            (self.sql.next_claimable, claim_keys(workflows, versions), after_ms),
            *((self.sql.next_ready, queue, after_ms, activities) for queue in queues if names),
        )
        return NextDue(
            expiry_ms=_earliest(expiry),
            instance_ms=_earliest(instances),
            attempt_ms=_earliest([row for rows in attempts for row in rows]),
        )

    async def has_blocked(self, workflows: Sequence[str], build: str, versions: Sequence[CodeVersion] = ()) -> bool:
        return bool(await self._read(self.sql.blocked_elsewhere, claim_keys(workflows, versions), build))

    async def list_instances(
        self,
        *,
        before: int,
        limit: int,
        state: InstanceState | None = None,
        workflow: str | None = None,
        parent: InstanceNumber | None = None,
    ) -> list[InstanceRecord]:
        asked: BoundStatement = (before, None if state is None else state.value, workflow, limit)
        if parent is None:
            rows = await self._read(self.sql.list_instances, *asked)
        else:
            rows = await self._read(self.sql.list_children, *asked, parent)
        return [instance_of(row) for row in rows]

    async def read_relatives(self, number: InstanceNumber) -> ParentAndChildren:
        return relatives_of(*await self._read_all((self.sql.read_parent, number), (self.sql.count_children, number)))

    async def open_closings(self, limit: int) -> list[tuple[InstanceNumber, int]]:
        rows = await self._read(self.sql.open_closings, limit)
        return [(InstanceNumber(number), execution) for number, execution in rows]

    async def workers(self) -> list[WorkerRow]:
        return [WorkerRow(*row) for row in await self._read(self.sql.read_workers)]

    async def worker_loads(self) -> list[WorkerLoad]:
        rows = sorted(await self._read(self.sql.worker_loads))
        return [WorkerLoad(*row) for row in rows]

    async def queues(self) -> list[QueueRow]:
        rows = await self._read(self.sql.queues, self.now_ms())
        return sorted((QueueRow(*row) for row in rows), key=lambda row: row.queue)

    async def count_open(self, limit: int) -> list[OpenCount]:
        rows = await self._read(self.sql.count_open, limit)
        return [
            OpenCount(workflow=workflow, state=state_of(InstanceState, state), instances=instances)
            for workflow, state, instances in rows
        ]

    async def open_numbers(self, *, after: int, limit: int) -> list[InstanceNumber]:
        return [InstanceNumber(number) for (number,) in await self._read(self.sql.open_numbers, after, limit)]

    async def blocked_instances(self, *, after: int, limit: int) -> list[BlockedInstance]:
        return [blocked_of(row) for row in await self._read(self.sql.blocked_instances, after, limit)]

    async def count_versions(self, limit: int) -> list[VersionCount]:
        rows = await self._read(self.sql.count_versions, limit)
        return [
            VersionCount(workflow=workflow, version=read_version(version), owner=owner, instances=instances)
            for workflow, version, owner, instances in rows
        ]

    async def count_blocked_by(self, limit: int) -> dict[str, int]:
        return dict(await self._read(self.sql.count_blocked_by, limit))

    async def running_attempts(self, *, after: AttemptKey | None, limit: int) -> list[AttemptRecord]:
        behind = BEFORE_ALL if after is None else after.primary_key
        return [attempt_of(row) for row in await self._read(self.sql.running_attempts, *behind, limit)]

    async def count_restored(self) -> RestoreCounts:
        [(instances, external_attempts)] = await self._read(self.sql.count_restored)
        return RestoreCounts(instances=instances, external_attempts=external_attempts)


def _earliest(rows: Sequence[Row]) -> int | None:
    """The earliest of the times in the only column of rows."""
    return min((time for (time,) in rows if time is not None), default=None)
