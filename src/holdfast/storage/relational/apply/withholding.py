"""Withhold the READY attempts of a PAUSED instance, and make them available again (R20-R22).

Each is one statement for all attempts of an instance, whose row is locked: no other attempt becomes READY meanwhile.
"""

import msgspec

from holdfast.core.pauses import withheld_ms
from holdfast.storage.records import InstanceNumber, InstanceRecord, NewAttempt
from holdfast.storage.relational.transaction import Transaction


def pause_instance(transaction: Transaction, number: InstanceNumber, reason: str) -> bool:
    """Pause an instance that was read in this transaction, and withhold its attempts. False: A9 has no such move."""
    transaction.wakeups.instances.add(number)
    if not transaction.update(transaction.sql.pause_instance, transaction.now_ms, reason, number):
        return False
    transaction.execute(transaction.sql.withhold_attempts, number)
    return True


def restore_attempts(transaction: Transaction, paused: InstanceRecord) -> tuple[str, ...]:
    """Make the withheld attempts of an instance that was read as PAUSED available. Returns their queues."""
    queues = tuple(queue for (queue,) in transaction.fetch(transaction.sql.withheld_queues, paused.number))
    if queues:
        since_ms = transaction.now_ms if paused.paused_at_ms is None else paused.paused_at_ms
        transaction.execute(transaction.sql.restore_attempts, paused.number, since_ms, transaction.now_ms)
        transaction.wakeups.queues.update(queues)
    return queues


def withheld(new: NewAttempt) -> NewAttempt:
    """An attempt that opens while its instance is PAUSED."""
    expires_at_ms = None if new.expires_at_ms is None else withheld_ms(new.expires_at_ms)
    return msgspec.structs.replace(new, available_at_ms=withheld_ms(new.available_at_ms), expires_at_ms=expires_at_ms)
