"""Apply the members that delete families and earlier executions (R31, R32, R34)."""

import json

import msgspec

from holdfast.core.history import Started, decode_events
from holdfast.core.retention import FamilyVerdict, decide_families, ended_executions
from holdfast.storage.large_payloads import reference_of, references_in
from holdfast.storage.members.outcomes import DeletedExecutions, DeletedFamilies, Outcome
from holdfast.storage.members.retention import DeleteExecutions, DeleteFamilies
from holdfast.storage.records import InstanceNumber
from holdfast.storage.relational.rows import HELD, family_members_of
from holdfast.storage.relational.transaction import Transaction


def apply_delete_families(transaction: Transaction, member: DeleteFamilies) -> Outcome:
    """Delete the families that the rule allows, with all their rows."""
    rows = transaction.fetch(transaction.sql.read_families, json.dumps(member.roots), HELD)
    members = family_members_of(rows)
    decisions = decide_families(member.roots, members, ended_by_ms=member.ended_by_ms, limit=member.limit)
    deleted = {each.root for each in decisions if each.verdict is FamilyVerdict.DELETED}
    if deleted:
        transaction.delete_instances([each.number for each in members if each.root in deleted])
    return DeletedFamilies(decisions=tuple(decisions))


def apply_delete_executions(transaction: Transaction, member: DeleteExecutions) -> Outcome:
    """Delete the executions of open instances that ended long enough ago."""
    found = {number: _delete_executions(transaction, number, member.ended_by_ms) for number in member.numbers}
    return DeletedExecutions(executions={number: count for number, count in found.items() if count})


def _delete_executions(transaction: Transaction, number: InstanceNumber, ended_by_ms: int) -> int:
    sql = transaction.sql
    rows = transaction.fetch(sql.lock_execution, number)
    if not rows or rows[0][1] is not None:
        return 0  # it is closed, or deleted: its family is deleted as a whole
    current: int = rows[0][0]
    starts = {execution: _began_ms(events) for execution, events in transaction.fetch(sql.execution_starts, number)}
    known = {execution: began_ms for execution, began_ms in starts.items() if began_ms is not None}
    first = ended_executions(known, current, ended_by_ms)
    [(unended,)] = transaction.fetch(sql.open_attempts_before, number, first)
    if unended is not None:
        first = unended  # an executor may still report about it
    gone = len([execution for execution in starts if execution < first])
    if gone:
        for statement in (
            sql.delete_events_before,
            sql.delete_offers_before,
            sql.delete_attempts_before,
            sql.delete_timers_before,
            sql.delete_history_before,
        ):
            transaction.execute(statement, number, first)
        _delete_payloads(transaction, number)
    return gone


def _began_ms(events: bytes) -> int | None:
    """When an execution began; None if its first turn cannot be read (G12)."""
    try:
        first = decode_events(events)[0]
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError):
        return None
    return first.time_ms if isinstance(first, Started) else None


def _delete_payloads(transaction: Transaction, number: InstanceNumber) -> None:
    """Delete the large payloads that no row of the instance refers to any more."""
    stored = {reference for (reference,) in transaction.fetch(transaction.sql.payload_references, number)}
    if not stored:
        return
    users = [value for (value,) in transaction.fetch(transaction.sql.payload_users, number) if value is not None]
    used = references_in(users) | {reference_of(bytes(value)) for value in users}
    for reference in sorted(stored - used):
        transaction.execute(transaction.sql.delete_payload, number, reference)
