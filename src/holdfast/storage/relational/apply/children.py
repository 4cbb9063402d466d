"""Apply changes of children. They are created and cancelled in the transaction of their parent's turn (G11).

When an execution ends, each of its children is terminated, cancelled or left alone, by its policy (A9, C1). There may
be many: one commit closes `MOST_CHILDREN_PER_COMMIT` of them at most. A row in `closings` records that there are more,
and any worker closes them, a batch at a time.
"""

from collections import deque

from holdfast.core.admission import StartVerdict, decide_child_start
from holdfast.core.children import MOST_PARENTS, ParentClose, ParentEnd, decide_close
from holdfast.core.history import CancelRequested, ChildRefused, ChildStarted
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState
from holdfast.storage.instance_endings import MOST_CHILDREN_PER_COMMIT, PARENT_ENDED, REPLACED
from holdfast.storage.members.instances import CloseChildren, Terminate
from holdfast.storage.members.outcomes import Applied, EndedInstance, Outcome, Rejected, TerminatedInstance
from holdfast.storage.members.turns import InstanceEnd, NewChild, TurnEffects
from holdfast.storage.records import InstanceNumber, InstanceRecord, LargePayload
from holdfast.storage.relational.apply.instance_endings import answer_parent, cancel, terminate
from holdfast.storage.relational.apply.shared_writes import (
    input_column,
    insert_payloads,
    large_input,
    put_in_inbox,
    set_deadline,
)
from holdfast.storage.relational.rows import instance_of
from holdfast.storage.relational.transaction import Transaction
from holdfast.storage.versions import stored_version


def terminate_with_children(transaction: Transaction, found: InstanceRecord, reason: str) -> tuple[EndedInstance, ...]:
    """Terminate an open instance that was read in this transaction, and close its children by their policies."""
    terminate(transaction, found, reason)
    return close_children(transaction, found.number, found.execution)


def close_children(
    transaction: Transaction, number: InstanceNumber, execution: int, limit: int = MOST_CHILDREN_PER_COMMIT
) -> tuple[EndedInstance, ...]:
    """Close the children of an ended execution, and theirs. Returns those that ended without running code."""
    return tuple(_close(transaction, number, execution, limit)[0])


def apply_close_children(transaction: Transaction, member: CloseChildren) -> Outcome:
    """Close a batch of children. Concurrent calls are safe: each closes what is left."""
    ended, changed = _close(transaction, member.number, member.execution, member.limit)
    return Applied(changed=changed, ended=tuple(ended))


def _close(
    transaction: Transaction, number: InstanceNumber, execution: int, limit: int
) -> tuple[list[EndedInstance], int]:
    ended: list[EndedInstance] = []
    executions = deque([(number, execution)])
    done = 0
    while executions and done < limit:
        execution_key = executions.popleft()
        for (how,) in transaction.fetch(transaction.sql.read_closing, *execution_key):
            children = transaction.fetch(transaction.sql.open_children, *execution_key, how, limit - done)
            for *columns, policy in children:
                child = instance_of(tuple(columns))
                done += 1
                state = _act_on(transaction, child, ParentClose(policy), ParentEnd(how))
                if state is not None:
                    ended.append(EndedInstance(child.id, child.number, child.workflow, state))
                    executions.append((child.number, child.execution))
            if done < limit:
                transaction.update(transaction.sql.delete_closing, *execution_key)
    return ended, done


def _act_on(
    transaction: Transaction, child: InstanceRecord, policy: ParentClose, how: ParentEnd
) -> InstanceState | None:
    """Close one child by its policy. Returns its final state; None if it has not ended."""
    if decide_close(policy, how, child.state) is ParentClose.TERMINATE:
        terminate(transaction, child, PARENT_ENDED)
        return InstanceState.TERMINATED
    at_once = cancel(transaction, child, CancelRequested(time_ms=0, reason=PARENT_ENDED)).ends_at_once
    return InstanceState.CANCELLED if at_once else None


def apply_terminate(transaction: Transaction, member: Terminate) -> Outcome:
    """A9: TERMINATED in one commit, unless it was closed before."""
    if member.number is None:
        rows = transaction.fetch(transaction.sql.lock_instance_by_id, member.id)
    else:
        rows = transaction.fetch(transaction.sql.lock_instance, member.number)
    if not rows:
        return Rejected(reason=f"no instance has the id {member.id!r}")
    found = instance_of(rows[0])
    if found.state in INSTANCE_FINAL:
        return TerminatedInstance(instance=found, was_open=False)
    return TerminatedInstance(
        instance=found, was_open=True, ended=terminate_with_children(transaction, found, member.reason)
    )


