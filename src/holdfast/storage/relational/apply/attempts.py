"""Apply members about attempts: completions, next attempts, claims, prepared attempts, heartbeats.

Every change is guarded (A2, L13).
"""

import json
from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.core.activity_options import decode_options, expires_at_cancelled_ms
from holdfast.core.admission import DeliveryVerdict, MessageKind, decide_delivery
from holdfast.core.checks import require
from holdfast.core.ledger import Leg1Verdict, conclude_leg1, enter_leg1, read_ledger
from holdfast.core.lifecycle import ATTEMPT_FINAL, INSTANCE_FINAL, AttemptEvent, AttemptState, InstanceState, next_state
from holdfast.core.pauses import may_pause, withheld_ms
from holdfast.payloads.failures import RecordedFailure
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.storage.attempt_endings import end_by_cancel, end_by_failure, end_exhausted, let_through
from holdfast.storage.large_payloads import large_payload, reference_of
from holdfast.storage.members.attempts import (
    CancelActivity,
    ClaimAttempts,
    Completion,
    HeartbeatAttempt,
    OpenNextAttempt,
    RunPrepared,
    Transition,
)
from holdfast.storage.members.member import CANCEL_AWAITED, CANCEL_REQUESTED
from holdfast.storage.members.outcomes import Applied, CancelledActivity, ClaimedAttempts, Outcome, Rejected
from holdfast.storage.records import AttemptKey, AttemptRecord, InstanceNumber, NewAttempt
from holdfast.storage.relational.apply.shared_writes import input_column, insert_payloads, offer_attempt, put_in_inbox
from holdfast.storage.relational.apply.withholding import pause_instance, withheld
from holdfast.storage.relational.rows import attempt_of
from holdfast.storage.relational.transaction import Transaction

RUNNING: Final = AttemptState.RUNNING


def insert_attempt(transaction: Transaction, number: InstanceNumber, execution: int, new: NewAttempt) -> None:
    """Insert an attempt: READY, or in the name of the worker that inserts it PREPARING or RUNNING."""
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
        transaction.now_ms if new.state is RUNNING else None,
        new.expires_at_ms,
        new.failures,
        new.losses,
        new.details,
    )
    if new.owner is None:
        transaction.wakeups.queues.add(new.queue)
    if new.is_external:
        offer_attempt(transaction, AttemptKey(number, execution, new.activity, new.attempt), new.name, entry=1)


def close_by_completion(transaction: Transaction, completion: Completion, ledger: int) -> bool:
    """Move the attempt to its final state with the digits given; False if it was not as expected.

    A request to cancel that came in between does not make a result stale, nor a failure that nothing waits for any
    more (A1). A failure for which the workflow waits is stale: it is answered by `end_as_cancelled`.
    """
    overdue_at_ms = None if completion.by_owner else transaction.now_ms
    if _move(transaction, completion, completion.from_state, ledger, overdue_at_ms):
        return True
    if completion.from_state is not AttemptState.RUNNING:
        return False
    if completion.to_state is not AttemptState.COMPLETED and _cancel_requested_for(transaction, completion) is not None:
        return False
    return _move(transaction, completion, AttemptState.CANCELLED_RUNNING, ledger, overdue_at_ms)


def _cancel_requested_for(transaction: Transaction, ended: Completion | Transition) -> AttemptRecord | None:
    """The attempt, if its owner reports the end of a RUNNING attempt whose cancel was requested from outside since."""
    if ended.from_state is not AttemptState.RUNNING:
        return None
    for row in transaction.fetch(transaction.sql.lock_attempt, *ended.key.primary_key):
        attempt = attempt_of(row)
        is_requested = attempt.cancel_requested_at_ms is not None and attempt.owner == ended.owner
        return attempt if is_requested and attempt.state is AttemptState.CANCELLED_RUNNING else None
    return None


def end_as_cancelled(transaction: Transaction, ended: Completion | Transition, *, by_owner: bool) -> bool:
    """Answer the failure of an attempt whose cancel was requested from outside since its body failed.

    The workflow gets `ActivityCancelled` instead of the failure, and there is no retry (A1). False if there is no such
    request, or the attempt is not as its owner saw it.
    """
    attempt = None if ended.to_state is AttemptState.COMPLETED else _cancel_requested_for(transaction, ended)
    if attempt is None:
        return False
    event = AttemptEvent.FAIL if ended.to_state is AttemptState.FAILED else AttemptEvent.EXPIRE
    answer = end_by_cancel(attempt, event, now_ms=transaction.now_ms, failure=ended.failure)
    return isinstance(apply_completion(transaction, msgspec.structs.replace(answer, by_owner=by_owner)), Applied)


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
    if answer is not None and _gate(transaction, completion.key)[0] is DeliveryVerdict.DROP:
        answer = None
    ledger = completion.applied_ledger if answer is None else completion.entered_ledger
    if not close_by_completion(transaction, completion, ledger):
        if end_as_cancelled(transaction, completion, by_owner=completion.by_owner):
            return Applied()
        return Rejected(reason="the attempt is closed, or owned by another worker")
    if answer is not None:
        put_in_inbox(transaction, completion.key.number, completion.key.execution, answer)
    return Applied()


