"""Observers of commits: metrics count what a process has committed, and nothing else (M1).

A session has at most one observer. Without one, a commit and a turn cost one comparison more.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome

if TYPE_CHECKING:
    from holdfast.storage.members.turns import Turn


class CommitObserver(Protocol):
    """Receives what a process has committed, after it is on disk. It does not raise, and does not wait."""

    @property
    def clock(self) -> Callable[[], float]:
        """The clock by which durations are measured, in seconds."""
        ...

    def committed(self, members: Sequence[Member], outcomes: Sequence[Outcome], took_seconds: float) -> None:
        """A group is on disk."""
        ...

    def turn_committed(self, workflow: str, turn: "Turn", took_seconds: float) -> None:
        """A turn of a live instance is on disk. `took_seconds`: how long its code ran."""
        ...

    def replayed(self, workflow: str, took_seconds: float) -> None:
        """The code of an instance was rebuilt from its history."""
        ...
