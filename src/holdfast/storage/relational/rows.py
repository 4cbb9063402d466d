"""Rows as records of the contract. The columns are in the order of the fields of the record: see `storage.records`."""

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, TypeVar, cast

from holdfast.core.attributes import AttributeType, StoredAttribute, bool_key
from holdfast.core.children import NAME_LIMIT_BYTES
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.retention import FamilyMember
from holdfast.core.updates import UpdateState
from holdfast.storage.records import (
    ATTEMPT_COLUMNS,
    INSTANCE_COLUMNS,
    AttemptKey,
    AttemptRecord,
    BlockedInstance,
    InstanceRecord,
    OwnedAttempt,
    OwnedInstance,
    OwnedRows,
    Parent,
    ParentAndChildren,
    ReportRow,
    RequestRow,
    UpdateRow,
)
from holdfast.storage.relational.transaction import Row
from holdfast.storage.versions import read_version

_STATE_OF_INSTANCE: Final = INSTANCE_COLUMNS.index("state")
_VERSION_OF_INSTANCE: Final = INSTANCE_COLUMNS.index("version")
_STATE_OF_ATTEMPT: Final = ATTEMPT_COLUMNS.index("state")
_KEY_COLUMNS: Final = len(AttemptKey.__struct_fields__)

HELD: Final = bool_key(value=True)
"""The key of the attribute `keep` of an instance that is not deleted (R33)."""

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
    values[_VERSION_OF_INSTANCE] = read_version(row[_VERSION_OF_INSTANCE])
    return InstanceRecord(*values)


def blocked_of(row: Row) -> BlockedInstance:
    number, instance_id, workflow, version, reason, builds, created_at_ms = row
    return BlockedInstance(
        number=number,
        id=instance_id,
        workflow=workflow,
        version=read_version(version),
        reason=reason or "",
        builds=tuple(json.loads(builds or "[]")),
        created_at_ms=created_at_ms,
    )


def stored_attributes(rows: Iterable[Row]) -> dict[int, dict[str, StoredAttribute]]:
    """Attributes by the numbers of their instances, from rows in the order of their positions."""
    found: dict[int, dict[str, StoredAttribute]] = {}
    for number, name, kind, key in rows:
        values = found.setdefault(number, {})
        before = values[name].keys if name in values else ()
        values[name] = StoredAttribute(state_of(AttributeType, kind), (*before, key))
    return found


def family_members_of(rows: list[Row]) -> list[FamilyMember]:
    return [
        FamilyMember(
            root=root,
            number=number,
            id=instance_id,
            workflow=workflow,
            state=state_of(InstanceState, state),
            closed_at_ms=closed_at_ms,
            parent=parent,
            parent_id=parent_id,
            is_held=bool(is_held),
        )
        for root, number, instance_id, workflow, state, closed_at_ms, parent, parent_id, is_held in rows
    ]


def attempt_of(row: Row) -> AttemptRecord:
    values = list(row)
    values[_STATE_OF_ATTEMPT] = state_of(AttemptState, row[_STATE_OF_ATTEMPT])
    return AttemptRecord(AttemptKey(*values[:_KEY_COLUMNS]), *values[_KEY_COLUMNS:])


def owned_rows_of(attempts: list[Row], instances: list[Row]) -> OwnedRows:
    return OwnedRows(
        attempts=[
            OwnedAttempt(
                key=AttemptKey(*key), state=AttemptState(state), ledger=ledger, cancel_requested_at_ms=requested
            )
            for *key, state, ledger, requested in attempts
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


class _ClientTexts:
    """Reads the texts of a row that a client wrote: SQLite returns bytes, which may be anything."""

    def __init__(self) -> None:
        self.fault: str | None = None

    def name(self, value: object, column: str) -> str | None:
        """A short text. The statements return a little more than the limit, so that a longer text is noticed."""
        text = self.text(value, column)
        if text is not None and len(text.encode()) > NAME_LIMIT_BYTES:
            self.fault = self.fault or f"{column} is longer than {NAME_LIMIT_BYTES} bytes"
            return None
        return text

    def text(self, value: object, column: str) -> str | None:
        if not isinstance(value, bytes):
            return None if value is None else str(value)
        try:
            return value.decode()
        except UnicodeDecodeError:
            self.fault = self.fault or f"{column} is not valid UTF-8"
            return None

    def data(self, value: object, size_bytes: int | None, column: str) -> bytes | None:
        """A long text as bytes. The statements return null for one above the limit, and its size."""
        if value is None and size_bytes is not None:
            self.fault = self.fault or f"{column} has {size_bytes:,} bytes, which is more than this worker accepts"
        return value.encode() if isinstance(value, str) else cast("bytes | None", value)


def request_of(row: Row) -> RequestRow:
    texts = _ClientTexts()
    return RequestRow(
        row=row[0],
        request_id=texts.name(row[1], "request_id") or "",
        kind=texts.text(row[2], "kind") or "",
        workflow=texts.name(row[3], "workflow"),
        instance_id=texts.name(row[4], "instance_id"),
        event_name=texts.name(row[5], "event_name"),
        input=texts.data(row[6], row[7], "input") or b"",
        policy=texts.text(row[8], "policy"),
        start_at_ms=row[9],
        deadline_after_ms=row[10],
        manual=bool(row[11]),
        fault=texts.fault,
    )


def report_of(row: Row) -> ReportRow:
    texts = _ClientTexts()
    number, execution, activity, attempt, dimension, name = row[12:18]
    return ReportRow(
        row=row[0],
        event_id=texts.name(row[1], "event_id") or "",
        exec_id=texts.text(row[2], "activity_exec_id") or "",
        claim=texts.text(texts.data(row[3], row[4], "claim"), "claim"),
        transition=texts.text(row[5], "transition") or "",
        sequence=row[6],
        payload=texts.data(row[7], row[8], "payload"),
        error=texts.data(row[9], row[10], "error"),
        inserted_at_ms=row[11],
        key=None if number is None else AttemptKey(number, execution, activity, attempt, dimension),
        name=name,
        fault=texts.fault,
    )
