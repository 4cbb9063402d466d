"""Members about attempts, streamed values and workers, applied to the tables in memory (A2, L2-L15, W3, W6)."""

from collections.abc import Iterable

import msgspec
from tests.stores.memory_tables import MemoryTables, Value

from holdfast.core.activity_options import decode_options, expires_at_cancelled_ms
from holdfast.core.admission import DeliveryVerdict, MessageKind, decide_delivery, stamp_ms
from holdfast.core.checks import require
from holdfast.core.history import ActivityCompleted, ActivityFailed, ActivityYielded, encode_event
from holdfast.core.leases import LOSS_EVENT, WorkerState
from holdfast.core.ledger import LEG2_CLOSURE, RESPONSE_ENTRY, UNTOUCHED, Leg1Verdict, conclude_leg1, enter_leg1
from holdfast.core.lifecycle import (
    ATTEMPT_FINAL,
    INSTANCE_FINAL,
    AttemptEvent,
    AttemptState,
    InstanceEvent,
    InstanceState,
    next_state,
)
from holdfast.core.pauses import available_after_ms, original_ms, withheld_ms
from holdfast.core.streams import enter_pending, pass_pending
from holdfast.payloads.failures import RecordedFailure
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.storage.attempt_endings import (
    end_by_cancel,
    end_by_failure,
    end_by_loss,
    end_exhausted,
    let_through,
)
from holdfast.storage.large_payloads import large_payload, marked, offload, reference_of
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
from holdfast.storage.members.turns import AppliedValues, StreamValues
from holdfast.storage.members.workers import MarkWorkerLost, ReleaseUnknown
from holdfast.storage.records import (
    AttemptKey,
    AttemptRecord,
    Fence,
    InstanceNumber,
    InstanceRecord,
    LargePayload,
    NewAttempt,
)

MAY_HOLD = (InstanceState.RUNNING, InstanceState.PAUSED)
STALE = "the attempt is closed, or owned by another worker"
CANCELLABLE = (
    AttemptState.REQUESTED,
    AttemptState.READY,
    AttemptState.QUEUED,
    AttemptState.PREPARING,
    AttemptState.RUNNING,
)


# ---------------------------------------------------------------- payloads


def write_payloads(tables: MemoryTables, number: InstanceNumber, payloads: "list[LargePayload]") -> None:
    for payload in payloads:
        tables.payloads.put((number, payload.reference), Value(data=payload.data))


def stored_input(tables: MemoryTables, number: InstanceNumber, given: bytes) -> bytes:
    """The input as a row has it: a large one is a reference to the table of payloads."""
    if len(given) <= INLINE_LIMIT_BYTES:
        return given
    large = large_payload(given)
    write_payloads(tables, number, [large])
    return marked(large.reference)


def deliver_answer(
    tables: MemoryTables, key: AttemptKey, event: ActivityCompleted | ActivityFailed | ActivityYielded
) -> None:
    """Put the answer of an attempt into the inbox of its instance, stamped now (G10)."""
    payloads: list[LargePayload] = []
    stored = offload(event, payloads)
    stored = msgspec.structs.replace(stored, time_ms=stamp_ms(stored.time_ms, tables.now_ms))
    write_payloads(tables, key.number, payloads)
    tables.put_in_inbox(key.number, key.execution, encode_event(stored))
    tables.wake(key.number)


# ---------------------------------------------------------------- attempts


def insert_attempt(tables: MemoryTables, number: InstanceNumber, execution: int, new: NewAttempt) -> None:
    key = AttemptKey(number, execution, new.activity, new.attempt)
    row = AttemptRecord(
        key=key,
        name=new.name,
        queue=new.queue,
        state=new.state,
        ledger=new.ledger,
        input=stored_input(tables, number, new.input),
        options=new.options,
        available_at_ms=new.available_at_ms,
        scheduled_at_ms=new.scheduled_at_ms,
        started_at_ms=tables.now_ms if new.state is AttemptState.RUNNING else None,
        expires_at_ms=new.expires_at_ms,
        owner=new.owner,
        failures=new.failures,
        losses=new.losses,
        details=new.details,
    )
    tables.attempts.insert(key, row)


