"""Observers of commits: metrics and spans show what a process has committed, and nothing else (M1, M4).

A session has at most one observer. Without one, a commit and a turn cost one comparison more.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.authoring.activity import current_activity
from holdfast.core.run import Run, TurnOutput
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.records import HistoryRow, InstanceId, InstanceNumber

if TYPE_CHECKING:
    from holdfast.storage.members.turns import Turn


class ObservedInstance(Protocol):
    """A live instance, as an observer sees it."""

    number: InstanceNumber
    id: InstanceId
    workflow: str
    execution: int
    run: Run
    observed: Any
    """What an observer keeps for as long as the instance is live; None at first."""


class CommitObserver(Protocol):
    """Receives what a process has committed, after it is on disk. It does not raise, and does not wait."""

    @property
    def clock(self) -> Callable[[], float]:
        """The clock by which durations are measured, in seconds."""
        ...

    def committed(self, members: Sequence[Member], outcomes: Sequence[Outcome], took_seconds: float) -> None:
        """A group is on disk."""
        ...

    def turn_taken(self, live: ObservedInstance, output: TurnOutput) -> None:
        """A turn is about to be committed. An observer may add trace contexts to what it starts and sends."""
        ...

    def turn_committed(self, live: ObservedInstance, turn: "Turn", took_seconds: float) -> None:
        """A turn of a live instance is on disk. `took_seconds`: how long its code ran."""
        ...

    def replayed(self, live: ObservedInstance, history: Sequence[HistoryRow], took_seconds: float) -> None:
        """The code of an instance was rebuilt from its history."""
        ...


class Observers:
    """Two observers as one."""

    def __init__(self, first: CommitObserver, second: CommitObserver) -> None:
        self._both = (first, second)
        self.clock = first.clock

    def committed(self, members: Sequence[Member], outcomes: Sequence[Outcome], took_seconds: float) -> None:
        for each in self._both:
            each.committed(members, outcomes, took_seconds)

    def turn_taken(self, live: ObservedInstance, output: TurnOutput) -> None:
        for each in self._both:
            each.turn_taken(live, output)

    def turn_committed(self, live: ObservedInstance, turn: "Turn", took_seconds: float) -> None:
        for each in self._both:
            each.turn_committed(live, turn, took_seconds)

    def replayed(self, live: ObservedInstance, history: Sequence[HistoryRow], took_seconds: float) -> None:
        for each in self._both:
            each.replayed(live, history, took_seconds)


def joined(observer: CommitObserver | None, another: CommitObserver) -> CommitObserver:
    """An observer besides the one that a session has."""
    return another if observer is None else Observers(observer, another)


class Spans(Protocol):
    """The spans of calls and bodies of one process."""

    def sending(self, what: str, name: str, instance_id: str) -> AbstractContextManager[str]:
        """The span of a call of a client: `what` is start, event or update. Gives the trace context to be stored."""
        ...

    @property
    def set_current(self) -> Callable[[Any], object]:
        """Called with the `RunningAttempt` whose body begins in the current context; with None at its end."""
        ...

    async def close(self) -> None:
        """Write the spans that are still to be read from the store."""
        ...


class Untraced:
    """No spans."""

    set_current = staticmethod(current_activity.set)

    def sending(self, what: str, name: str, instance_id: str) -> AbstractContextManager[str]:
        del what, name, instance_id
        return _NOTHING

    async def close(self) -> None:
        """Do nothing."""


_NOTHING: Final = nullcontext("")
