"""How each member of a group changes the tables. Runs inside the group's transaction, one member after the other.

A member whose guard does not hold is `Rejected` and leaves nothing behind, except that completions which were to be
applied by a rejected turn are kept: they commit alone, into the inbox (G5).
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from holdfast.core.gates import MAX_LOST_OWNERS, ExistingInstance, StartIdentity, StartVerdict, decide_start
from holdfast.core.lifecycle import InstanceState
from holdfast.core.liveness import WorkerKey
from holdfast.core.require import require
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.storage.contract import (
    AnswerQuery,
    Applied,
    AskQuery,
    Block,
    ClaimAttempts,
    ClaimedInstances,
    ClaimInstances,
    ClaimQueries,
    CloseChildren,
    Completion,
    DeleteQueries,
    Deliver,
    Delivered,
    EndedInstance,
    Expire,
    Fence,
    HeartbeatAttempt,
    InstanceNumber,
    InstanceRecord,
    MarkWorkerLost,
    Member,
    OpenNextAttempt,
    Outcome,
    Rejected,
    Release,
    ReleaseUnknown,
    SaveFlow,
    SetDeadline,
    Start,
    StartedInstance,
    StreamValues,
    Terminate,
    Turn,
)
from holdfast.storage.large import large_payload, marked
from holdfast.storage.relational import attempts
from holdfast.storage.relational.children import end_family, write_children
from holdfast.storage.relational.closing import REPLACED, leave_nothing_pending
from holdfast.storage.relational.continuing import begin_next
from holdfast.storage.relational.deadlines import apply_expire, apply_set_deadline, set_deadline
from holdfast.storage.relational.delivery import apply_deliver, write_mail
from holdfast.storage.relational.families import apply_close_children, apply_terminate, terminate_family
from holdfast.storage.relational.keeping import keep
from holdfast.storage.relational.losing import apply_disown, apply_lose, is_active
from holdfast.storage.relational.questions import apply_answer, apply_ask, apply_forget, apply_take
from holdfast.storage.relational.rows import instance_of
from holdfast.storage.relational.streams import apply_responses, enter_with_turn, exit_pending, take_back
from holdfast.storage.relational.transaction import ConcurrentChange, Transaction
from holdfast.storage.relational.updates import write_answers

APPLIED: Final = Applied()


def apply_members(transaction: Transaction, members: Sequence[Member]) -> list[Outcome]:
    """Apply a group, member by member. What a dead worker sends is refused as a whole (W6, W7)."""
    alive: dict[WorkerKey, bool] = {}
    outcomes: list[Outcome] = []
    for member in members:
        actor = member.owner if type(member) is Turn else actor_of(member)  # most are turns
        if actor is not None and actor not in alive:
            alive[actor] = is_active(transaction, actor)
        if actor is not None and not alive[actor]:
            outcomes.append(Rejected(reason=f"worker {actor} is not active"))
        else:
            outcomes.append(HOW[type(member)](transaction, member))
    return outcomes


def actor_of(member: Member) -> WorkerKey | None:
    """In whose name a member acts. Janitors and clients act in nobody's."""
    match member:
        case Turn():
            return member.owner
        case Start():
            return member.first.owner if member.first else None
        case (
            MarkWorkerLost()
            | Terminate()
            | Deliver()
            | Expire()
            | CloseChildren()
            | AskQuery()
            | DeleteQueries()
            | SaveFlow()
        ):
            return None
        case OpenNextAttempt():
            return member.ended.owner if member.by_owner else None
        case Completion():
            return member.owner if member.by_owner else None
        case _:
            return member.owner


def _apply_release(transaction: Transaction, release: Release) -> Outcome:
    return _changed(transaction.change(transaction.sql.release_instance, release.number, release.fence, release.owner))


def _changed(count: int) -> Outcome:
    return Applied(changed=count) if count else Rejected(reason="the fence or the owner has moved on")


# ---------------------------------------------------------------- turns