def move_attempt(tables: MemoryTables, move: Transition, *, overdue_only: bool = False) -> bool:
    """A guarded transition to a final state. Whether the attempt was as expected.

    The digits that count exits are not compared: they belong to the turns of the instance.
    """
    found = tables.attempts.get(move.key)
    if found is None or (found.owner, found.state) != (move.owner, move.from_state):
        return False
    if found.ledger // RESPONSE_ENTRY != move.from_ledger // RESPONSE_ENTRY:
        return False
    if overdue_only and (found.expires_at_ms is None or found.expires_at_ms > tables.now_ms):
        return False
    tables.attempts.change(
        move.key,
        state=move.to_state,
        ledger=found.ledger + move.to_ledger - move.from_ledger,
        failure=move.failure,
        closed_at_ms=tables.now_ms,
        expires_at_ms=None,
    )
    return True


def close_attempt(tables: MemoryTables, completion: Completion, ledger: int) -> bool:
    """Close the attempt of a completion. A request to cancel that came meanwhile does not make it stale (A1), unless
    it is a failure and the request came from outside."""
    if completion.to_state is not AttemptState.COMPLETED and _asked_meanwhile(tables, completion) is not None:
        return False
    move = Transition(
        key=completion.key,
        owner=completion.owner,
        from_state=completion.from_state,
        from_ledger=completion.from_ledger,
        to_state=completion.to_state,
        to_ledger=ledger,
        failure=completion.failure,
    )
    return _move_or_stop(tables, move, by_owner=completion.by_owner) is not None


def _asked_meanwhile(tables: MemoryTables, ended: Completion | Transition) -> AttemptRecord | None:
    """The attempt, if its owner saw it RUNNING and its cancel was requested from outside since then."""
    found = tables.attempts.get(ended.key)
    if found is None or ended.from_state is not AttemptState.RUNNING or found.owner != ended.owner:
        return None
    is_asked = found.state is AttemptState.CANCELLED_RUNNING and found.cancel_requested_at_ms is not None
    return found if is_asked else None


def end_as_cancelled(tables: MemoryTables, ended: Completion | Transition, *, by_owner: bool) -> bool:
    """The failure of an attempt that was cancelled from outside meanwhile is answered by `ActivityCancelled`."""
    found = None if ended.to_state is AttemptState.COMPLETED else _asked_meanwhile(tables, ended)
    if found is None:
        return False
    event = AttemptEvent.FAIL if ended.to_state is AttemptState.FAILED else AttemptEvent.EXPIRE
    answer = end_by_cancel(found, event, now_ms=tables.now_ms, failure=ended.failure)
    return isinstance(apply_completion(tables, msgspec.structs.replace(answer, by_owner=by_owner)), Applied)


def _move_or_stop(tables: MemoryTables, move: Transition, *, by_owner: bool) -> AttemptState | None:
    """The state in which the attempt was found; None if the move is stale."""
    states = [move.from_state]
    if move.from_state is AttemptState.RUNNING:
        states.append(AttemptState.CANCELLED_RUNNING)
    for state in states:
        if move_attempt(tables, msgspec.structs.replace(move, from_state=state), overdue_only=not by_owner):
            return state
    return None


def apply_completion(tables: MemoryTables, completion: Completion) -> Outcome:
    """A completion without its turn: the answer enters leg 2 and waits in the inbox (L4, L14, G5)."""
    answer = completion.event if _is_wanted(tables, completion.key) else None
    ledger = completion.applied_ledger if answer is None else completion.entered_ledger
    if not close_attempt(tables, completion, ledger):
        is_answered = end_as_cancelled(tables, completion, by_owner=completion.by_owner)
        return Applied() if is_answered else Rejected(reason=STALE)
    if answer is not None:
        deliver_answer(tables, completion.key, answer)
    return Applied()


