"""Code against history (G12): whether a command that the code produced is the recorded one, and how to say so."""

from typing import Final

import msgspec

from holdfast.core import events as ev
from holdfast.core.events import HistoryEvent
from holdfast.errors import HistoryMismatch
from holdfast.payloads.failures import Failure

_decode_failure: Final = msgspec.json.Decoder(Failure).decode


def mismatch(position: int, *, recorded: HistoryEvent | None, produced: HistoryEvent | None) -> HistoryMismatch:
    """The first step in which code and history differ."""
    return HistoryMismatch(
        f"the code does not match the history at step {position}: "
        f"recorded {_step(recorded)}, but the code produced {_step(produced)}"
    )


def _step(event: HistoryEvent | None) -> str:
    match event:
        case None:
            return "nothing"
        case ev.ActivityScheduled():
            return f"a call of activity {event.name!r} (number {event.activity})"
        case ev.ActivityAbandoned():
            return f"the end of waiting for activity number {event.activity}"
        case ev.TimerStarted():
            return f"the start of timer number {event.timer}"
        case ev.TimerCancelled():
            return f"the end of waiting for timer number {event.timer}"
        case ev.SideEffectRecorded():
            return f"side effect number {event.number}"
        case ev.WorkflowCompleted():
            return "the end of the workflow"
        case ev.WorkflowFailed():
            return f"the failure of the workflow ({_decode_failure(bytes(event.failure.data)).message})"
        case ev.WorkflowTerminated():
            return "its end from outside"
        case ev.Started() | ev.ActivityCompleted() | ev.ActivityFailed() | ev.TimerFired():
            return "no further step before the next message"


def is_same(recorded: HistoryEvent, produced: HistoryEvent) -> bool:
    """Whether two commands are the same step. Arguments and due times may change with the code; steps may not."""
    match recorded, produced:
        case ev.ActivityScheduled(), ev.ActivityScheduled():
            return (recorded.activity, recorded.name) == (produced.activity, produced.name)
        case ev.ActivityAbandoned(), ev.ActivityAbandoned():
            return recorded.activity == produced.activity
        case ev.TimerStarted(), ev.TimerStarted():
            return recorded.timer == produced.timer
        case ev.TimerCancelled(), ev.TimerCancelled():
            return recorded.timer == produced.timer
        case ev.SideEffectRecorded(), ev.SideEffectRecorded():
            return recorded.number == produced.number
        case _:
            return type(recorded) is type(produced)
