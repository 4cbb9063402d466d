"""The end of instances, requests to end, and deadlines, applied to the tables in memory (A9, C1, C5, G11)."""

from collections import deque

import msgspec
from tests.stores.memory_attempts import (
    answer_exhausted,
    cancel_attempts,
    exit_all_responses,
    restore_attempts,
    write_payloads,
)
from tests.stores.memory_tables import (
    Closing,
    Instance,
    MemoryTables,
    instance_record,
)

from holdfast.core import deadlines
from holdfast.core.admission import (
    DeliveryVerdict,
    EventVerdict,
    MessageKind,
    decide_delivery,
    stamp_ms,
)
from holdfast.core.children import ParentClose, ParentEnd, child_reply, decide_close
from holdfast.core.deadlines import Deadline, DeadlineVerdict
from holdfast.core.history import (
    AttributesChanged,
    CancelRequested,
    ChildAnswer,
    EventReceived,
    ExternalEnd,
    HistoryEvent,
    Payload,
    Started,
    UpdateAccepted,
    decode_event,
    encode_event,
    encode_events,
)
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceEvent, InstanceState, next_state
from holdfast.core.updates import UpdateState
from holdfast.storage.instance_endings import (
    MOST_CHILDREN_PER_COMMIT,
    PARENT_ENDED,
    CancelResult,
    cancel_at_deadline,
    decide_cancel,
    end_by_cancel,
    end_by_deadline,
    end_by_termination,
    error_of,
    outcome_of,
    parent_end_of,
    state_after,
)
from holdfast.storage.large_payloads import offload
from holdfast.storage.members.instances import (
    CloseChildren,
    Expire,
    SetDeadline,
    Terminate,
)
from holdfast.storage.members.outcomes import (
    Applied,
    EndedInstance,
    Expired,
    Outcome,
    Rejected,
    TerminatedInstance,
)
from holdfast.storage.records import DeadlineRecord, HistoryRow, InstanceNumber, LargePayload

Ended = tuple[EndedInstance, ...]


def put_message(
    tables: MemoryTables,
    found: Instance,
    event: EventReceived | CancelRequested | UpdateAccepted | AttributesChanged,
    name: str | None,
    *,
    applies_at_ms: int | None = None,
) -> None:
    payloads: list[LargePayload] = []
    stored = offload(event, payloads)
    write_payloads(tables, found.number, payloads)
    time_ms = stamp_ms(stored.time_ms, tables.now_ms) if applies_at_ms is None else applies_at_ms
    stored = msgspec.structs.replace(stored, time_ms=time_ms)
    tables.put_in_inbox(found.number, found.execution, encode_event(stored), name)


def decoded(event: bytes) -> HistoryEvent | None:
    """An event; None if it cannot be decoded: whoever takes it in reports that (G12)."""
    try:
        return decode_event(event)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def clear_timers(tables: MemoryTables, number: InstanceNumber) -> None:
    tables.timers.remove_all(key for key in tables.timers if key[0] == number)


def settle(tables: MemoryTables, number: InstanceNumber) -> None:
    """Nothing of a closed instance is left that waits (A9, C5)."""
    exit_all_responses(tables, number)
    tables.inbox.remove_all(row.row for row in tables.inbox_of(number))
    tables.updates.remove_all(
        key for key, row in tables.updates.items() if key[0] == number and row.state is UpdateState.ASKED
    )
    clear_timers(tables, number)
    cancel_attempts(tables, number)


def end_from_outside(tables: MemoryTables, found: Instance, ended: ExternalEnd) -> None:
    """Close an instance without its code: `ended` is the last event of its history. Its parent is answered."""
    number, now_ms = found.number, tables.now_ms
    unread = [] if found.turn else [decoded(row.event) for row in tables.inbox_of(number)]
    begun = [event for event in unread if isinstance(event, Started)][:1]
    tables.instances.change(
        number,
        state=state_after(found, ended),
        outcome=outcome_of(ended),
        error=error_of(ended),
        turn=found.turn + 1,
        stamp_ms=max(found.stamp_ms, now_ms),
        closed_at_ms=now_ms,
        owner=None,
        claimable_at_ms=None,
        blocked=None,
        paused_at_ms=None,
        paused_from=None,
        pause_reason=None,
    )
    row = HistoryRow(turn=found.turn, events=encode_events([*begun, ended]))
    tables.history.insert((number, found.execution, found.turn), row)
    settle(tables, number)
    answer_parent(tables, tables.instances[number])
    note_closing(tables, number, found.execution, parent_end_of(ended))