def _is_wanted(tables: MemoryTables, key: AttemptKey) -> bool:
    """Whether the execution that scheduled an attempt is still there to take its answer (G4, G5)."""
    instance = tables.instances.get(key.number)
    if instance is None:
        return False
    verdict = decide_delivery(
        MessageKind.COMPLETION,
        state=instance.state,
        loop_is_active=instance.owner is not None,
        addressed_to=key.execution,
        execution=instance.execution,
    )
    return verdict is not DeliveryVerdict.DROP


def apply_open_next_attempt(tables: MemoryTables, retry: OpenNextAttempt) -> Outcome:
    """One attempt ends and the next opens (G13). One that was asked to stop is not tried again."""
    if end_as_cancelled(tables, retry.ended, by_owner=retry.by_owner):
        return Applied()
    key = retry.ended.key
    instance = tables.instances.get(key.number)
    state = None if instance is None else instance.state
    if retry.exhausted is not None and _is_wanted(tables, key) and state not in MAY_HOLD:
        return apply_completion(tables, let_through(retry, now_ms=tables.now_ms))
    found = _move_or_stop(tables, retry.ended, by_owner=retry.by_owner)
    if found is None:
        return Rejected(reason=STALE)
    if found is not retry.ended.from_state or not _is_wanted(tables, key):
        return Applied()
    insert_attempt(tables, key.number, key.execution, retry.next)
    opened = msgspec.structs.replace(key, attempt=retry.next.attempt)
    if retry.exhausted is not None:
        tables.attempts.change(opened, failure=retry.ended.failure)
        if state is not InstanceState.PAUSED:
            pause_instance(tables, key.number, retry.exhausted)
    if state is InstanceState.PAUSED:
        withhold_attempts(tables, key.number)
    return Applied()


# ---------------------------------------------------------------- pauses


def pause_instance(tables: MemoryTables, number: InstanceNumber, reason: str) -> None:
    """R20: the fence and the owner change, and no attempt that is READY is claimed."""
    row = tables.instances[number]
    tables.instances.change(
        number,
        state=next_state(row.state, InstanceEvent.PAUSE),
        paused_from=row.state.value,
        paused_at_ms=tables.now_ms,
        pause_reason=reason,
        fence=Fence(row.fence + 1),
        owner=None,
        claimable_at_ms=None,
    )
    withhold_attempts(tables, number)


def withhold_attempts(tables: MemoryTables, number: InstanceNumber) -> None:
    """R21: READY attempts are withheld, and their deadlines do not pass."""
    for row in tables.attempts_of(number):
        if row.state is AttemptState.READY and not row.is_withheld:
            expires_at_ms = None if row.expires_at_ms is None else withheld_ms(row.expires_at_ms)
            available_at_ms = withheld_ms(row.available_at_ms)
            tables.attempts.change(row.key, available_at_ms=available_at_ms, expires_at_ms=expires_at_ms)


def restore_attempts(tables: MemoryTables, paused: InstanceRecord) -> tuple[str, ...]:
    """R22: what was withheld is available again, and its deadlines have moved by the length of the pause."""
    now_ms = tables.now_ms
    since_ms = now_ms if paused.paused_at_ms is None else paused.paused_at_ms
    withheld = [row for row in tables.attempts_of(paused.number) if row.is_withheld]
    for row in withheld:
        expires_at_ms = None if row.expires_at_ms is None else original_ms(row.expires_at_ms) + now_ms - since_ms
        tables.attempts.change(
            row.key,
            available_at_ms=available_after_ms(original_ms(row.available_at_ms), paused_at_ms=since_ms, now_ms=now_ms),
            scheduled_at_ms=row.scheduled_at_ms + now_ms - since_ms,
            expires_at_ms=expires_at_ms,
            failure=None,
        )
    return tuple(sorted({row.queue for row in withheld}))


def answer_exhausted(tables: MemoryTables, number: InstanceNumber) -> None:
    """R27: the activities whose retries are used up fail."""
    for row in tables.attempts_of(number):
        if row.is_exhausted:
            apply_completion(tables, end_exhausted(row, now_ms=tables.now_ms))