def reopen_for_inbox(transaction: Transaction, completion: Completion) -> None:
    """The turn with this completion was rejected: undo the exit from leg 2, put the response into the inbox."""
    key = completion.key
    if completion.event is None or _gate(transaction, key)[0] is DeliveryVerdict.DROP:
        return
    move_digits(transaction, key, completion.applied_ledger, completion.entered_ledger)
    put_in_inbox(transaction, key.number, key.execution, completion.event)


def move_digits(transaction: Transaction, key: AttemptKey, before: int, after: int) -> None:
    """Change the digits of an attempt whose row this transaction has seen."""
    changed = transaction.update(transaction.sql.exit_response, after, *key.primary_key, before)
    require(changed == 1, f"attempt {key} does not have the ledger {before:015d} that its response needs")


def apply_open_next_attempt(transaction: Transaction, retry: OpenNextAttempt) -> Outcome:
    """One attempt ends and the next opens, in one commit (G13).

    The next attempt of a PAUSED instance is withheld (R21). If the retries are used up, the instance is paused (R26),
    unless it is BLOCKED or was asked to cancel: then its activity fails.
    """
    key = retry.ended.key
    if retry.exhausted is not None and _fails_if_exhausted(transaction, key):
        return apply_completion(transaction, let_through(retry, now_ms=transaction.now_ms))
    overdue_at_ms = None if retry.by_owner else transaction.now_ms
    if not move_attempt(transaction, retry.ended, overdue_at_ms):
        if end_as_cancelled(transaction, retry.ended, by_owner=retry.by_owner):
            return Applied()
        cancelled = msgspec.structs.replace(retry.ended, from_state=AttemptState.CANCELLED_RUNNING)
        if retry.ended.from_state is AttemptState.RUNNING and move_attempt(transaction, cancelled, overdue_at_ms):
            return Applied()  # the code no longer waits for the activity, so it is not retried
        return Rejected(reason="the attempt is closed, or owned by another worker")
    verdict, state = _gate(transaction, key)
    if verdict is DeliveryVerdict.DROP:
        return Applied()
    is_withheld = state is InstanceState.PAUSED or retry.exhausted is not None
    insert_attempt(transaction, key.number, key.execution, withheld(retry.next) if is_withheld else retry.next)
    if retry.exhausted is not None:
        opened = msgspec.structs.replace(key, attempt=retry.next.attempt)
        transaction.update(transaction.sql.hold_attempt, retry.ended.failure, *opened.primary_key)
        if state is not InstanceState.PAUSED:
            pause_instance(transaction, key.number, retry.exhausted)
    return Applied()


def _fails_if_exhausted(transaction: Transaction, key: AttemptKey) -> bool:
    """Whether the instance cannot be paused: then an activity whose retries are used up fails."""
    verdict, state = _gate(transaction, key)
    return verdict is not DeliveryVerdict.DROP and state is not InstanceState.PAUSED and not may_pause(state)


def answer_exhausted(transaction: Transaction, number: InstanceNumber) -> None:
    """Let the failures of activities whose retries are used up through: nothing runs them again (R27)."""
    for row in transaction.fetch(transaction.sql.exhausted_attempts, number):
        ended = end_exhausted(attempt_of(row), now_ms=transaction.now_ms)
        applied = isinstance(apply_completion(transaction, ended), Applied)
        require(applied, f"attempt {ended.key} was not READY any more inside one transaction")


def apply_cancel_activity(transaction: Transaction, member: CancelActivity) -> Outcome:
    """Cancel the newest attempt of an activity from outside. The lock of the instance keeps a next one from opening."""
    where = (member.number, member.execution, member.activity, member.dimension)
    gate = transaction.fetch(transaction.sql.instance_gate, member.number)
    is_there = bool(gate) and gate[0][0] not in INSTANCE_FINAL and gate[0][1] == member.execution
    rows = transaction.fetch(transaction.sql.newest_attempt, *where) if is_there else []
    if not rows:
        return Rejected(reason="its execution has ended")
    attempt = attempt_of(rows[0])
    if attempt.state in ATTEMPT_FINAL:
        return Rejected(reason=f"its last attempt is {attempt.state}")
    return CancelledActivity(key=attempt.key, state=cancel_attempt(transaction, attempt))


