"""Apply members about attempts: completions, next attempts, claims, heartbeats. Every change is guarded (A2, L13)."""

import json
from collections.abc import Sequence

import msgspec

from holdfast.core.activity_options import decode_options
from holdfast.core.admission import DeliveryVerdict, MessageKind, decide_delivery
from holdfast.core.checks import require
from holdfast.core.ledger import Leg1Verdict, conclude_leg1, enter_leg1
from holdfast.core.lifecycle import AttemptEvent, AttemptState, InstanceState
from holdfast.payloads.failures import Failure
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.storage.attempt_endings import end_by_failure
from holdfast.storage.large_payloads import large_payload, reference_of
from holdfast.storage.members.attempts import ClaimAttempts, Completion, HeartbeatAttempt, OpenNextAttempt, Transition
from holdfast.storage.members.member import CANCEL_REQUESTED
from holdfast.storage.members.outcomes import Applied, ClaimedAttempts, Outcome, Rejected
from holdfast.storage.records import AttemptKey, AttemptRecord, InstanceNumber, NewAttempt
from holdfast.storage.relational.apply.shared_writes import input_column, insert_payloads, put_in_inbox
from holdfast.storage.relational.rows import attempt_of
from holdfast.storage.relational.transaction import Transaction


def insert_attempt(transaction: Transaction, number: InstanceNumber, execution: int, new: NewAttempt) -> None:
    """Insert an attempt, READY or RUNNING."""
    large = None
    if len(new.input) > INLINE_LIMIT_BYTES:  # here, because most inputs are small: no call for each attempt
        large = large_payload(new.input)
        insert_payloads(transaction, number, (large,))
    transaction.update(
        transaction.sql.insert_attempt,
        number,
        execution,
        new.activity,
        new.attempt,
        new.name,
        new.queue,
        new.state,
        new.ledger,
        new.owner,
        new.input if large is None else input_column(new.input, large),
        new.options,
        new.available_at_ms,
        new.scheduled_at_ms,
        transaction.now_ms if new.owner is not None else None,
        new.expires_at_ms,
        new.failures,
        new.losses,
        new.details,
    )


def close_by_completion(transaction: Transaction, completion: Completion, ledger: int) -> bool:
    """Move the attempt to its final state with the digits given; False if it was not as expected.

    A request to cancel that came in between does not make the answer stale: nothing waits for it any more (A1).
    """
    overdue_at_ms = None if completion.by_owner else transaction.now_ms
    if _move(transaction, completion, completion.from_state, ledger, overdue_at_ms):
        return True
    is_running = completion.from_state is AttemptState.RUNNING
    return is_running and _move(transaction, completion, AttemptState.CANCELLED_RUNNING, ledger, overdue_at_ms)


def move_attempt(transaction: Transaction, move: Transition, overdue_at_ms: int | None = None) -> bool:
    """One guarded transition; False if the attempt was not as expected, or not overdue at the time given."""
    return _move(transaction, move, move.from_state, move.to_ledger, overdue_at_ms)


def _move(
    transaction: Transaction,
    move: Transition | Completion,
    from_state: AttemptState,
    to_ledger: int,
    overdue_at_ms: int | None,
) -> bool:
    key = move.key
    changed = transaction.update(
        transaction.sql.move_attempt,
        move.to_state,
        to_ledger,
        move.failure,
        transaction.now_ms,
        key.number,
        key.execution,
        key.activity,
        key.dimension,
        key.attempt,
        move.owner,
        from_state,
        move.from_ledger,
        overdue_at_ms,
    )
    return changed > 0


def apply_completion(transaction: Transaction, completion: Completion) -> Outcome:
    """A completion without a turn: the response enters leg 2 and is put into the inbox (L4, L14, G5)."""
    answer = completion.event
    if answer is not None and _gate(transaction, completion.key) is DeliveryVerdict.DROP:
        answer = None
    ledger = completion.applied_ledger if answer is None else completion.entered_ledger
    if not close_by_completion(transaction, completion, ledger):
        return Rejected(reason="the attempt is closed, or owned by another worker")
    if answer is not None:
        put_in_inbox(transaction, completion.key.number, completion.key.execution, answer)
    return Applied()


def reopen_for_inbox(transaction: Transaction, completion: Completion) -> None:
    """The turn with this completion was rejected: undo the exit from leg 2, put the response into the inbox."""
    key = completion.key
    if completion.event is None or _gate(transaction, key) is DeliveryVerdict.DROP:
        return
    move_digits(transaction, key, completion.applied_ledger, completion.entered_ledger)
    put_in_inbox(transaction, key.number, key.execution, completion.event)


def move_digits(transaction: Transaction, key: AttemptKey, before: int, after: int) -> None:
    """Change the digits of an attempt whose row this transaction has seen."""
    changed = transaction.update(transaction.sql.exit_response, after, *key.primary_key, before)
    require(changed == 1, f"attempt {key} does not have the ledger {before:015d} that its response needs")


def apply_open_next_attempt(transaction: Transaction, retry: OpenNextAttempt) -> Outcome:
    """One attempt ends and the next opens, in one commit (G13)."""
    key = retry.ended.key
    overdue_at_ms = None if retry.by_owner else transaction.now_ms
    if not move_attempt(transaction, retry.ended, overdue_at_ms):
        cancelled = msgspec.structs.replace(retry.ended, from_state=AttemptState.CANCELLED_RUNNING)
        if retry.ended.from_state is AttemptState.RUNNING and move_attempt(transaction, cancelled, overdue_at_ms):
            return Applied()  # the code no longer waits for the activity, so it is not retried
        return Rejected(reason="the attempt is closed, or owned by another worker")
    if _gate(transaction, key) is not DeliveryVerdict.DROP:
        insert_attempt(transaction, key.number, key.execution, retry.next)
    return Applied()


