"""Rows as records of the contract, in the order of the columns in the statements."""

from enum import StrEnum
from typing import TypeVar, cast

from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.updates import UpdateState
from holdfast.storage.records import (
    AttemptKey,
    AttemptRecord,
    DeadlineRecord,
    HistoryRow,
    InboxRow,
    InstanceRecord,
    OwnedAttempt,
    OwnedInstance,
    OwnedRows,
    Parent,
    ParentAndChildren,
    QueueRow,
    TimerRow,
    UpdateRow,
    WorkerRow,
)
from holdfast.storage.relational.transaction import Row

COLUMNS_IN_USE = 17
"""Of an instance. Where somebody looks at old ones, too, the time follows at which it lost its id."""
OWN_COLUMNS = 22
"""Of an attempt. Where it is to be run, the id and the workflow of its instance follow."""
WORKER_COLUMNS = 10
"""Of a worker. Where workers are listed, the names of its workflows and activities follow."""


Word = TypeVar("Word", bound=StrEnum)


def word_of(kind: type[Word], stored: object) -> Word:
    """A state. One that is none, in a damaged row, stays as it is, so that it can be shown; `verify` reports it."""
    try:
        return kind(cast("str", stored))
    except ValueError:
        return cast("Word", str(stored))


def instance_of(row: Row) -> InstanceRecord:
    return InstanceRecord(
        number=row[0],
        id=row[1],
        workflow=row[2],
        version=row[3],
        state=word_of(InstanceState, row[4]),
        execution=row[5],
        turn=row[6],
        fence=row[7],
        owner=row[8],
        claimable_at_ms=row[9],
        stamp_ms=row[10],
        input=row[11],
        input_hash=row[12],
        outcome=row[13],
        blocked=row[14],
        created_at_ms=row[15],
        closed_at_ms=row[16],
        superseded_at_ms=row[17] if len(row) > COLUMNS_IN_USE else None,
        losses=row[18] if len(row) > COLUMNS_IN_USE + 1 else 0,
        custom_status=row[19] if len(row) > COLUMNS_IN_USE + 2 else None,
        parent_id=row[20] if len(row) > COLUMNS_IN_USE + 3 else None,
    )


def deadline_of(row: Row) -> DeadlineRecord:
    return DeadlineRecord(at_ms=row[0], grace_ms=row[1], expires_at_ms=row[2])


def attempt_of(row: Row) -> AttemptRecord:
    return AttemptRecord(
        key=AttemptKey(row[0], row[1], row[2], row[4], row[3]),
        name=row[5],
        queue=row[6],
        state=word_of(AttemptState, row[7]),
        ledger=row[8],
        owner=row[9],
        input=row[10],
        options=row[11],
        available_at_ms=row[12],
        scheduled_at_ms=row[13],
        started_at_ms=row[14],
        closed_at_ms=row[15],
        expires_at_ms=row[16],
        heartbeat_at_ms=row[17],
        details=row[18],
        failures=row[19],
        losses=row[20],
        failure=row[21],
        instance_id=row[22] if len(row) > OWN_COLUMNS else "",
        workflow=row[23] if len(row) > OWN_COLUMNS else "",
    )


def held_of(attempts: list[Row], instances: list[Row]) -> OwnedRows:
    return OwnedRows(
        attempts=[
            OwnedAttempt(key=AttemptKey(*key), state=AttemptState(state), ledger=ledger)
            for *key, state, ledger in attempts
        ],
        instances=[OwnedInstance(number=number, fence=fence) for number, fence in instances],
    )


def family_of(parents: list[Row], counts: list[Row]) -> ParentAndChildren:
    parent = None
    for above, number, execution, child in parents:
        parent = Parent(id=above, number=number, execution=execution, child=child)
    return ParentAndChildren(parent=parent, children={word_of(InstanceState, state): count for state, count in counts})


def inbox_of(row: Row) -> InboxRow:
    return InboxRow(row=row[0], number=row[1], execution=row[2], stamp_ms=row[3], event=row[4])


def timer_of(row: Row) -> TimerRow:
    return TimerRow(timer=row[0], due_at_ms=row[1])


def history_of(row: Row) -> HistoryRow:
    return HistoryRow(turn=row[0], events=row[1])


def worker_of(row: Row) -> WorkerRow:
    return WorkerRow(
        key=row[0],
        state=row[1],
        token=row[2],
        deadline_ms=row[3],
        lease_ms=row[4],
        host=row[5],
        queues=row[6],
        build=row[7],
        registered_at_ms=row[8],
        slots=row[9],
        workflows=row[10] if len(row) > WORKER_COLUMNS else None,
        activities=row[11] if len(row) > WORKER_COLUMNS else None,
        abandoned=row[12] if len(row) > WORKER_COLUMNS else 0,
    )


def queue_of(row: Row) -> QueueRow:
    return QueueRow(queue=row[0], ready=row[1], later=row[2], running=row[3], oldest_at_ms=row[4])


def update_of(row: Row) -> UpdateRow:
    """A row of updates."""
    return UpdateRow(id=row[0], state=word_of(UpdateState, row[1]), answer=row[2])