def cancel_newest(transaction: Transaction, number: InstanceNumber, execution: int, activity: int) -> None:
    """Cancel the newest attempt of an activity whose end its own turn waits for. If it has ended, its answer comes."""
    for row in transaction.fetch(transaction.sql.newest_attempt, number, execution, activity, ""):
        attempt = attempt_of(row)
        if attempt.state not in ATTEMPT_FINAL:
            cancel_attempt(transaction, attempt)


def cancel_attempt(transaction: Transaction, attempt: AttemptRecord) -> AttemptState:
    """The cancel column of the transition table for an attempt that this transaction has locked (A1).

    An attempt that no executor has is CANCELLED, and its workflow gets the answer. A running one is asked to stop, and
    the workflow waits for its end. `IllegalTransition` if the attempt has ended.
    """
    state = next_state(attempt.state, AttemptEvent.CANCEL)
    if attempt.state is AttemptState.RUNNING:
        now_ms = transaction.now_ms
        expires = expires_at_cancelled_ms(
            decode_options(attempt.options),
            scheduled_at_ms=attempt.scheduled_at_ms,
            started_at_ms=attempt.started_at_ms or attempt.scheduled_at_ms,
            heard_at_ms=now_ms,
        )
        changed = transaction.update(
            transaction.sql.request_activity_cancel, now_ms, expires, *attempt.key.primary_key, attempt.ledger
        )
        require(changed == 1, f"attempt {attempt.key} was not RUNNING any more inside one transaction")
    elif state is AttemptState.CANCELLED:
        ended = end_by_cancel(attempt, AttemptEvent.CANCEL, now_ms=transaction.now_ms)
        applied = isinstance(apply_completion(transaction, ended), Applied)
        require(applied, f"attempt {attempt.key} was not {attempt.state} any more inside one transaction")
    return state


def release(transaction: Transaction, attempt: AttemptRecord) -> bool:
    """The claimer was lost before the body began: the same attempt is READY again; its next entry is a rerun (W6).

    An external attempt is offered under a new exec id, or ends if no further entry is allowed (L8). Returns whether it
    is READY.
    """
    options = decode_options(attempt.options)
    transaction.wakeups.queues.add(attempt.queue)
    if options.external is not None:
        return _offer_again(transaction, attempt, most_entries=options.max_claims)
    expires = options.expires_at_ready_ms(scheduled_at_ms=attempt.scheduled_at_ms, available_at_ms=transaction.now_ms)
    _release(transaction, attempt, expires)
    return True


def _release(transaction: Transaction, attempt: AttemptRecord, expires_at_ms: int | None) -> None:
    """The attempt is READY again; that of a PAUSED instance is withheld (R21)."""
    available_at_ms = attempt.available_at_ms
    if _gate(transaction, attempt.key)[1] is InstanceState.PAUSED:
        available_at_ms = withheld_ms(available_at_ms)
        expires_at_ms = None if expires_at_ms is None else withheld_ms(expires_at_ms)
    transaction.update(transaction.sql.release_attempt, available_at_ms, expires_at_ms, *attempt.key.primary_key)


def has_new_report(transaction: Transaction, attempt: AttemptRecord) -> bool:
    """Whether a report about an external attempt waits to be handled: its claim is not released before that (A5)."""
    offers = transaction.fetch(transaction.sql.current_offer, *attempt.key.primary_key)
    return any(transaction.fetch(transaction.sql.has_new_report, exec_id) for exec_id, _ in offers)


def _offer_again(transaction: Transaction, attempt: AttemptRecord, *, most_entries: int) -> bool:
    for exec_id, _ in transaction.fetch(transaction.sql.current_offer, *attempt.key.primary_key):
        transaction.update(transaction.sql.withdraw_offer, transaction.now_ms, exec_id)
    entries = read_ledger(attempt.ledger).leg1_entries
    if entries >= most_entries:
        dead_letter(transaction, attempt)
        return False
    expires = decode_options(attempt.options).expires_at_ready_ms(
        scheduled_at_ms=attempt.scheduled_at_ms, available_at_ms=attempt.available_at_ms
    )
    _release(transaction, attempt, expires)
    offer_attempt(transaction, attempt.key, attempt.name, entry=entries + 1)
    return True


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
            claimed = _claim(transaction, claim, with_input(transaction, attempt_of(row)))
            if claimed is not None:
                taken.append(claimed)
    return ClaimedAttempts(attempts=taken)


def _waiting_queues(transaction: Transaction, queues: Sequence[str], names: str) -> Sequence[str]:
    if len(queues) <= 1:
        return queues
    rows = transaction.fetch(transaction.sql.waiting_queues, json.dumps(queues), transaction.now_ms, names)
    return [queue for (queue,) in rows]