def _apply_turn(transaction: Transaction, turn: Turn) -> Outcome:
    """Completions first, then the instance's guard, then what the turn did. A rejected turn keeps its completions."""
    stale: list[Completion] = []
    for one in turn.completions:
        if not attempts.close_by_completion(transaction, one, one.applied_ledger):
            stale.append(one)  # noqa: PERF401 - nearly never there
    entered = not turn.entries or enter_with_turn(transaction, turn.entries)
    has_read_all = turn.read_to is None or transaction.finds(transaction.steps.has_read_all, turn.number, turn.read_to)
    if not stale and entered and has_read_all and _advance(transaction, turn):
        for left in turn.yields:
            exit_pending(transaction, left)
        ended = _write_turn(transaction, turn, turn.number)
        return Applied(ended=ended) if ended else APPLIED
    if turn.entries and entered:
        take_back(transaction, turn.entries)
    for completion in turn.completions:
        if completion not in stale:
            attempts.reopen_for_inbox(transaction, completion)
    if not has_read_all:
        return Rejected(reason="an event or an update came before the end, and the owner has not read it")
    is_stale = stale or not entered
    return Rejected(reason="an answer was stale" if is_stale else "the fence, the owner or the turn has moved on")


def _advance(transaction: Transaction, turn: Turn) -> bool:
    after = turn.turn + 1 if turn.events else turn.turn
    steps, number, fence, owner = transaction.steps, turn.number, turn.fence, turn.owner
    if turn.key is not None:
        key = turn.key
        return (
            transaction.change(steps.commit_flow_turn, after, turn.stamp_ms, key, number, fence, owner, turn.turn) > 0
        )
    return transaction.change(steps.commit_turn, after, turn.stamp_ms, number, fence, owner, turn.turn) > 0


def _write_turn(transaction: Transaction, turn: Turn, number: InstanceNumber) -> tuple[EndedInstance, ...]:
    """What the turn did. Which of its children ended with it."""
    execution = turn.execution
    if turn.events:
        transaction.change(transaction.steps.append_history, number, execution, turn.turn, turn.events)
    for new in turn.attempts:
        attempts.insert_attempt(transaction, number, execution, new)
    return () if turn.is_plain else _write_rest(transaction, turn, number)


def _write_rest(transaction: Transaction, turn: Turn, number: InstanceNumber) -> tuple[EndedInstance, ...]:
    """What most turns do not do."""
    execution, change = turn.execution, transaction.change
    ended: tuple[EndedInstance, ...] = ()
    if turn.payloads:
        attempts.insert_payloads(transaction, number, turn.payloads)
    for row in turn.consumed:
        require(change(transaction.sql.delete_inbox, row, number) == 1, f"message {row} of instance {number} was gone")
    for response in turn.responses:
        attempts.move_digits(transaction, response.key, response.from_ledger, response.to_ledger)
    for activity in turn.abandoned:
        transaction.do(transaction.sql.cancel_activity, transaction.now_ms, number, execution, activity)
    for timer in turn.timers_started:
        change(transaction.sql.start_timer, number, execution, timer.timer, timer.due_at_ms)
    for fired in turn.timers_ended:
        change(transaction.sql.end_timer, number, execution, fired)
    if turn.has_mail or turn.family:
        ended = _tell_others(transaction, turn, number)
    if turn.kept or turn.answers:
        keep(transaction, number, turn.kept)
        write_answers(transaction, number, turn.answers)
    if turn.close is not None or turn.next is not None or turn.release:
        ended += _leave(transaction, turn, number)
    return ended


def _tell_others(transaction: Transaction, turn: Turn, number: InstanceNumber) -> tuple[EndedInstance, ...]:
    """Children first: an event may be for one that this turn starts."""
    ended = write_children(transaction, turn, number) if turn.family else ()
    if turn.has_mail:
        write_mail(transaction, turn, number)
    return ended


