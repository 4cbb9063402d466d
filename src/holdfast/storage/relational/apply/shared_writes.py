"""Single writes that several members share: inbox rows, large payloads, inputs, deadlines."""

from collections.abc import Sequence

import msgspec

from holdfast.core.activity_options import SILENCE_AFTER_CANCEL_MS
from holdfast.core.deadlines import Deadline
from holdfast.core.history import Input, encode_event
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.storage.large_payloads import large_payload, marked, offload
from holdfast.storage.records import AttemptKey, InstanceNumber, LargePayload
from holdfast.storage.relational.transaction import Transaction


def large_input(data: bytes) -> LargePayload | None:
    """The row of an input in the side table; None if the input is stored in its column."""
    return None if len(data) <= INLINE_LIMIT_BYTES else large_payload(data)


def input_column(data: bytes, large: LargePayload | None) -> bytes:
    """The value of the input column: the input, or a reference to its row in the side table."""
    return data if large is None else marked(large.reference)


def insert_payloads(transaction: Transaction, number: InstanceNumber, payloads: Sequence[LargePayload]) -> None:
    for payload in payloads:
        transaction.execute(transaction.sql.insert_payload, payload.reference, number, payload.data)


def put_in_inbox(
    transaction: Transaction,
    number: InstanceNumber,
    execution: int,
    event: Input,
    name: str | None = None,
    *,
    wakes: bool = True,
    at_ms: int | None = None,
) -> None:
    """Add a message to the inbox, stamped now (G10), and make the instance claimable unless `wakes` is False.

    `name` is that of an event, empty for an update, None for any other message. With `at_ms` the turn applies it as of
    that earlier time (R25).
    """
    now_ms = transaction.now_ms
    payloads: list[LargePayload] = []
    event = offload(event, payloads)
    insert_payloads(transaction, number, payloads)
    applies_at_ms = max(event.time_ms, now_ms) if at_ms is None else at_ms
    if event.time_ms != applies_at_ms:
        event = msgspec.structs.replace(event, time_ms=applies_at_ms)
    transaction.update(transaction.sql.insert_message, number, execution, now_ms, encode_event(event), name)
    transaction.wakeups.instances.add(number)
    if wakes:
        transaction.execute(transaction.sql.wake_instance, number)


def offer_attempt(transaction: Transaction, key: AttemptKey, name: str, *, entry: int) -> None:
    """Offer an external attempt to executors, under a new exec id of 128 random bits (C4)."""
    transaction.update(transaction.sql.insert_offer, *key.primary_key, entry, name)


def hasten_silence(transaction: Transaction, number: InstanceNumber) -> None:
    """Judge the silence of cancelled external attempts soon: their deadline may be that of the whole body (A5)."""
    transaction.execute(transaction.sql.hasten_silence, transaction.now_ms + SILENCE_AFTER_CANCEL_MS, number)


def set_deadline(transaction: Transaction, number: InstanceNumber, deadline: Deadline) -> bool:
    """Set the deadline of an instance, or that it has none. False: it was set before, or the instance has ended."""
    return transaction.update(transaction.sql.set_deadline, deadline.limit_ms, deadline.grace_ms, number) > 0