def write_children(
    transaction: Transaction, effects: TurnEffects, number: InstanceNumber, execution: int
) -> tuple[EndedInstance, ...]:
    """Create the children of a turn and cancel those that it names. Returns the children that ended at once."""
    ended: list[EndedInstance] = []
    for new in effects.children:
        ended += _create(transaction, new, number, execution)
    for cancelled in effects.children_cancelled:
        for row in transaction.fetch(transaction.sql.find_child, number, execution, cancelled.child):
            child = instance_of(row)
            request = CancelRequested(time_ms=0, reason=cancelled.reason, descendants=cancelled.descendants)
            if cancel(transaction, child, request).ends_at_once:
                ended.append(EndedInstance(child.id, child.number, child.workflow, InstanceState.CANCELLED))
                ended += close_children(transaction, child.number, child.execution)
    return tuple(ended)


def end_with_relatives(
    transaction: Transaction, number: InstanceNumber, execution: int, close: InstanceEnd | None
) -> tuple[EndedInstance, ...]:
    """Answer the parent if the instance was closed by its own turn, and close the children of the execution."""
    if close is not None:
        answer_parent(transaction, number, close.state, close.outcome)
    transaction.update(transaction.sql.insert_closing, number, execution, ParentEnd.BY_ITSELF)
    return close_children(transaction, number, execution)


def _create(
    transaction: Transaction, new: NewChild, parent: InstanceNumber, execution: int
) -> tuple[EndedInstance, ...]:
    """Insert a child with its start in its inbox; if the id is taken, put the refusal into the parent's inbox.

    Returns the instances that ended to make room for it.
    """
    now_ms = transaction.now_ms
    large = large_input(new.input)
    ended: tuple[EndedInstance, ...] = ()
    number = _insert(transaction, new, parent, execution, large)
    if number is None:
        is_free, ended = _make_room(transaction, new, parent)
        number = _insert(transaction, new, parent, execution, large) if is_free else None
    if number is None:
        reason = f"the id {new.id!r} is taken, so no child of {new.workflow!r} was started with it"
        put_in_inbox(transaction, parent, execution, ChildRefused(time_ms=now_ms, child=new.child, reason=reason))
        return ended
    if large is not None:
        insert_payloads(transaction, number, (large,))
    insert_payloads(transaction, number, new.payloads)
    transaction.update(transaction.sql.insert_inbox, number, 1, now_ms, new.started)
    transaction.wakeups.instances.add(number)
    if new.deadline is not None:
        set_deadline(transaction, number, new.deadline)
    if new.named:
        put_in_inbox(transaction, parent, execution, ChildStarted(time_ms=now_ms, child=new.child))
    return ended


def _make_room(
    transaction: Transaction, new: NewChild, parent: InstanceNumber
) -> tuple[bool, tuple[EndedInstance, ...]]:
    """Whether the id of a child is free now, by its policy (G3), and the instances that ended for it.

    An instance that replaced one of its own ancestors would end itself: such an id counts as taken.
    """
    if not new.named:
        return transaction.update(transaction.sql.supersede_child, transaction.now_ms, new.id, parent) > 0, ()
    ended: tuple[EndedInstance, ...] = ()
    for row in transaction.fetch(transaction.sql.lock_instance_by_id, new.id):
        existing = instance_of(row)
        match decide_child_start(existing.state, new.policy):
            case StartVerdict.CREATE:
                pass
            case StartVerdict.REPLACE if not _is_above(transaction, existing.number, parent):
                ended = terminate_with_children(transaction, existing, REPLACED)
            case _:
                return False, ()
        transaction.update(transaction.sql.supersede_instance, transaction.now_ms, existing.number)
        return True, ended
    return False, ()


def _is_above(transaction: Transaction, number: InstanceNumber, below: InstanceNumber) -> bool:
    """Whether an instance is `below` itself or one of its ancestors."""
    current: InstanceNumber | None = below
    for _ in range(MOST_PARENTS + 1):
        if current is None or current == number:
            break
        rows = transaction.fetch(transaction.sql.read_parent, current)
        current = InstanceNumber(rows[0][1]) if rows else None
    return current == number


def _insert(
    transaction: Transaction, new: NewChild, parent: InstanceNumber, execution: int, large: LargePayload | None
) -> InstanceNumber | None:
    rows = transaction.fetch(
        transaction.sql.start_child,
        new.id,
        new.workflow,
        stored_version(new.version),
        transaction.now_ms,
        input_column(new.input, large),
        new.input_hash,
        parent,
        execution,
        new.child,
        new.parent_close,
    )
    return InstanceNumber(rows[0][0]) if rows else None