def _leave(transaction: Transaction, turn: Turn, number: InstanceNumber) -> tuple[EndedInstance, ...]:
    """The instance ends, or its execution does and the next begins (G4), or the instance is let go of (G2)."""
    if turn.close is not None:
        leave_nothing_pending(transaction, number)
        close = turn.close
        transaction.change(transaction.steps.close_instance, close.state, close.outcome, transaction.now_ms, number)
    elif turn.next is not None:
        begin_next(transaction, turn, number, turn.next)
    else:
        transaction.change(transaction.sql.release_instance, number, turn.fence, turn.owner)
        return ()
    return end_family(transaction, turn, number) if turn.family else ()


# ---------------------------------------------------------------- instances


def _apply_start(transaction: Transaction, start: Start) -> Outcome:
    """G3: create, or do as the policy says with what has the id. A new id costs one statement."""
    number = _insert_instance(transaction, start)
    outcome = _start_again(transaction, start) if number is None else _begin(transaction, start, number)
    if start.mail is None or not isinstance(outcome, StartedInstance) or (outcome.created and start.mail_taken):
        return outcome
    told = apply_deliver(transaction, start.mail)
    return msgspec.structs.replace(outcome, mail=told) if isinstance(told, Delivered) else outcome


def _begin(transaction: Transaction, start: Start, number: InstanceNumber) -> StartedInstance:
    """The row is new: its first turn rides along, or its start waits for whoever claims it."""
    if len(start.input) > INLINE_LIMIT_BYTES:
        attempts.keep_input(transaction, number, start.input)
    attempts.insert_payloads(transaction, number, start.payloads)
    if start.deadline is not None:
        set_deadline(transaction, number, start.deadline)
    if start.first is not None:
        _write_turn(transaction, start.first, number)
    else:
        transaction.change(transaction.sql.insert_inbox, number, 1, transaction.now_ms, start.started)
    first = start.first
    if first is None or not (first.release or first.next):
        return StartedInstance(instance=_created(start, number, transaction.now_ms), created=True)
    return StartedInstance(
        instance=instance_of(transaction.rows(transaction.sql.find_instance, start.id)[0]), created=True
    )


def _start_again(transaction: Transaction, start: Start) -> Outcome:
    """The id is taken. What makes room for a new instance is in the transaction that creates it."""
    rows = transaction.rows(transaction.sql.hold_instance, start.id)
    if not rows:
        raise ConcurrentChange(f"the id {start.id!r} was taken a moment ago, and is not any more")
    existing = instance_of(rows[0])
    verdict = decide_start(
        StartIdentity(start.workflow, start.input_hash),
        ExistingInstance(StartIdentity(existing.workflow, existing.input_hash), existing.state),
        start.policy,
    )
    ended: tuple[EndedInstance, ...] = ()
    match verdict:
        case StartVerdict.SAME:
            return StartedInstance(instance=existing, created=False)
        case StartVerdict.CONFLICT:
            return Rejected(reason=_conflict(start, existing.workflow))
        case StartVerdict.REPLACE:
            ended = terminate_family(transaction, existing, REPLACED)
        case StartVerdict.CREATE:
            pass
    transaction.change(transaction.sql.supersede_instance, transaction.now_ms, existing.number)
    number = _insert_instance(transaction, start)
    require(number is not None, f"the id {start.id!r} is still taken after instance {existing.number} gave it up")
    begun = _begin(transaction, start, InstanceNumber(number or 0))
    replaced = existing.number if verdict is StartVerdict.REPLACE else None
    return msgspec.structs.replace(begun, replaced=replaced, ended=ended)


def _conflict(start: Start, workflow: str) -> str:
    if workflow != start.workflow:
        return f"the id {start.id!r} is taken by an instance of {workflow!r}, not {start.workflow!r}"
    return f"the id {start.id!r} is taken by an instance of {workflow!r} with a different input"


