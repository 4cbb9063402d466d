"""What a replay reads from the history before it runs the code, and the error if code and history differ (G12)."""

from collections.abc import Iterable, Sequence

from holdfast.core import history as ev
from holdfast.core.history import HistoryEvent, Payload
from holdfast.errors import HistoryMismatch


def side_effects_in(recorded: Iterable[HistoryEvent]) -> dict[int, Payload]:
    """The recorded values by number."""
    return {event.number: event.value for event in recorded if isinstance(event, ev.SideEffectRecorded)}


def waits_in(recorded: Iterable[HistoryEvent]) -> frozenset[int]:
    """The activities whose cancelled call waits until the body has ended (A14)."""
    return frozenset(event.activity for event in recorded if isinstance(event, ev.ActivityScheduled) and event.waits)


def patches_in(recorded: Iterable[HistoryEvent]) -> dict[str, bool]:
    """The patches that the execution has applied (R14)."""
    return {event.name: True for event in recorded if type(event) is ev.PatchApplied}


def inputs_before_the_end(recorded: list[HistoryEvent]) -> set[int]:
    """The positions of the inputs after which the end of the main function was deferred."""
    deferring: set[int] = set()
    for position, event in enumerate(recorded):
        if isinstance(event, ev.EventReceived | ev.UpdateAccepted) and event.at_end:
            before = position - 1
            while not isinstance(recorded[before], ev.INPUTS):
                before -= 1
            deferring.add(before)
    return deferring


def ended_before_it_ran(recorded: Sequence[HistoryEvent]) -> bool:
    """Whether an execution was ended from outside before any of its code ran, so that no step is recorded."""
    return len(recorded) > 1 and all(isinstance(event, ev.FROM_OUTSIDE) for event in recorded[1:])


def mismatch(position: int, *, recorded: HistoryEvent | None, produced: HistoryEvent | None) -> HistoryMismatch:
    """The error for the first step in which code and history differ."""
    return HistoryMismatch(
        f"the code does not match the history at step {position}: "
        f"recorded {_describe(recorded)}, but the code produced {_describe(produced)}"
    )


def _describe(event: HistoryEvent | None) -> str:
    if event is None:
        return "nothing"
    if isinstance(event, ev.INPUTS):
        return "no further step before the next message"
    return event.describe()