def apply_heartbeat_attempt(tables: MemoryTables, beat: HeartbeatAttempt) -> Outcome:
    """A6: taken from the owner of a running attempt; the answer carries a request to cancel."""
    found = tables.attempts.get(beat.key)
    running = (AttemptState.RUNNING, AttemptState.CANCELLED_RUNNING)
    if found is None or found.owner != beat.owner or found.state not in running:
        return Rejected(reason=STALE)
    details = found.details if beat.details is None else beat.details
    tables.attempts.change(beat.key, heartbeat_at_ms=tables.now_ms, details=details, expires_at_ms=beat.expires_at_ms)
    if found.state is not AttemptState.CANCELLED_RUNNING:
        return Applied()
    return Rejected(reason=CANCEL_REQUESTED if found.cancel_requested_at_ms is None else CANCEL_AWAITED)


def apply_cancel_activity(tables: MemoryTables, member: CancelActivity) -> Outcome:
    """Cancel the newest attempt of an activity from outside of its workflow (A1)."""
    instance = tables.instances.get(member.number)
    if instance is None or instance.state in INSTANCE_FINAL or instance.execution != member.execution:
        return Rejected(reason="its execution has ended")
    where = (member.execution, member.activity, member.dimension)
    tries = [
        row
        for row in tables.attempts_of(member.number)
        if (row.key.execution, row.key.activity, row.key.dimension) == where
    ]
    row = max(tries, key=lambda each: each.key.attempt, default=None)
    if row is None or row.state in ATTEMPT_FINAL:
        return Rejected(reason="its execution has ended" if row is None else f"its last attempt is {row.state}")
    state = next_state(row.state, AttemptEvent.CANCEL)
    if row.state is AttemptState.RUNNING:
        expires = expires_at_cancelled_ms(
            decode_options(row.options),
            scheduled_at_ms=row.scheduled_at_ms,
            started_at_ms=row.started_at_ms or row.scheduled_at_ms,
            heard_at_ms=tables.now_ms,
        )
        tables.attempts.change(row.key, state=state, cancel_requested_at_ms=tables.now_ms, expires_at_ms=expires)
    elif state is AttemptState.CANCELLED:
        apply_completion(tables, end_by_cancel(row, AttemptEvent.CANCEL, now_ms=tables.now_ms))
    return CancelledActivity(key=row.key, state=state)


def apply_claim_attempts(tables: MemoryTables, claim: ClaimAttempts) -> Outcome:
    """Claim READY attempts, oldest first; of several queues that one first whose attempt has waited longest."""
    ready: dict[str, list[AttemptRecord]] = {}
    for row in sorted(tables.attempts.values(), key=lambda row: row.available_at_ms):
        is_ready = row.state is AttemptState.READY and row.available_at_ms <= tables.now_ms
        if is_ready and row.queue in claim.queues and row.name in claim.names:
            ready.setdefault(row.queue, []).append(row)
    taken: list[AttemptRecord] = []
    for rows in ready.values():  # in the order in which the queues were met: by their oldest attempts
        claimed = (_claim(tables, claim, row) for row in rows[: claim.limit - len(taken)])
        taken += [row for row in claimed if row is not None]
    return ClaimedAttempts(attempts=taken)


def _claim(tables: MemoryTables, claim: ClaimAttempts, row: AttemptRecord) -> AttemptRecord | None:
    options, now_ms = decode_options(row.options), tables.now_ms
    entered, verdict = enter_leg1(row.ledger, limit=options.max_claims)
    if verdict is Leg1Verdict.EXHAUSTED:
        _fail_exhausted(tables, row, options.max_claims)
        return None
    if options.prepares:
        preparing = tables.attempts.change(row.key, state=AttemptState.PREPARING, ledger=entered, owner=claim.owner)
        return _with_input(tables, preparing)
    claimed = tables.attempts.change(
        row.key,
        state=AttemptState.RUNNING,
        ledger=conclude_leg1(entered),
        owner=claim.owner,
        started_at_ms=now_ms,
        heartbeat_at_ms=now_ms,
        expires_at_ms=options.expires_at_running_ms(
            scheduled_at_ms=row.scheduled_at_ms, started_at_ms=now_ms, heard_at_ms=now_ms
        ),
    )
    return _with_input(tables, claimed)


