"""Requests to end (A9): the code is asked, except where there is none to ask. Twice is the same as once."""

from typing import NamedTuple

import msgspec

from holdfast.core.events import CancelRequested, EventReceived, InstanceCancelled, UpdateAccepted, encode_event
from holdfast.core.gates import EventVerdict, stamp_ms
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceEvent, InstanceState, next_state
from holdfast.core.require import require
from holdfast.storage.contract import InstanceRecord, LargePayload, TargetInstance
from holdfast.storage.large import offload
from holdfast.storage.relational.attempts import insert_payloads
from holdfast.storage.relational.closing import end_from_outside
from holdfast.storage.relational.transaction import Transaction


class CancelResult(NamedTuple):
    """What came of a request, and whether the instance has ended by it already."""

    verdict: EventVerdict
    at_once: bool = False


def cancel(transaction: Transaction, found: InstanceRecord, event: CancelRequested) -> CancelResult:
    """Ask an instance to end that was read in this transaction."""
    if found.state in INSTANCE_FINAL:
        return CancelResult(EventVerdict.CLOSED)
    if found.state is InstanceState.CANCEL_REQUESTED:
        return CancelResult(EventVerdict.DUPLICATE)
    if found.state in (InstanceState.REQUESTED, InstanceState.BLOCKED):
        ended = InstanceCancelled(time_ms=stamp_ms(found.stamp_ms, transaction.now_ms), reason=event.reason)
        end_from_outside(transaction, found, ended, next_state(found.state, InstanceEvent.CANCEL))
        return CancelResult(EventVerdict.DELIVER, at_once=True)
    ask_to_end(transaction, found, event)
    return CancelResult(EventVerdict.DELIVER)


def ask_to_end(transaction: Transaction, found: InstanceRecord, event: CancelRequested) -> None:
    """A9: there is code, and it is told. The instance was read in this transaction."""
    state = next_state(found.state, InstanceEvent.REQUEST_CANCEL)
    changed = transaction.change(transaction.sql.request_cancel, state, found.number, found.state)
    require(changed == 1, f"instance {found.number} was not {found.state} any more inside one transaction")
    put(transaction, found, event, None)
    transaction.do(transaction.sql.wake_instance, found.number)


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
    transaction.change(transaction.sql.insert_message, found.number, found.execution, now_ms, encode_event(event), name)