def terminate(tables: MemoryTables, found: Instance, reason: str) -> Ended:
    end_from_outside(tables, found, end_by_termination(found, reason, now_ms=tables.now_ms))
    return close_children(tables, found.number, found.execution)[0]


def apply_terminate(tables: MemoryTables, member: Terminate) -> Outcome:
    """A9: TERMINATED in one commit, unless it is closed already."""
    found = tables.current(member.id) if member.number is None else tables.instances.get(member.number)
    if found is None:
        return Rejected(reason=f"no instance has the id {member.id!r}")
    was_open = found.state not in INSTANCE_FINAL
    ended = terminate(tables, found, member.reason) if was_open else ()
    return TerminatedInstance(instance=instance_record(found), was_open=was_open, ended=ended)


def cancel(tables: MemoryTables, found: Instance, event: CancelRequested) -> CancelResult:
    """A9: the code is asked to end. Where none has run, or none can, the instance ends at once."""
    result = decide_cancel(found)
    if result.ends_at_once:
        end_from_outside(tables, found, end_by_cancel(found, event.reason, now_ms=tables.now_ms))
    elif result.verdict is EventVerdict.DELIVER:
        request_cancel(tables, found, event)
    return result


def request_cancel(
    tables: MemoryTables, found: Instance, event: CancelRequested, *, applies_at_ms: int | None = None
) -> None:
    tables.instances.change(
        found.number,
        state=next_state(found.state, InstanceEvent.REQUEST_CANCEL),
        paused_at_ms=None,
        paused_from=None,
        pause_reason=None,
    )
    put_message(tables, found, event, name=None, applies_at_ms=applies_at_ms)
    if found.state is InstanceState.PAUSED:
        answer_exhausted(tables, found.number)
        restore_attempts(tables, found)
    tables.wake(found.number)


def tell_parent(tables: MemoryTables, parent: InstanceNumber, execution: int, answer: ChildAnswer) -> None:
    tables.put_in_inbox(parent, execution, encode_event(answer))
    tables.wake(parent)


def answer_parent(tables: MemoryTables, child: Instance) -> None:
    """Tell the parent of the end of its child, if the execution that started it is still the active one (G4)."""
    link = child.parent
    parent = None if link is None else tables.instances.get(link.number)
    if link is None or parent is None:
        return
    verdict = decide_delivery(
        MessageKind.CHILD_RESULT,
        state=parent.state,
        loop_is_active=parent.owner is not None,
        addressed_to=link.execution,
        execution=parent.execution,
    )
    if verdict is DeliveryVerdict.DROP:
        return
    payload = msgspec.json.decode(child.outcome or b"", type=Payload)
    large = tables.payloads.get((child.number, payload.reference))
    if large is not None:
        tables.payloads.put((parent.number, payload.reference), large)
    answer = child_reply(link.child, child.state, payload, time_ms=tables.now_ms)
    tell_parent(tables, parent.number, parent.execution, answer)


def note_closing(tables: MemoryTables, number: InstanceNumber, execution: int, how: ParentEnd) -> None:
    """An execution has ended: its children are to be told, if it has any. The first note counts."""
    if (number, execution) not in tables.closings and _children_to_close(tables, number, execution):
        tables.closings.put((number, execution), Closing(how=how))


def _children_to_close(tables: MemoryTables, number: InstanceNumber, execution: int) -> list[Instance]:
    return [
        row
        for row in tables.instances.values()
        if row.is_child_of(number, execution) and row.is_open and row.parent_close is not ParentClose.ABANDON
    ]