def _stored_input(start: Start) -> bytes:
    """What stands in the row of the instance."""
    if len(start.input) <= INLINE_LIMIT_BYTES:
        return start.input
    return marked(large_payload(start.input).reference)


def _insert_instance(transaction: Transaction, start: Start) -> InstanceNumber | None:
    first = start.first
    number = transaction.create(
        transaction.steps.start_instance,
        start.id,
        start.workflow,
        start.version,
        InstanceState.RUNNING if first else InstanceState.REQUESTED,
        1 if first else 0,
        first.fence if first else 0,
        first.owner if first else None,
        None if first else 0,
        first.stamp_ms if first else transaction.now_ms,
        _stored_input(start),
        start.input_hash,
        _created_at_ms(start, transaction.now_ms),
        first.key if first else start.key,
    )
    return None if number is None else InstanceNumber(number)


def _created_at_ms(start: Start, now_ms: int) -> int:
    """The time of the start. A first turn in the same commit has scheduled activities before this transaction began."""
    return now_ms if start.first is None else min(start.first.stamp_ms, now_ms)


def _created(start: Start, number: InstanceNumber, now_ms: int) -> InstanceRecord:
    """The row that was inserted, with what its first turn made of it."""
    first = start.first
    closed = first.close if first else None
    return InstanceRecord(
        number=number,
        id=start.id,
        workflow=start.workflow,
        version=start.version,
        state=closed.state if closed else InstanceState.RUNNING if first else InstanceState.REQUESTED,
        execution=1,
        turn=1 if first else 0,
        fence=first.fence if first else Fence(0),
        owner=first.owner if first and closed is None else None,
        claimable_at_ms=None if first else 0,
        stamp_ms=first.stamp_ms if first else now_ms,
        input=_stored_input(start),
        input_hash=start.input_hash,
        outcome=closed.outcome if closed else None,
        blocked=None,
        created_at_ms=_created_at_ms(start, now_ms),
        closed_at_ms=now_ms if closed else None,
    )


def _claim_instances(transaction: Transaction, claim: ClaimInstances) -> Outcome:
    workflows = json.dumps(claim.workflows)
    if claim.blocked:
        rows = transaction.rows(
            transaction.sql.claim_blocked, claim.owner, workflows, claim.build, claim.limit, MAX_LOST_OWNERS
        )
    else:
        rows = transaction.rows(
            transaction.sql.claim_instances, claim.owner, transaction.now_ms, workflows, claim.limit
        )
    return ClaimedInstances(instances=[instance_of(row) for row in rows])


def _apply_block(transaction: Transaction, block: Block) -> Outcome:
    return _changed(
        transaction.change(
            transaction.sql.block_instance, block.reason, block.build, block.number, block.fence, block.owner
        )
    )


def _save_flow(transaction: Transaction, flow: SaveFlow) -> Outcome:
    transaction.do(transaction.sql.save_flow, flow.hash, flow.name, flow.version, flow.definition, transaction.now_ms)
    return APPLIED


HOW: Final[dict[type[Member], Callable[[Transaction, Any], Outcome]]] = {
    Turn: _apply_turn,
    Start: _apply_start,
    Completion: attempts.apply_completion,
    Terminate: apply_terminate,
    OpenNextAttempt: attempts.apply_retry,
    ClaimAttempts: attempts.claim_attempts,
    ClaimInstances: _claim_instances,
    Release: _apply_release,
    Block: _apply_block,
    HeartbeatAttempt: attempts.apply_heartbeat,
    MarkWorkerLost: apply_lose,
    ReleaseUnknown: apply_disown,
    Deliver: apply_deliver,
    StreamValues: apply_responses,
    SetDeadline: apply_set_deadline,
    Expire: apply_expire,
    CloseChildren: apply_close_children,
    SaveFlow: _save_flow,
    AskQuery: apply_ask,
    ClaimQueries: apply_take,
    AnswerQuery: apply_answer,
    DeleteQueries: apply_forget,
}
"""How each kind of member is applied. A test compares it with the members there are."""
