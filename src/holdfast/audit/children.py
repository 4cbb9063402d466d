"""The children of an instance against its histories and its inbox (G4, G5, G11), and what its end left of them (C1)."""

from collections.abc import Sequence
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
) -> list[Finding]:
    """One execution. `is_active`: it goes on and has to be told; `is_closing`: its children are being gone through."""
    findings: list[Finding] = []
    ends: dict[int, ev.ChildEnd] = dict(reading.child_ends)
    for event in inbox:
        if isinstance(event, ev.CHILD_ENDS):
            if event.child in ends:
                findings.append((Rule.CHILDREN_ANSWER, f"child {event.child} answers a second time in the inbox"))
            ends[event.child] = event
    by_step = {child.parent_step: child for child in children if child.state in STATES}
    for step, scheduled in reading.children.items():
        child = by_step.pop(step, None)
        may_be_refused = not is_active and scheduled.named and step not in reading.children_started
        if child is not None or not may_be_refused:  # an answer that came after the end was not read any more
            findings += _check_tie(execution, scheduled, child, ends.get(step), reading)
        if child is not None:
            findings += _check_end(child, ends.get(step), is_active=is_active)
            if not is_active and not is_closing and _is_left_over(child):
                text = f"child {child.id!r} is {child.state}, and execution {execution} of its parent has ended"
                findings.append((Rule.CHILDREN_CLOSED, text))
    if reading.is_complete:
        findings += [
            (Rule.CHILDREN_TIED, f"child {child.id!r} says that step {step} of execution {execution} started it")
            for step, child in by_step.items()
        ]
    return findings


def _check_tie(
    execution: int,
    scheduled: ev.ChildScheduled,
    child: RawChild | None,
    end: ev.ChildEnd | None,
    reading: HistoryReading,
) -> list[Finding]:
    """What the history started is there, once, unless it was refused."""
    which = f"child {scheduled.child} of execution {execution}"
    if isinstance(end, ev.ChildRefused):
        return [] if child is None else [(Rule.CHILDREN_TIED, f"{which} was refused, and {child.id!r} is there")]
    if child is None:
        if not reading.is_complete:
            return []
        return [(Rule.CHILDREN_TIED, f"{which} ({scheduled.id!r}) was started and is not there")]
    if (child.id, child.workflow) != (scheduled.id, scheduled.name):
        text = f"{which} is {child.id!r} of {child.workflow!r}, and {scheduled.id!r} of {scheduled.name!r} was started"
        return [(Rule.CHILDREN_TIED, text)]
    return []


def _check_end(child: RawChild, end: ev.ChildEnd | None, *, is_active: bool) -> list[Finding]:
    """Told once it has ended, not before, and how it ended."""
    closed = child.state in INSTANCE_FINAL
    if end is None:
        if closed and is_active:
            return [(Rule.CHILDREN_ANSWER, f"child {child.id!r} is {child.state}, and its parent was not told")]
        return []
    if not closed:
        return [(Rule.CHILDREN_ANSWER, f"child {child.id!r} is {child.state}, and its end was told already")]
    try:
        outcome = _payload.decode(child.outcome or b"")
        expected = child_reply(end.child, InstanceState(child.state), outcome, time_ms=end.time_ms)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []  # said of the child itself
    if expected != end:
        return [(Rule.CHILDREN_ANSWER, f"child {child.id!r} did not end in the way that its parent was told")]
    return []


def _is_left_over(child: RawChild) -> bool:
    """Open, tied to its parent, and never asked to end."""
    return child.state not in INSTANCE_FINAL and child.parent_close != ParentClose.ABANDON and not child.was_asked
