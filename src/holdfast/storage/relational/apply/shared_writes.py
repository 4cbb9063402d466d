"""New module."""

from collections.abc import Sequence

import msgspec

from holdfast.core.admission import stamp_ms
from holdfast.core.deadlines import Deadline
from holdfast.core.history import (
    ActivityCompleted,
    ActivityFailed,
    CancelRequested,
    EventReceived,
    UpdateAccepted,
    encode_event,
)
from holdfast.storage.large_payloads import large_payload, marked, offload
from holdfast.storage.members.outcomes import TargetInstance
from holdfast.storage.records import AttemptKey, InstanceNumber, InstanceRecord, LargePayload
from holdfast.storage.relational.transaction import Transaction


def keep_input(transaction: Transaction, number: InstanceNumber, data: bytes) -> bytes:
    """Put a large input into the side table; the answer is what stands in its place."""
    large = large_payload(data)
    insert_payloads(transaction, number, (large,))
    return marked(large.reference)


def insert_payloads(transaction: Transaction, number: InstanceNumber, payloads: Sequence[LargePayload]) -> None:
    """Put large payloads into their own table."""
    for payload in payloads:
        transaction.execute(transaction.sql.insert_payload, payload.reference, number, payload.data)


def keep_in_inbox(transaction: Transaction, key: AttemptKey, answer: ActivityCompleted | ActivityFailed) -> None:
    """Put the answer into the instance's inbox, stamped now, and make the instance claimable."""
    now_ms = transaction.now_ms
    payloads: list[LargePayload] = []
    stamped = msgspec.structs.replace(offload(answer, payloads), time_ms=stamp_ms(answer.time_ms, now_ms))
    insert_payloads(transaction, key.number, payloads)
    transaction.update(transaction.sql.insert_inbox, key.number, key.execution, now_ms, encode_event(stamped))
    transaction.execute(transaction.sql.wake_instance, key.number)


def put(
    transaction: Transaction,
    found: InstanceRecord | TargetInstance,
    event: EventReceived | CancelRequested | UpdateAccepted,
    name: str | None,
) -> None:
    """Into the inbox, stamped now (G10)."""
    now_ms = transaction.now_ms
    payloads: list[LargePayload] = []
    event = offload(event, payloads)
    if payloads:
        insert_payloads(transaction, found.number, payloads)
    if event.time_ms < now_ms:
        event = msgspec.structs.replace(event, time_ms=stamp_ms(event.time_ms, now_ms))
    transaction.update(transaction.sql.insert_message, found.number, found.execution, now_ms, encode_event(event), name)


def set_deadline(transaction: Transaction, number: InstanceNumber, deadline: Deadline) -> int:
    """Say until when an instance has to end, or that it need not. Whether that was news."""
    return transaction.update(transaction.sql.set_deadline, deadline.limit_ms, deadline.grace_ms, number)
