"""The errors of a comparison of code with history (G12). The events compare themselves: `HistoryEvent.is_same_step`."""

from collections.abc import Sequence

from holdfast.core import history as ev
from holdfast.core.history import HistoryEvent
from holdfast.errors import HistoryMismatch


def mismatch(position: int, *, recorded: HistoryEvent | None, produced: HistoryEvent | None) -> HistoryMismatch:
    """The error for the first step in which code and history differ."""
    return HistoryMismatch(
        f"the code does not match the history at step {position}: "
        f"recorded {_describe(recorded)}, but the code produced {_describe(produced)}"
    )


def ended_before_it_ran(recorded: Sequence[HistoryEvent]) -> bool:
    """Whether an execution was ended from outside before any of its code ran, so that no step is recorded."""
    return len(recorded) > 1 and all(isinstance(event, ev.FROM_OUTSIDE) for event in recorded[1:])


def _describe(event: HistoryEvent | None) -> str:
    if event is None:
        return "nothing"
    if isinstance(event, ev.INPUTS):
        return "no further step before the next message"
    return event.describe()