def _with_input(tables: MemoryTables, row: AttemptRecord) -> AttemptRecord:
    large = tables.payloads.get((row.key.number, reference_of(row.input)))
    return with_instance(tables, msgspec.structs.replace(row, input=row.input if large is None else large.data))


def apply_run_prepared(tables: MemoryTables, member: RunPrepared) -> Outcome:
    """L3: the preparation has ended, and the body may begin. The same member again changes nothing."""
    found = tables.attempts.get(member.key)
    ledger = conclude_leg1(member.from_ledger)
    if found is None or found.owner != member.owner:
        return Rejected(reason=STALE)
    if (found.state, found.ledger) == (AttemptState.PREPARING, member.from_ledger):
        tables.attempts.change(
            member.key,
            state=AttemptState.RUNNING,
            ledger=ledger,
            started_at_ms=tables.now_ms,
            heartbeat_at_ms=tables.now_ms,
            expires_at_ms=member.expires_at_ms,
        )
        return Applied()
    is_applied = found.state in (AttemptState.RUNNING, AttemptState.CANCELLED_RUNNING) and found.ledger == ledger
    return Applied(changed=0) if is_applied else Rejected(reason=STALE)


def with_instance(tables: MemoryTables, row: AttemptRecord) -> AttemptRecord:
    """An attempt with the id and the workflow of its instance, for whoever runs or ends it."""
    instance = tables.instances[row.key.number]
    return msgspec.structs.replace(row, instance_id=instance.id, workflow=instance.workflow)


def _fail_exhausted(tables: MemoryTables, row: AttemptRecord, claims: int) -> None:
    """L8: too many claims were lost before the body began. READY -> QUEUED -> FAILED in one commit."""
    failure = RecordedFailure(
        type="holdfast.errors.ClaimsExhausted",
        message=f"{row.name} was claimed {claims} times and each claimer was lost before it began",
        retryable=False,
    )
    queued = msgspec.structs.replace(row, state=next_state(row.state, AttemptEvent.QUEUE))
    ended = end_by_failure(
        queued,
        failure,
        (),
        event=AttemptEvent.FAIL,
        now_ms=tables.now_ms,
        random_number=0.0,
        is_exhausted=True,
    )
    if isinstance(ended, Completion):
        apply_completion(tables, msgspec.structs.replace(ended, from_state=row.state))
    else:
        moved = msgspec.structs.replace(ended.ended, from_state=row.state)
        apply_open_next_attempt(tables, msgspec.structs.replace(ended, ended=moved))


# ---------------------------------------------------------------- the digits of attempts


def entered_of(ledger: int) -> int:
    """How many responses have entered leg 2."""
    return ledger % LEG2_CLOSURE // RESPONSE_ENTRY


def exited_of(ledger: int) -> int:
    """How many responses have left leg 2."""
    return ledger % RESPONSE_ENTRY


def exit_response(tables: MemoryTables, response: Transition) -> None:
    """A turn has applied the answer of an attempt, which waited in the inbox."""
    found = tables.attempts.get(response.key)
    same = found is not None and found.ledger // RESPONSE_ENTRY == response.from_ledger // RESPONSE_ENTRY
    require(same, f"attempt {response.key} does not have the ledger {response.from_ledger:015d}")
    if found is not None:
        tables.attempts.change(response.key, ledger=found.ledger + response.to_ledger - response.from_ledger)


def exit_values(tables: MemoryTables, left: AppliedValues) -> None:
    """A turn has applied so many streamed values of an attempt (L5)."""
    ledger = tables.attempts[left.key].ledger
    require(entered_of(ledger) - exited_of(ledger) >= left.count, f"attempt {left.key} has no {left.count} responses")
    tables.attempts.change(left.key, ledger=ledger + left.count)