def release(transaction: Transaction, attempt: AttemptRecord) -> None:
    """The claimer was lost before the body began: the same attempt is READY again; its next entry is a rerun (W6)."""
    expires = decode_options(attempt.options).expires_at_ready_ms(
        scheduled_at_ms=attempt.scheduled_at_ms, available_at_ms=transaction.now_ms
    )
    transaction.update(transaction.sql.release_attempt, expires, *attempt.key.primary_key)


def apply_claim_attempts(transaction: Transaction, claim: ClaimAttempts) -> Outcome:
    """Claim READY attempts in the order in which they became available, each by a guarded update (L2, L3, L8).

    The queue with the oldest attempt comes first, so that no queue starves.
    """
    taken: list[AttemptRecord] = []
    names = json.dumps(claim.names)
    for queue in _waiting_queues(transaction, claim.queues, names):
        left = claim.limit - len(taken)
        if left <= 0:
            break
        for row in transaction.fetch(transaction.sql.ready_attempts, queue, transaction.now_ms, names, left):
            claimed = _claim(transaction, claim, _with_input(transaction, attempt_of(row)))
            if claimed is not None:
                taken.append(claimed)
    return ClaimedAttempts(attempts=taken)


def _waiting_queues(transaction: Transaction, queues: Sequence[str], names: str) -> Sequence[str]:
    if len(queues) <= 1:
        return queues
    rows = transaction.fetch(transaction.sql.waiting_queues, json.dumps(queues), transaction.now_ms, names)
    return [queue for (queue,) in rows]


def _with_input(transaction: Transaction, attempt: AttemptRecord) -> AttemptRecord:
    """The attempt with its input in place. A missing payload stays a reference, and the body fails."""
    reference = reference_of(attempt.input)
    rows = transaction.fetch(transaction.sql.read_payload, attempt.key.number, reference) if reference else []
    return msgspec.structs.replace(attempt, input=rows[0][0]) if rows else attempt


def _claim(transaction: Transaction, claim: ClaimAttempts, ready: AttemptRecord) -> AttemptRecord | None:
    options = decode_options(ready.options)
    now_ms = transaction.now_ms
    entered, verdict = enter_leg1(ready.ledger, limit=options.max_claims)
    if verdict is Leg1Verdict.EXHAUSTED:
        _dead_letter(transaction, ready)
        return None
    ledger = conclude_leg1(entered)
    expires = options.expires_at_running_ms(
        scheduled_at_ms=ready.scheduled_at_ms, started_at_ms=now_ms, heard_at_ms=now_ms
    )
    started = (ledger, claim.owner, now_ms, now_ms, expires)
    transaction.update(transaction.sql.run_attempt, *started, *ready.key.primary_key, ready.ledger)
    return msgspec.structs.replace(
        ready,
        state=AttemptState.RUNNING,
        ledger=ledger,
        owner=claim.owner,
        started_at_ms=now_ms,
        heartbeat_at_ms=now_ms,
        expires_at_ms=expires,
    )


def _dead_letter(transaction: Transaction, ready: AttemptRecord) -> None:
    """L8: too many claims were lost before the body began. READY -> QUEUED -> FAILED in one commit."""
    claims = decode_options(ready.options).max_claims
    failure = Failure(
        type="holdfast.errors.ClaimsExhausted",
        message=f"{ready.name} was claimed {claims} times and each claimer was lost before it began",
        retryable=False,
    )
    queued = msgspec.structs.replace(ready, state=AttemptState.QUEUED)
    ended = end_by_failure(queued, failure, (), event=AttemptEvent.FAIL, now_ms=transaction.now_ms, random_number=0.0)
    require(isinstance(ended, Completion), "a failure that must not be retried was retried")
    if isinstance(ended, Completion):
        apply_completion(transaction, msgspec.structs.replace(ended, from_state=AttemptState.READY))


def apply_heartbeat(transaction: Transaction, beat: HeartbeatAttempt) -> Outcome:
    """A6: accepted for an open attempt of this owner. The rejection of a cancelled attempt carries the request."""
    seen = (transaction.now_ms, beat.details, beat.expires_at_ms)
    rows = transaction.fetch(transaction.sql.heartbeat_attempt, *seen, *beat.key.primary_key, beat.owner)
    if not rows:
        return Rejected(reason="the attempt is closed, or owned by another worker")
    return Rejected(reason=CANCEL_REQUESTED) if rows[0][0] == AttemptState.CANCELLED_RUNNING else Applied()


def _gate(transaction: Transaction, key: AttemptKey) -> DeliveryVerdict:
    """G4, G5: whether the instance still takes the answer of this attempt."""
    rows = transaction.fetch(transaction.sql.instance_gate, key.number)
    if not rows:
        return DeliveryVerdict.DROP
    state, execution, owner = rows[0]
    return decide_delivery(
        MessageKind.COMPLETION,
        state=InstanceState(state),
        loop_is_active=owner is not None,
        addressed_to=key.execution,
        execution=execution,
    )
