"""Children are created, and asked to end, in the transaction of their parent's turn: all or nothing (G11)."""

from holdfast.core.children import ParentEnd
from holdfast.core.events import CancelRequested, ChildRefused, ChildStarted
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.storage.contract import EndedInstance, InstanceEnd, InstanceNumber, NewChild, Turn
from holdfast.storage.large import large_payload, marked
from holdfast.storage.relational.answers import answer_parent, tell_parent
from holdfast.storage.relational.attempts import insert_payloads
from holdfast.storage.relational.cancelling import cancel
from holdfast.storage.relational.deadlines import set_deadline
from holdfast.storage.relational.families import close_children
from holdfast.storage.relational.rows import instance_of
from holdfast.storage.relational.transaction import Transaction


def write_children(transaction: Transaction, turn: Turn, number: InstanceNumber) -> tuple[EndedInstance, ...]:
    """What a turn says about children. Who ended at once, because it had not begun."""
    for new in turn.children:
        _create(transaction, new, number, turn.execution)
    ended: list[EndedInstance] = []
    for asked in turn.children_asked:
        for row in transaction.rows(transaction.sql.find_child, number, turn.execution, asked.child):
            child = instance_of(row)
            request = CancelRequested(time_ms=0, reason=asked.reason, descendants=asked.descendants)
            if cancel(transaction, child, request).at_once:
                ended.append(EndedInstance(child.id, child.number))
                ended += close_children(transaction, child.number, child.execution)
    return tuple(ended)


def end_family(transaction: Transaction, turn: Turn, number: InstanceNumber) -> tuple[EndedInstance, ...]:
    """An execution with relatives has ended, by its own turn: its parent is told, its children learn it."""
    if isinstance(turn.close, InstanceEnd):
        answer_parent(transaction, number, turn.close.state, turn.close.outcome)
    transaction.change(transaction.sql.note_closing, number, turn.execution, ParentEnd.BY_ITSELF)
    return close_children(transaction, number, turn.execution)


def _create(transaction: Transaction, new: NewChild, parent: InstanceNumber, execution: int) -> None:
    """The row with its tie to the parent, and its start in its inbox; or, if the id is taken, the refusal in ours."""
    now_ms = transaction.now_ms
    number = _insert(transaction, new, parent, execution)
    if number is None and not new.named and transaction.change(transaction.sql.supersede_child, now_ms, new.id, parent):
        number = _insert(transaction, new, parent, execution)
    if number is None:
        reason = f"the id {new.id!r} is taken, so no child of {new.workflow!r} was started with it"
        tell_parent(transaction, parent, execution, ChildRefused(time_ms=now_ms, child=new.child, reason=reason))
        return
    if len(new.input) > INLINE_LIMIT_BYTES:
        insert_payloads(transaction, number, (large_payload(new.input),))
    insert_payloads(transaction, number, new.payloads)
    transaction.change(transaction.sql.insert_inbox, number, 1, now_ms, new.started)
    if new.deadline is not None:
        set_deadline(transaction, number, new.deadline)
    if new.named:
        tell_parent(transaction, parent, execution, ChildStarted(time_ms=now_ms, child=new.child))


def _insert(transaction: Transaction, new: NewChild, parent: InstanceNumber, execution: int) -> InstanceNumber | None:
    given = new.input if len(new.input) <= INLINE_LIMIT_BYTES else marked(large_payload(new.input).reference)
    rows = transaction.rows(
        transaction.sql.start_child,
        new.id,
        new.workflow,
        new.version,
        transaction.now_ms,
        given,
        new.input_hash,
        parent,
        execution,
        new.child,
        new.parent_close,
    )
    return InstanceNumber(rows[0][0]) if rows else None
