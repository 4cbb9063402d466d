"""Checks the children of an instance against its histories and its inbox (G4, G5, G11), and after its end (C1)."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from holdfast.audit.histories import HistoryReading
from holdfast.audit.problems import Finding, Rule
from holdfast.core import history as ev
from holdfast.core.children import ParentClose, child_reply
from holdfast.core.history import HistoryEvent, Payload
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState
from holdfast.storage.relational.raw_tables import RawChild

STATES: Final = frozenset(InstanceState)
_payload = msgspec.json.Decoder(Payload)


def check_children(
    execution: int,
    reading: HistoryReading,
    children: Sequence[RawChild],
    inbox: Sequence[HistoryEvent],
    *,
    is_active: bool,
    is_closing: bool,
) -> Iterator[Finding]:
    """Checks one execution. `is_active`: it has not ended; `is_closing`: its children are being closed."""
    ends: dict[int, ev.ChildEnd] = dict(reading.child_ends)
    for event in inbox:
        if isinstance(event, ev.CHILD_ENDS):
            if event.child in ends:
                yield Rule.CHILDREN_ANSWER, f"child {event.child} answers a second time in the inbox"
            ends[event.child] = event
    by_step = {child.parent_step: child for child in children if child.state in STATES}
    for step, scheduled in reading.children.items():
        child = by_step.pop(step, None)
        may_be_refused = not is_active and scheduled.named and step not in reading.children_started
        if child is not None or not may_be_refused:  # a refusal that came after the end was not read
            yield from _check_tie(execution, scheduled, child, ends.get(step), reading)
        if child is not None:
            yield from _check_end(child, ends.get(step), is_active=is_active)
            if not is_active and not is_closing and _is_left_over(child):
                text = f"child {child.id!r} is {child.state}, and execution {execution} of its parent has ended"
                yield Rule.CHILDREN_CLOSED, text
    if reading.is_complete:
        for step, child in by_step.items():
            text = f"child {child.id!r} names step {step} of execution {execution}, which did not start it"
            yield Rule.CHILDREN_TIED, text


def _check_tie(
    execution: int,
    scheduled: ev.ChildScheduled,
    child: RawChild | None,
    end: ev.ChildEnd | None,
    reading: HistoryReading,
) -> Iterator[Finding]:
    """A child that the history started exists, unless it was refused."""
    which = f"child {scheduled.child} of execution {execution}"
    if isinstance(end, ev.ChildRefused):
        if child is not None:
            yield Rule.CHILDREN_TIED, f"{which} was refused, and {child.id!r} is there"
    elif child is None:
        if reading.is_complete:
            yield Rule.CHILDREN_TIED, f"{which} ({scheduled.id!r}) was started and is not there"
    elif (child.id, child.workflow) != (scheduled.id, scheduled.name):
        text = f"{which} is {child.id!r} of {child.workflow!r}, and {scheduled.id!r} of {scheduled.name!r} was started"
        yield Rule.CHILDREN_TIED, text


def _check_end(child: RawChild, end: ev.ChildEnd | None, *, is_active: bool) -> Iterator[Finding]:
    """The parent has the answer of a child that ended, with its outcome, and none of an open child."""
    is_closed = child.state in INSTANCE_FINAL
    if end is None:
        if is_closed and is_active:
            yield Rule.CHILDREN_ANSWER, f"child {child.id!r} is {child.state}, and its parent has no answer"
        return
    if not is_closed:
        yield Rule.CHILDREN_ANSWER, f"child {child.id!r} is {child.state}, and its parent has its answer already"
        return
    try:
        outcome = _payload.decode(child.outcome or b"")
        expected = child_reply(end.child, InstanceState(child.state), outcome, time_ms=end.time_ms)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return  # reported for the child itself
    if expected != end:
        yield Rule.CHILDREN_ANSWER, f"child {child.id!r} did not end as the answer in its parent states"


def _is_left_over(child: RawChild) -> bool:
    """Whether a child is open, was to end with its parent, and has no request to end."""
    return child.state not in INSTANCE_FINAL and child.parent_close != ParentClose.ABANDON and not child.was_asked