def exit_all_responses(tables: MemoryTables, number: InstanceNumber) -> None:
    """An execution ends: the responses that nobody applied count as applied, and what they answer is closed (A8)."""
    for row in tables.attempts_of(number):
        waiting = entered_of(row.ledger) - exited_of(row.ledger)
        if waiting <= 0:
            continue
        following = msgspec.structs.replace(row.key, attempt=row.key.attempt + 1)
        is_final = row.state in (AttemptState.COMPLETED, AttemptState.FAILED) and following not in tables.attempts
        closes = is_final and row.ledger // LEG2_CLOSURE % 10 == UNTOUCHED
        tables.attempts.change(row.key, ledger=row.ledger + waiting - (LEG2_CLOSURE if closes else 0))


def cancel_attempts(tables: MemoryTables, number: InstanceNumber, activity: tuple[int, int] | None = None) -> None:
    """Cancel the open attempts of an instance, or of one activity (execution, activity): a running one is asked."""
    for row in tables.attempts_of(number):
        if row.state not in CANCELLABLE or activity not in (None, (row.key.execution, row.key.activity)):
            continue
        state = next_state(row.state, AttemptEvent.CANCEL)
        if state is AttemptState.CANCELLED_RUNNING:
            tables.attempts.change(row.key, state=state)
        else:
            tables.attempts.change(row.key, state=state, closed_at_ms=tables.now_ms, expires_at_ms=None)


# ---------------------------------------------------------------- streams


def apply_stream_values(tables: MemoryTables, values: StreamValues) -> Outcome:
    """Values without their turn wait in the inbox. The same ones again change nothing (L11)."""
    count = len(values.event.numbers)
    entered = enter_pending(values.from_ledger, count)
    if not enter_values(tables, values, entered):
        found = tables.attempts.get(values.key)
        running = (AttemptState.RUNNING, AttemptState.CANCELLED_RUNNING)
        is_mine = found is not None and found.owner == values.owner and found.state in running
        if found is not None and is_mine and found.ledger // RESPONSE_ENTRY == entered // RESPONSE_ENTRY:
            return Applied(changed=0)
        return Rejected(reason="the attempt is closed, cancelled, or owned by another worker")
    deliver_answer(tables, values.key, values.event)
    return Applied(changed=count)


def pass_values(tables: MemoryTables, values: StreamValues) -> bool:
    """Values enter and leave leg 2 with the turn that applied them (L4, L5)."""
    return enter_values(tables, values, pass_pending(values.from_ledger, len(values.event.numbers)))


def enter_values(tables: MemoryTables, values: StreamValues, to_ledger: int) -> bool:
    found = tables.attempts.get(values.key)
    if found is None or (found.owner, found.state) != (values.owner, AttemptState.RUNNING):
        return False
    if found.ledger // RESPONSE_ENTRY != values.from_ledger // RESPONSE_ENTRY:
        return False
    tables.attempts.change(
        values.key,
        ledger=found.ledger + to_ledger - values.from_ledger,
        heartbeat_at_ms=tables.now_ms,
        expires_at_ms=values.expires_at_ms,
    )
    return True


# ---------------------------------------------------------------- workers


def apply_mark_worker_lost(tables: MemoryTables, lose: MarkWorkerLost) -> Outcome:
    """W6: the worker becomes INACTIVE, and a batch of what it had moves on."""
    worker = tables.workers.get(lose.key)
    is_active = tables.is_active(lose.key)
    if lose.instances_only and not is_active:
        return Rejected(reason=f"worker {lose.key} is not active")
    if worker is not None and is_active and not lose.instances_only:
        if lose.at_deadline and worker.deadline_ms > tables.now_ms:
            return Rejected(reason=f"worker {lose.key} has renewed its lease")
        tables.workers.change(lose.key, state=WorkerState.INACTIVE.value, lost_by=lose)
    if is_active and lose.culprit is not None:
        _count_loss(tables, lose)
    if lose.instances_only:
        return Applied(changed=_release_batch(tables, lose, is_counted=False))
    judged = lose if worker is None or worker.lost_by is None else worker.lost_by
    moved = _release_batch(tables, lose, is_counted=judged.unexplained and not judged.is_clean)
    held = tables.owned_attempts(lose.key)[: lose.limit]
    for attempt in held:
        _reassign(tables, attempt, is_clean=judged.is_clean)
    return Applied(changed=moved + len(held), attempts_ended=_ended(tables, held))