def with_input(transaction: Transaction, attempt: AttemptRecord) -> AttemptRecord:
    """The attempt with its input in place. A missing payload stays a reference, and the body fails."""
    reference = reference_of(attempt.input)
    rows = transaction.fetch(transaction.sql.read_payload, attempt.key.number, reference) if reference else []
    return msgspec.structs.replace(attempt, input=rows[0][0]) if rows else attempt


def _claim(transaction: Transaction, claim: ClaimAttempts, ready: AttemptRecord) -> AttemptRecord | None:
    options = decode_options(ready.options)
    if options.external is not None:
        return None  # an executor claims it; this worker has an activity of the same name
    now_ms = transaction.now_ms
    entered, verdict = enter_leg1(ready.ledger, limit=options.max_claims)
    if verdict is Leg1Verdict.EXHAUSTED:
        dead_letter(transaction, ready)
        return None
    if options.prepares:
        transaction.update(transaction.sql.prepare_attempt, entered, claim.owner, *ready.key.primary_key, ready.ledger)
        return msgspec.structs.replace(ready, state=AttemptState.PREPARING, ledger=entered, owner=claim.owner)
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


def dead_letter(transaction: Transaction, attempt: AttemptRecord) -> None:
    """L8: too many claims were lost before the body began. From READY it is READY -> QUEUED -> FAILED in one commit."""
    claims = decode_options(attempt.options).max_claims
    failure = RecordedFailure(
        type="holdfast.errors.ClaimsExhausted",
        message=f"{attempt.name} was claimed {claims} times and each claimer was lost before it began",
        retryable=False,
    )
    claimed = attempt
    if attempt.state is AttemptState.READY:
        claimed = msgspec.structs.replace(attempt, state=AttemptState.QUEUED)
    ended = end_by_failure(
        claimed, failure, (), event=AttemptEvent.FAIL, now_ms=transaction.now_ms, random_number=0.0, is_exhausted=True
    )
    if isinstance(ended, Completion):
        apply_completion(transaction, msgspec.structs.replace(ended, from_state=attempt.state))
    else:
        require(ended.exhausted is not None, "a failure that must not be retried was retried")
        moved = msgspec.structs.replace(ended.ended, from_state=attempt.state)
        apply_open_next_attempt(transaction, msgspec.structs.replace(ended, ended=moved))


def apply_run_prepared(transaction: Transaction, member: RunPrepared) -> Outcome:
    """Conclude leg 1 of a prepared attempt: its body may begin (L3). Applied once, and found applied after that."""
    now_ms = transaction.now_ms
    ledger = conclude_leg1(member.from_ledger)
    started = (ledger, now_ms, now_ms, member.expires_at_ms)
    guard = (*member.key.primary_key, member.owner)
    if transaction.fetch(transaction.sql.run_prepared, *started, *guard, member.from_ledger):
        return Applied()
    for state in (RUNNING, AttemptState.CANCELLED_RUNNING):
        if transaction.fetch(transaction.sql.owned_attempt, *guard, state, ledger):
            return Applied(changed=0)  # the reply to an earlier commit was lost, and the worker submits it again
    return Rejected(reason="the attempt is closed, or owned by another worker")


def apply_heartbeat(transaction: Transaction, beat: HeartbeatAttempt) -> Outcome:
    """A6: accepted for an open attempt of this owner. The rejection of a cancelled attempt carries the request."""
    seen = (transaction.now_ms, beat.details, beat.expires_at_ms)
    rows = transaction.fetch(transaction.sql.heartbeat_attempt, *seen, *beat.key.primary_key, beat.owner)
    if not rows:
        return Rejected(reason="the attempt is closed, or owned by another worker")
    return refusal_of_cancelled(*rows[0]) or Applied()


def refusal_of_cancelled(state: AttemptState, cancel_requested_at_ms: int | None) -> Rejected | None:
    """The reply to a heartbeat or to values of an attempt that was asked to stop (A6); None if it was not."""
    if state != AttemptState.CANCELLED_RUNNING:
        return None
    return Rejected(reason=CANCEL_REQUESTED if cancel_requested_at_ms is None else CANCEL_AWAITED)


def _gate(transaction: Transaction, key: AttemptKey) -> tuple[DeliveryVerdict, InstanceState]:
    """G4, G5: whether the instance still takes the answer of this attempt, and its state. Locks its row."""
    rows = transaction.fetch(transaction.sql.instance_gate, key.number)
    if not rows:
        return DeliveryVerdict.DROP, InstanceState.TERMINATED
    state, execution, owner = rows[0]
    verdict = decide_delivery(
        MessageKind.COMPLETION,
        state=InstanceState(state),
        loop_is_active=owner is not None,
        addressed_to=key.execution,
        execution=execution,
    )
    return verdict, InstanceState(state)
