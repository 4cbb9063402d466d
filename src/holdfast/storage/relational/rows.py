"""Rows as records of the contract. The columns are in the order of the fields of the record: see `storage.records`."""

from enum import StrEnum
from typing import Final, TypeVar, cast

from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.updates import UpdateState
from holdfast.storage.records import (
    ATTEMPT_COLUMNS,
    INSTANCE_COLUMNS,
    AttemptKey,
    AttemptRecord,
    InstanceRecord,
    OwnedAttempt,
    OwnedInstance,
    OwnedRows,
    Parent,
    ParentAndChildren,
    UpdateRow,
)
from holdfast.storage.relational.transaction import Row

_STATE_OF_INSTANCE: Final = INSTANCE_COLUMNS.index("state")
_STATE_OF_ATTEMPT: Final = ATTEMPT_COLUMNS.index("state")
_KEY_COLUMNS: Final = len(AttemptKey.__struct_fields__)

State = TypeVar("State", bound=StrEnum)


def state_of(kind: type[State], stored: object) -> State:
    """A state. An invalid value in a damaged row is returned as it is, so that it can be shown; `verify` reports it."""
    try:
        return kind(cast("str", stored))
    except ValueError:
        return cast("State", str(stored))


def instance_of(row: Row) -> InstanceRecord:
    values = list(row)
    values[_STATE_OF_INSTANCE] = state_of(InstanceState, row[_STATE_OF_INSTANCE])
    return InstanceRecord(*values)


def attempt_of(row: Row) -> AttemptRecord:
    values = list(row)
    values[_STATE_OF_ATTEMPT] = state_of(AttemptState, row[_STATE_OF_ATTEMPT])
    return AttemptRecord(AttemptKey(*values[:_KEY_COLUMNS]), *values[_KEY_COLUMNS:])


def owned_rows_of(attempts: list[Row], instances: list[Row]) -> OwnedRows:
    return OwnedRows(
        attempts=[
            OwnedAttempt(key=AttemptKey(*key), state=AttemptState(state), ledger=ledger)
            for *key, state, ledger in attempts
        ],
        instances=[OwnedInstance(number=number, fence=fence) for number, fence in instances],
    )


def relatives_of(parents: list[Row], counts: list[Row]) -> ParentAndChildren:
    parent = None
    for above, number, execution, child in parents:
        parent = Parent(id=above, number=number, execution=execution, child=child)
    return ParentAndChildren(parent=parent, children={state_of(InstanceState, state): count for state, count in counts})


def update_of(row: Row) -> UpdateRow:
    return UpdateRow(id=row[0], state=state_of(UpdateState, row[1]), answer=row[2])
