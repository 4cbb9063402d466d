"""Instances as lines of an archive: everything that a store knows of them, with large payloads in place (R35)."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from holdfast.client.archive import ArchivedInstance
from holdfast.client.views.instances import attribute_values
from holdfast.core.history import decode_events, encode_events
from holdfast.core.retention import FamilyMember
from holdfast.storage.contract import RetentionStore
from holdfast.storage.large_payloads import inline, reference_of
from holdfast.storage.records import AttemptRecord, HistoryRow, InstanceNumber, InstanceRecord, LoadedInstance

MOST_UPDATES: Final = 1_000_000
DAMAGED: Final = "damaged_base64"
"""The key under which a stored value that is not JSON is kept."""

NULL: Final = msgspec.Raw(b"null")

Payloads = Mapping[str, bytes]


async def archived_lines(store: RetentionStore, members: Sequence[FamilyMember]) -> list[tuple[int, bytes]]:
    """The number and the line of each member, in their order. A member that is gone meanwhile is left out."""
    records = {each.number: each for each in await store.read_instances([InstanceNumber(m.number) for m in members])}
    wanted = [(record.number, execution) for record in records.values() for execution in range(1, record.execution + 1)]
    loaded: dict[tuple[int, int], LoadedInstance] = dict(
        zip(wanted, await store.load_many(wanted) if wanted else [], strict=True)
    )
    lines: list[tuple[int, bytes]] = []
    for member in members:
        record = records.get(InstanceNumber(member.number))
        if record is not None:
            executions = [loaded[record.number, number] for number in range(1, record.execution + 1)]
            lines.append((member.number, await _line(store, member, record, executions)))
    return lines


async def _line(
    store: RetentionStore, member: FamilyMember, record: InstanceRecord, executions: Sequence[LoadedInstance]
) -> bytes:
    payloads = await store.read_payloads(record.number)
    attributes = await store.read_attributes(record.number)
    archived = ArchivedInstance(
        number=record.number,
        id=record.id,
        workflow=record.workflow,
        version=record.version,
        state=record.state,
        root=member.root,
        parent=member.parent_id,
        execution=record.execution,
        created_at_ms=record.created_at_ms,
        closed_at_ms=record.closed_at_ms,
        input=_value(record.input, payloads),
        outcome=NULL if record.outcome is None else _outcome(record.outcome, payloads),
        attributes=json.loads(msgspec.json.encode(attribute_values(attributes))),
        state_values={
            key: _value(value, payloads) for key, value in (await store.read_state_values(record.number)).items()
        },
        updates=[
            {"id": each.id, "state": each.state, "answer": None if each.answer is None else _value(each.answer, {})}
            for each in await store.read_updates(record.number, MOST_UPDATES)
        ],
        executions=[
            {
                "execution": number,
                "turns": [_turn(row, payloads) for row in each.history],
                "attempts": [_attempt(attempt, payloads) for attempt in each.attempts],
            }
            for number, each in enumerate(executions, 1)
            if each.history or each.attempts
        ],
    )
    return msgspec.json.encode(archived)


def _value(stored: bytes, payloads: Payloads) -> msgspec.Raw:
    """A stored value as JSON, also a large one."""
    reference = reference_of(stored)
    data = payloads.get(reference, stored) if reference else stored
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.Raw(msgspec.json.encode({DAMAGED: base64.b64encode(data).decode()}))
    return msgspec.Raw(data)


def _outcome(stored: bytes, payloads: Payloads) -> msgspec.Raw:
    """The outcome of an instance; a large result is in place of its reference."""
    value = _value(stored, {})
    fields: Any = msgspec.json.decode(value)
    reference: object = cast("dict[str, object]", fields).get("reference") if isinstance(fields, dict) else None
    data = payloads.get(reference) if isinstance(reference, str) else None
    return value if data is None else msgspec.Raw(b'{"data":%b}' % data)


def _turn(row: HistoryRow, payloads: Payloads) -> msgspec.Raw:
    try:
        return msgspec.Raw(encode_events([inline(event, payloads) for event in decode_events(row.events)]))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _value(row.events, {})


def _attempt(attempt: AttemptRecord, payloads: Payloads) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "activity": attempt.key.activity,
        "dimension": attempt.key.dimension,
        "attempt": attempt.key.attempt,
    }
    for name in AttemptRecord.__struct_fields__:
        value = getattr(attempt, name)
        if name not in ("key", "instance_id", "workflow") and value is not None:
            fields[name] = _value(value, payloads) if isinstance(value, bytes) else value
    return fields
