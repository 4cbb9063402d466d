"""Deletions, applied to the tables in memory (R31-R34)."""

from collections.abc import Sequence
from typing import Any

from tests.stores.memory_tables import Instance, MemoryTables, Table

from holdfast.core.attributes import AttributeType, StoredAttribute, bool_key
from holdfast.core.history import Started, decode_events
from holdfast.core.retention import KEEP, FamilyMember, FamilyVerdict, decide_families, ended_executions
from holdfast.storage.large_payloads import reference_of, references_in
from holdfast.storage.members.outcomes import DeletedExecutions, DeletedFamilies, Outcome
from holdfast.storage.members.retention import DeleteExecutions, DeleteFamilies
from holdfast.storage.records import InstanceNumber

HELD = StoredAttribute(AttributeType.BOOL, (bool_key(value=True),))


def families(tables: MemoryTables, roots: Sequence[int]) -> list[FamilyMember]:
    """The members of families, in the order of their numbers."""
    found: list[FamilyMember] = []
    for root in roots:
        numbers = {root} & tables.instances.keys()
        while True:
            more = {row.number for row in tables.instances.values() if row.parent and row.parent.number in numbers}
            if more <= numbers:
                break
            numbers |= more
        found += [_member(tables, root, tables.instances[InstanceNumber(number)]) for number in numbers]
    return sorted(found, key=lambda member: member.number)


def _member(tables: MemoryTables, root: int, row: Instance) -> FamilyMember:
    parent = None if row.parent is None else row.parent.number
    above = None if parent is None else tables.instances.get(parent)
    held = tables.attributes.get((row.number, KEEP))
    return FamilyMember(
        root=root,
        number=row.number,
        id=row.id,
        workflow=row.workflow,
        state=row.state,
        closed_at_ms=row.closed_at_ms,
        parent=parent,
        parent_id=None if above is None else above.id,
        is_held=held is not None and held.value == HELD,
    )


def apply_delete_families(tables: MemoryTables, member: DeleteFamilies) -> Outcome:
    members = families(tables, member.roots)
    decisions = decide_families(member.roots, members, ended_by_ms=member.ended_by_ms, limit=member.limit)
    deleted = {each.root for each in decisions if each.verdict is FamilyVerdict.DELETED}
    gone = {each.number for each in members if each.root in deleted}
    by_key: tuple[Table[Any, Any], ...] = (
        tables.history,
        tables.timers,
        tables.payloads,
        tables.state_values,
        tables.attributes,
        tables.updates,
        tables.received,
        tables.closings,
    )
    for table in by_key:
        of_gone: list[Any] = [key for key in table if key[0] in gone]
        table.remove_all(of_gone)
    tables.attempts.remove_all(key for key in tables.attempts if key.number in gone)
    tables.inbox.remove_all(row for row, message in tables.inbox.items() if message.row.number in gone)
    tables.queries.remove_all(
        key for key, query in tables.queries.items() if query.query.number in gone and query.taken_by is None
    )
    tables.instances.remove_all(number for number in tables.instances if number in gone)
    return DeletedFamilies(decisions=tuple(decisions))


def apply_delete_executions(tables: MemoryTables, member: DeleteExecutions) -> Outcome:
    found = {number: _delete_executions(tables, number, member.ended_by_ms) for number in member.numbers}
    return DeletedExecutions(executions={number: count for number, count in found.items() if count})


def _delete_executions(tables: MemoryTables, number: InstanceNumber, ended_by_ms: int) -> int:
    row = tables.instances.get(number)
    if row is None or not row.is_open:
        return 0
    first_turns = {
        execution: decode_events(turn.events)
        for (owner, execution, at), turn in tables.history.items()
        if owner == number and at == 0
    }
    starts = {
        execution: event.time_ms
        for execution, events in first_turns.items()
        for event in events[:1]
        if isinstance(event, Started)
    }
    first = ended_executions(starts, row.execution, ended_by_ms)
    pending = [
        attempt.key.execution
        for attempt in tables.attempts_of(number)
        if attempt.key.execution < first and attempt.closed_at_ms is None
    ]
    first = min([first, *pending])
    for table in (tables.history, tables.timers):
        keyed: Table[Any, Any] = table
        keyed.remove_all(key for key in keyed if key[0] == number and key[1] < first)
    tables.attempts.remove_all(key for key in tables.attempts if key.number == number and key.execution < first)
    _delete_payloads(tables, number)
    return sum(execution < first for execution in first_turns)


def _delete_payloads(tables: MemoryTables, number: InstanceNumber) -> None:
    row = tables.instances[number]
    users: list[bytes | None] = [row.input, row.outcome]
    users += [turn.events for key, turn in tables.history.items() if key[0] == number]
    users += [message.event for message in tables.inbox_of(number)]
    for attempt in tables.attempts_of(number):
        users += [attempt.input, attempt.details, attempt.failure]
    users += [value.data for key, value in tables.state_values.items() if key[0] == number]
    users += [update.answer for key, update in tables.updates.items() if key[0] == number]
    stored = [value for value in users if value is not None]
    used = references_in(stored) | {reference_of(value) for value in stored}
    tables.payloads.remove_all(key for key in tables.payloads if key[0] == number and key[1] not in used)


def continued(tables: MemoryTables, after: InstanceNumber, limit: int) -> list[tuple[InstanceNumber, str]]:
    """Open instances with executions before the current one."""
    rows = sorted((row for row in tables.instances.values() if row.is_open), key=lambda row: row.number)
    return [
        (row.number, row.workflow)
        for row in rows
        if row.number > after and any(key[0] == row.number and key[1] < row.execution for key in tables.history)
    ][:limit]
