"""Apply deadlines of instances: set once, and acted on by any worker that finds them passed (A9, C1)."""

from holdfast.core import deadlines
from holdfast.core.checks import require
from holdfast.core.deadlines import DeadlineVerdict
from holdfast.storage.instance_endings import cancel_at_deadline, end_by_deadline
from holdfast.storage.members.instances import Expire, SetDeadline
from holdfast.storage.members.outcomes import Applied, EndedInstance, Expired, Outcome, Rejected
from holdfast.storage.records import DeadlineRecord, InstanceRecord
from holdfast.storage.relational.apply.children import close_children
from holdfast.storage.relational.apply.instance_endings import end_from_outside, request_cancel
from holdfast.storage.relational.apply.shared_writes import set_deadline
from holdfast.storage.relational.rows import instance_of
from holdfast.storage.relational.transaction import Transaction


def apply_set_deadline(transaction: Transaction, member: SetDeadline) -> Outcome:
    """A second one changes nothing."""
    if set_deadline(transaction, member.number, member.deadline):
        return Applied()
    return Rejected(reason=f"instance {member.number} knows its deadline already, or has ended")


def apply_expire(transaction: Transaction, member: Expire) -> Outcome:
    """Cancel the code, or end the instance without it. Rejected before the deadline, and a second time."""
    rows = transaction.fetch(transaction.sql.read_deadline, member.number)
    deadline = DeadlineRecord(*rows[0]) if rows else None
    if deadline is None or deadline.expires_at_ms is None or deadline.expires_at_ms > transaction.now_ms:
        return Rejected(reason=f"the deadline of instance {member.number} has not come")
    found = instance_of(transaction.fetch(transaction.sql.lock_instance, member.number)[0])
    verdict, children = enforce(transaction, found, deadline)
    if verdict is DeadlineVerdict.NOTHING:
        return Rejected(reason=f"instance {member.number} has ended")
    return Expired(instance=found, verdict=verdict, ended=children)


def enforce(
    transaction: Transaction, found: InstanceRecord, deadline: DeadlineRecord, *, applies_at_ms: int | None = None
) -> tuple[DeadlineVerdict, tuple[EndedInstance, ...]]:
    """Act on a deadline that has passed. Returns the verdict, and the children that ended with the instance.

    The deadline of a PAUSED instance is held. At the resume the request to cancel has the time of the deadline
    (`applies_at_ms`), so that it comes before what is stamped later (R25, G10).
    """
    verdict = deadlines.at_deadline(found.state, grace_ms=deadline.grace_ms, is_grace_over=deadline.is_in_grace)
    children: tuple[EndedInstance, ...] = ()
    match verdict:
        case DeadlineVerdict.NOTHING:
            pass
        case DeadlineVerdict.HOLD:
            transaction.update(transaction.sql.hold_deadline, found.number)
        case DeadlineVerdict.END:
            end_from_outside(transaction, found, end_by_deadline(found, deadline, now_ms=transaction.now_ms))
            children = close_children(transaction, found.number, found.execution)
        case DeadlineVerdict.ASK:
            request_cancel(transaction, found, cancel_at_deadline(found, deadline), at_ms=applies_at_ms)
            _begin_grace(transaction, found, deadline)
        case DeadlineVerdict.WAIT:
            _begin_grace(transaction, found, deadline)
    return verdict, children


def _begin_grace(transaction: Transaction, found: InstanceRecord, deadline: DeadlineRecord) -> None:
    """The grace begins now, and not at the deadline, at which no worker may have run."""
    ends_at_ms = transaction.now_ms + deadline.grace_ms
    changed = transaction.update(transaction.sql.start_grace, ends_at_ms, found.number, deadline.expires_at_ms)
    require(changed == 1, f"the deadline of instance {found.number} has moved inside one transaction")
