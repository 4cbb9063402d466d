"""Pending responses: values that an activity yields enter leg 2 together and wait in the inbox (L4, L11, L14, L15)."""

import msgspec

from holdfast.core.events import encode_event
from holdfast.core.gates import stamp_ms
from holdfast.core.ledger import RESPONSE_ENTRY
from holdfast.core.require import require
from holdfast.core.streams import enter_pending
from holdfast.storage.contract import Applied, LargePayload, Outcome, PendingExit, Rejected, Responses
from holdfast.storage.large import offload
from holdfast.storage.sqlite.attempts import insert_payloads
from holdfast.storage.sqlite.statements import statements as sql
from holdfast.storage.sqlite.transaction import Transaction


def apply_responses(transaction: Transaction, responses: Responses) -> Outcome:
    """All of them or none. The same ones again change nothing (L11)."""
    key, now_ms = responses.key, transaction.now_ms
    where = (key.number, key.execution, key.activity, key.dimension, key.attempt, responses.owner)
    count = len(responses.events)
    entered = enter_pending(responses.from_ledger, count)
    before = responses.from_ledger // RESPONSE_ENTRY
    added = entered - responses.from_ledger
    if not transaction.change(sql.enter_responses, added, now_ms, responses.expires_at_ms, *where, before):
        if transaction.rows(sql.entered_responses, *where, entered // RESPONSE_ENTRY):
            return Applied(changed=0)
        return Rejected(reason="the attempt is closed, asked to stop, or somebody else's")
    for event in responses.events:
        payloads: list[LargePayload] = []
        kept = offload(event, payloads)
        if payloads:
            insert_payloads(transaction, key.number, payloads)
        if kept.time_ms < now_ms:
            kept = msgspec.structs.replace(kept, time_ms=stamp_ms(kept.time_ms, now_ms))
        transaction.change(sql.insert_inbox, key.number, key.execution, now_ms, encode_event(kept))
    transaction.change(sql.wake_instance, key.number)
    return Applied(changed=count)


def exit_pending(transaction: Transaction, left: PendingExit) -> None:
    """L5: the turn that is being written has applied so many pending responses of an attempt."""
    key = left.key
    changed = transaction.change(
        sql.exit_pending, left.count, key.number, key.execution, key.activity, key.dimension, key.attempt
    )
    require(changed == 1, f"attempt {key} does not have {left.count} responses that could leave leg 2")
