"""Comparison of code with history (G12): whether a produced command is the recorded one, and the error if not."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from holdfast.core import history as ev
from holdfast.core.history import HistoryEvent
from holdfast.errors import HistoryMismatch
from holdfast.payloads.failures import Failure

_decode_recorded_failure: Final = msgspec.json.Decoder(Failure).decode


def mismatch(position: int, *, recorded: HistoryEvent | None, produced: HistoryEvent | None) -> HistoryMismatch:
    """The error for the first step in which code and history differ."""
    return HistoryMismatch(
        f"the code does not match the history at step {position}: "
        f"recorded {_describe(recorded)}, but the code produced {_describe(produced)}"
    )


def is_same(recorded: HistoryEvent, produced: HistoryEvent) -> bool:
    """Whether two commands are the same step. Arguments and due times may change with the code; steps may not."""
    kind = type(recorded)
    if type(produced) is not kind:
        return False
    if isinstance(recorded, ev.ChildScheduled) and recorded.named and recorded.id != getattr(produced, "id", ""):
        return False
    return all(getattr(recorded, name) == getattr(produced, name) for name in _IDENTITY.get(kind, ()))


def ended_before_it_ran(recorded: Sequence[HistoryEvent]) -> bool:
    """Whether an execution was ended from outside before any of its code ran, so that no step is recorded."""
    return len(recorded) > 1 and all(isinstance(event, ev.FROM_OUTSIDE) for event in recorded[1:])


def _describe(event: HistoryEvent | None) -> str:
    if event is None:
        return "nothing"
    if isinstance(event, ev.INPUTS):
        return "no further step before the next message"
    return _DESCRIPTIONS[type(event)](event)


_IDENTITY: Final[dict[type[Any], tuple[str, ...]]] = {
    ev.ActivityScheduled: ("activity", "name"),
    ev.ActivityCancelled: ("activity",),
    ev.TimerStarted: ("timer",),
    ev.TimerCancelled: ("timer",),
    ev.SideEffectRecorded: ("number",),
    ev.EventAwaited: ("wait", "name"),
    ev.EventWaitEnded: ("wait",),
    ev.EventSetAside: ("wait", "name"),
    ev.EventRaised: ("number", "name"),
    ev.ChildScheduled: ("child", "name", "named"),
    ev.ChildCancelRequested: ("child",),
    ev.UpdateHandlerCompleted: ("id",),
    ev.UpdateHandlerFailed: ("id",),
}
"""The fields that must be equal in two commands of one kind."""

_DESCRIPTIONS: Final[dict[type[Any], Callable[[Any], str]]] = {
    ev.ActivityScheduled: lambda event: f"a call of activity {event.name!r} (number {event.activity})",
    ev.ActivityCancelled: lambda event: f"the end of waiting for activity number {event.activity}",
    ev.TimerStarted: lambda event: f"the start of timer number {event.timer}",
    ev.TimerCancelled: lambda event: f"the end of waiting for timer number {event.timer}",
    ev.SideEffectRecorded: lambda event: f"side effect number {event.number}",
    ev.ExecutionCompleted: lambda _: "the end of the workflow",
    ev.ExecutionFailed: lambda event: (
        f"the failure of the workflow ({_decode_recorded_failure(bytes(event.failure.data)).message})"
    ),
    ev.EventAwaited: lambda event: f"a wait for event {event.name!r} (number {event.wait})",
    ev.EventWaitEnded: lambda event: f"the end of wait number {event.wait} for an event",
    ev.EventSetAside: lambda event: f"an event {event.name!r} that was set aside ({event.reason})",
    ev.EventRaised: lambda event: f"an event {event.name!r} raised to {event.target!r}",
    ev.ChildScheduled: lambda event: (
        f"the start of a child of workflow {event.name!r} (number {event.child}, id {event.id!r})"
    ),
    ev.ChildCancelRequested: lambda event: f"a request to child number {event.child} to end",
    ev.UpdateHandlerCompleted: lambda event: f"the end of update {event.id!r}",
    ev.UpdateHandlerFailed: lambda event: f"the failure of update {event.id!r}",
    ev.ExecutionCancelled: lambda _: "the end of the workflow by cancellation",
    ev.ContinuedAsNew: lambda _: "the end of this execution, to be continued as new",
    ev.FlowAdvanced: lambda event: f"moves of the nodes {', '.join(event.digits)}",
    ev.NodeFailed: lambda event: f"the failure of node {event.node!r}",
    ev.NodeCompleted: lambda event: f"the completion of node {event.node!r}",
    ev.FanOutStarted: lambda event: f"the fan-out of node {event.node!r} over {event.count} items",
    ev.CycleRestarted: lambda event: f"round {event.round} of the cycle {event.node!r}",
    ev.InstanceTerminated: lambda _: "the end of the workflow from outside",
    ev.InstanceCancelled: lambda _: "the cancellation of the workflow from outside",
    ev.DeadlinePassed: lambda _: "the end of the workflow at its deadline",
}
"""The description of a command in a `HistoryMismatch`."""
