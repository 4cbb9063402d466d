"""The end of an execution, for the children it started: each is terminated, asked to end, or left alone (A9, C1).

A family may be large. One commit acts on `MOST_CHILDREN_PER_COMMIT` of it at most; the row in `closings` that the end
left behind says that there are more, and any worker goes on with them, a batch at a time.
"""

from collections import deque
from typing import Final

from holdfast.core.children import ParentClose, ParentEnd, decide_close
from holdfast.core.events import CancelRequested
from holdfast.core.lifecycle import INSTANCE_FINAL
from holdfast.storage.contract import (
    Applied,
    CloseChildren,
    EndedInstance,
    InstanceNumber,
    InstanceRecord,
    Outcome,
    Rejected,
    Terminate,
    TerminatedInstance,
)
from holdfast.storage.relational.cancelling import cancel
from holdfast.storage.relational.closing import terminate
from holdfast.storage.relational.rows import COLUMNS_IN_USE, instance_of
from holdfast.storage.relational.transaction import Transaction

MOST_CHILDREN_PER_COMMIT: Final = 500
"""A longer commit would make everybody wait for it."""
PARENT_ENDED: Final = "its parent ended"


def terminate_family(transaction: Transaction, found: InstanceRecord, reason: str) -> tuple[EndedInstance, ...]:
    """End an instance that was read in this transaction and is open, and do to its children what their policies say."""
    terminate(transaction, found, reason)
    return close_children(transaction, found.number, found.execution)


def close_children(
    transaction: Transaction, number: InstanceNumber, execution: int, limit: int = MOST_CHILDREN_PER_COMMIT
) -> tuple[EndedInstance, ...]:
    """Go through the children of an execution that has ended, and through theirs. Who ended without being asked."""
    return tuple(_close(transaction, number, execution, limit)[0])


def apply_close_children(transaction: Transaction, member: CloseChildren) -> Outcome:
    """The same for a janitor. Two who do it at the same time harm nothing: each finds what is left."""
    ended, changed = _close(transaction, member.number, member.execution, member.limit)
    return Applied(changed=changed, ended=tuple(ended))


def _close(
    transaction: Transaction, number: InstanceNumber, execution: int, limit: int
) -> tuple[list[EndedInstance], int]:
    ended: list[EndedInstance] = []
    families = deque([(number, execution)])
    done = 0
    while families and done < limit:
        family = families.popleft()
        for (how,) in transaction.rows(transaction.sql.read_closing, *family):
            children = transaction.rows(transaction.sql.open_children, *family, how, limit - done)
            for row in children:
                child = instance_of(row[:COLUMNS_IN_USE])
                done += 1
                if _act_on(transaction, child, ParentClose(row[COLUMNS_IN_USE]), ParentEnd(how)):
                    ended.append(EndedInstance(child.id, child.number))
                    families.append((child.number, child.execution))
            if done < limit:
                transaction.change(transaction.sql.end_closing, *family)
    return ended, done


def _act_on(transaction: Transaction, child: InstanceRecord, policy: ParentClose, how: ParentEnd) -> bool:
    """Do to a child what its parent's end means for it. Whether it has ended by it."""
    if decide_close(policy, how, child.state) is ParentClose.TERMINATE:
        terminate(transaction, child, PARENT_ENDED)
        return True
    return cancel(transaction, child, CancelRequested(time_ms=0, reason=PARENT_ENDED)).at_once


def apply_terminate(transaction: Transaction, member: Terminate) -> Outcome:
    """A9: TERMINATED in one commit, unless it is closed already."""
    if member.number is None:
        rows = transaction.rows(transaction.sql.hold_instance, member.id)
    else:
        rows = transaction.rows(transaction.sql.hold_number, member.number)
    if not rows:
        return Rejected(reason=f"no instance has the id {member.id!r}")
    found = instance_of(rows[0])
    if found.state in INSTANCE_FINAL:
        return TerminatedInstance(instance=found, was_open=False)
    return TerminatedInstance(instance=found, was_open=True, ended=terminate_family(transaction, found, member.reason))