def close_children(
    tables: MemoryTables, number: InstanceNumber, execution: int, limit: int = MOST_CHILDREN_PER_COMMIT
) -> tuple[Ended, int]:
    """Tell at most `limit` children of an execution that has ended, and theirs. Who ended, and how many were told."""
    ended: list[EndedInstance] = []
    families = deque([(number, execution)])
    done = 0
    while families and done < limit:
        family = families.popleft()
        closing = tables.closings.get(family)
        if closing is None:
            continue
        for child in _children_to_close(tables, *family):
            action = decide_close(child.parent_close, closing.how, child.state)
            if action is ParentClose.ABANDON or done >= limit:
                continue
            done += 1
            if action is ParentClose.TERMINATE:
                end_from_outside(tables, child, end_by_termination(child, PARENT_ENDED, now_ms=tables.now_ms))
            elif not cancel(tables, child, CancelRequested(time_ms=0, reason=PARENT_ENDED)).ends_at_once:
                continue
            ended.append(EndedInstance(child.id, child.number, child.workflow, tables.instances[child.number].state))
            families.append((child.number, child.execution))
        if done < limit:
            tables.closings.remove(family)
    return tuple(ended), done


def apply_close_children(tables: MemoryTables, member: CloseChildren) -> Outcome:
    ended, changed = close_children(tables, member.number, member.execution, member.limit)
    return Applied(changed=changed, ended=ended)


def set_deadline(tables: MemoryTables, number: InstanceNumber, deadline: Deadline) -> bool:
    row = tables.instances.get(number)
    if row is None or row.has_deadline_rule or not row.is_open:
        return False
    record = None
    if deadline.limit_ms is not None:
        at_ms = row.begins_at_ms + deadline.limit_ms
        record = DeadlineRecord(at_ms=at_ms, grace_ms=deadline.grace_ms, expires_at_ms=at_ms)
    tables.instances.change(number, has_deadline_rule=True, deadline=record)
    return True


def apply_set_deadline(tables: MemoryTables, member: SetDeadline) -> Outcome:
    if set_deadline(tables, member.number, member.deadline):
        return Applied()
    return Rejected(reason=f"instance {member.number} knows its deadline already, or has ended")


def apply_expire(tables: MemoryTables, member: Expire) -> Outcome:
    """Ask the code to end, or end the instance without it."""
    found = tables.instances.get(member.number)
    deadline = None if found is None else found.deadline
    if found is None or deadline is None or deadline.expires_at_ms is None or deadline.expires_at_ms > tables.now_ms:
        return Rejected(reason=f"the deadline of instance {member.number} has not come")
    verdict, ended = enforce(tables, found, deadline)
    if verdict is DeadlineVerdict.NOTHING:
        return Rejected(reason=f"instance {member.number} has ended")
    return Expired(instance=instance_record(found), verdict=verdict, ended=ended)


def enforce(
    tables: MemoryTables, found: Instance, deadline: DeadlineRecord, *, applies_at_ms: int | None = None
) -> tuple[DeadlineVerdict, Ended]:
    """Act on a deadline that has passed. That of a PAUSED instance is held until its resume (R25)."""
    verdict = deadlines.at_deadline(found.state, grace_ms=deadline.grace_ms, is_grace_over=deadline.is_in_grace)
    ended: Ended = ()
    if verdict is DeadlineVerdict.HOLD:
        held = msgspec.structs.replace(deadline, expires_at_ms=None)
        tables.instances.change(found.number, deadline=held)
    elif verdict is DeadlineVerdict.END:
        end_from_outside(tables, found, end_by_deadline(found, deadline, now_ms=tables.now_ms))
        ended = close_children(tables, found.number, found.execution)[0]
    elif verdict is not DeadlineVerdict.NOTHING:
        if verdict is DeadlineVerdict.ASK:
            request_cancel(tables, found, cancel_at_deadline(found, deadline), applies_at_ms=applies_at_ms)
        grace = msgspec.structs.replace(deadline, expires_at_ms=tables.now_ms + deadline.grace_ms)
        tables.instances.change(found.number, deadline=grace)
    return verdict, ended
