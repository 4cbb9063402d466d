"""Apply claims of launchers: external attempts are QUEUED in the name of a worker before it launches them (C4, L2).

The attempt belongs to the worker until its program reports. A worker that is lost releases it under a new exec id, so
that a program which was launched under the old one is refused (W6).
"""

import json

import msgspec

from holdfast.core.activity_events import external_deadline
from holdfast.core.activity_options import decode_options
from holdfast.core.ledger import Leg1Verdict, enter_leg1
from holdfast.core.lifecycle import AttemptState
from holdfast.storage.members.outcomes import Outcome, QueuedAttempts
from holdfast.storage.members.row_handling import QueueAttempts
from holdfast.storage.records import AttemptRecord, OfferRecord
from holdfast.storage.relational.apply import attempts
from holdfast.storage.relational.rows import attempt_of
from holdfast.storage.relational.transaction import Transaction


def apply_queue_attempts(transaction: Transaction, member: QueueAttempts) -> Outcome:
    """Claim READY external attempts in the order in which they became available, one for each claim."""
    names = json.dumps(member.names)
    found = (member.queue, transaction.now_ms, names, len(member.claims))
    queued: list[OfferRecord] = []
    for row in transaction.fetch(transaction.sql.ready_attempts, *found):
        offer = _queue(transaction, member, attempts.with_input(transaction, attempt_of(row)), len(queued))
        if offer is not None:
            queued.append(offer)
    return QueuedAttempts(offers=queued)


def _queue(transaction: Transaction, member: QueueAttempts, ready: AttemptRecord, place: int) -> OfferRecord | None:
    """The offer of an attempt that is QUEUED now; None if it is not external, or has no further entry (L8)."""
    options = decode_options(ready.options)
    offers = transaction.fetch(transaction.sql.current_offer, *ready.key.primary_key)
    if options.external is None or not offers:
        return None
    ledger, verdict = enter_leg1(ready.ledger, limit=options.max_claims)
    if verdict is Leg1Verdict.EXHAUSTED:
        attempts.dead_letter(transaction, ready)
        return None
    now_ms = transaction.now_ms
    deadline = external_deadline(
        options,
        AttemptState.QUEUED,
        scheduled_at_ms=ready.scheduled_at_ms,
        available_at_ms=ready.available_at_ms,
        started_at_ms=None,
        heard_at_ms=now_ms,
    )
    expires_at_ms = None if deadline is None else deadline.at_ms
    claimed = (ledger, member.owner, now_ms, expires_at_ms)
    transaction.update(transaction.sql.queue_attempt, *claimed, *ready.key.primary_key, ready.ledger)
    [(exec_id, entry)] = offers
    transaction.update(transaction.sql.claim_offer, member.claims[place], exec_id)
    attempt = msgspec.structs.replace(
        ready,
        state=AttemptState.QUEUED,
        ledger=ledger,
        owner=member.owner,
        heartbeat_at_ms=now_ms,
        expires_at_ms=expires_at_ms,
    )
    return OfferRecord(exec_id=exec_id, entry=entry, withdrawn_at_ms=None, attempt=attempt)
