"""Write attributes: with a start, with a turn, or for a client (F2, F10)."""

import json

from holdfast.core.attributes import AttributeChange, changed_attributes
from holdfast.core.history import AttributesChanged
from holdfast.core.lifecycle import INSTANCE_FINAL
from holdfast.storage.members.instances import SetAttributes
from holdfast.storage.members.outcomes import ChangedAttributes, Outcome, Rejected
from holdfast.storage.records import InstanceNumber
from holdfast.storage.relational.apply.shared_writes import put_in_inbox
from holdfast.storage.relational.rows import instance_of, stored_attributes
from holdfast.storage.relational.transaction import Transaction


def write_attributes(transaction: Transaction, number: InstanceNumber, changes: tuple[AttributeChange, ...]) -> None:
    """Set and delete attributes (F2). They belong to the instance: later executions have them, too."""
    for change in changes:
        transaction.execute(transaction.sql.delete_attribute, number, change.name)
        insert_attribute(transaction, number, change)


def insert_attribute(transaction: Transaction, number: InstanceNumber, change: AttributeChange) -> None:
    """Insert the value of an attribute that has none."""
    if change.value is not None:
        for position, key in enumerate(change.value.keys):
            kind = change.value.type.value
            transaction.update(transaction.sql.insert_attribute, number, change.name, position, kind, key)


def apply_set_attributes(transaction: Transaction, member: SetAttributes) -> Outcome:
    """F10: write the change, and deliver it to the code of an open instance, which reads messages in their order.

    As an update, it does not start the first turn of an instance earlier than its start names (G15).
    """
    sql = transaction.sql
    by_id = (sql.lock_instance_by_id, member.id)
    rows = transaction.fetch(*(by_id if member.number is None else (sql.lock_instance, member.number)))
    if not rows:
        return Rejected(reason=f"no instance has the id {member.id!r}")
    found = instance_of(rows[0])
    number = found.number
    before = stored_attributes(transaction.fetch(sql.read_attributes, json.dumps([number]))).get(number, {})
    outcome = ChangedAttributes(instance=found, attributes=changed_attributes(before, member.changes))
    if not outcome.was_changed:
        return outcome
    write_attributes(transaction, number, member.changes)
    if found.state not in INSTANCE_FINAL:
        event = AttributesChanged(time_ms=0, values={change.name: change.value for change in member.changes})
        put_in_inbox(transaction, number, found.execution, event, wakes=found.may_begin(transaction.now_ms))
    return outcome