def _ended(tables: MemoryTables, held: Iterable[AttemptRecord]) -> tuple[AttemptRecord, ...]:
    """Those of some attempts that have ended, as they are now."""
    now = [tables.attempts[attempt.key] for attempt in held]
    return tuple(attempt for attempt in now if attempt.closed_at_ms is not None)


def _count_loss(tables: MemoryTables, lose: MarkWorkerLost) -> None:
    """G12: the loss of a worker is counted for the instance whose code it ran."""
    culprit = None if lose.culprit is None else tables.instances.get(lose.culprit)
    if culprit is not None and culprit.owner == lose.key:
        tables.instances.change(culprit.number, losses=culprit.losses + 1)


def _release_batch(tables: MemoryTables, lose: MarkWorkerLost, *, is_counted: bool) -> int:
    rows = tables.owned_instances(lose.key)[: lose.limit]
    for row in rows:
        tables.instances.change(row.number, owner=None, claimable_at_ms=0, losses=row.losses + int(is_counted))
    return len(rows)


def apply_release_unknown(tables: MemoryTables, release: ReleaseUnknown) -> Outcome:
    """W3: rows that are as their owner saw them move on, as if their worker was lost."""
    moved = sum(release_instance(tables, held.number, held.fence, release.owner) for held in release.instances)
    gone: list[AttemptRecord] = []
    for held in release.attempts:
        found = tables.attempts.get(held.key)
        if found is not None and (found.owner, found.state, found.ledger) == (release.owner, held.state, held.ledger):
            gone.append(found)
            _reassign(tables, found, is_clean=False)
    return Applied(changed=moved + len(gone), attempts_ended=_ended(tables, gone))


def release_instance(tables: MemoryTables, number: InstanceNumber, fence: Fence, owner: str) -> bool:
    """Release an instance. It is claimable if a message waits that its code takes, else when a timer is due (G2)."""
    row = tables.instances.get(number)
    if row is None or (row.fence, row.owner) != (fence, owner):
        return False
    messages = [message for message in tables.inbox.values() if message.row.number == number]
    due = [timer.due_at_ms for key, timer in tables.timers.items() if key[:2] == (number, row.execution)]
    has_message = any(_is_taken(message.name, row.waits) for message in messages)
    tables.instances.change(number, owner=None, claimable_at_ms=0 if has_message else min(due, default=None))
    return True


def _is_taken(name: str | None, waits: frozenset[str]) -> bool:
    """Whether the code takes a message: an event that it waits for, an update unless it waits for the empty name."""
    return name is None or (name == "") != (name in waits)


def _reassign(tables: MemoryTables, attempt: AttemptRecord, *, is_clean: bool) -> None:
    """The worker of an attempt is gone: the next attempt opens, or the same one waits again, or it ends (W6)."""
    event = LOSS_EVENT[attempt.state]
    if attempt.state is AttemptState.RUNNING:
        ended = end_by_loss(attempt, now_ms=tables.now_ms, is_clean=is_clean)
        if isinstance(ended, OpenNextAttempt):
            apply_open_next_attempt(tables, ended)
        else:
            apply_completion(tables, ended)
    elif event is AttemptEvent.RELEASE:
        expires = decode_options(attempt.options).expires_at_ready_ms(
            scheduled_at_ms=attempt.scheduled_at_ms, available_at_ms=tables.now_ms
        )
        tables.attempts.change(attempt.key, state=AttemptState.READY, owner=None, expires_at_ms=expires)
        if tables.instances[attempt.key.number].state is InstanceState.PAUSED:
            withhold_attempts(tables, attempt.key.number)
    else:
        apply_completion(tables, end_by_cancel(attempt, event, now_ms=tables.now_ms))
