"""What the code of a workflow did in one turn, before it is committed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from holdfast.core.activity_options import ActivityOptions

if TYPE_CHECKING:
    from holdfast.core import history as ev
    from holdfast.core.history import HistoryEvent
    from holdfast.core.queries import Reply
    from holdfast.replay.children import CancelledChild, ScheduledChild

Item = TypeVar("Item")
ExecutionEnding: TypeAlias = "ev.ExecutionCompleted | ev.ExecutionFailed | ev.ExecutionCancelled | ev.ContinuedAsNew"
"""How an execution comes to its end by its own code."""


class ScheduledActivity(msgspec.Struct, frozen=True, gc=False):
    """A call of an activity, to become its first attempt."""

    activity: int
    name: str
    input: bytes
    options: ActivityOptions
    encoded_options: bytes


class SentEvent(NamedTuple):
    """An event for another instance."""

    number: int
    target: str
    name: str
    data: bytes


class LogLine(NamedTuple):
    """A line that the code logged; written once its turn is committed."""

    level: int
    message: str
    arguments: tuple[Any, ...]
    extra: dict[str, Any]
    error: BaseException | None = None
    place: tuple[str, int, str] = ("holdfast", 0, "")
    """The file, the line and the function that logged it."""


class Besides:
    """What a turn did besides calling activities. What it did not do has no list."""

    __slots__ = (
        "abandoned",
        "answers",
        "children",
        "children_asked",
        "interrupted",
        "kept",
        "logs",
        "sent",
        "timers_ended",
        "timers_started",
        "waits_changed",
    )

    def __init__(self) -> None:
        self.abandoned: Sequence[int] = ()
        self.timers_started: dict[int, int] = {}
        self.timers_ended: Sequence[int] = ()
        self.logs: Sequence[LogLine] = ()
        self.sent: Sequence[SentEvent] = ()
        self.waits_changed = False
        self.kept: dict[str, bytes | None] | None = None
        self.children: Sequence[ScheduledChild] = ()
        self.children_asked: Sequence[CancelledChild] = ()
        self.answers: dict[str, Reply | None] | None = None
        self.interrupted: Sequence[tuple[str, str, bool]] = ()
        """Of a flow: other instances that are asked to end, each with the reason."""


class TurnOutput:
    """What one turn did. Two of these are there for each live instance, and one is made in every turn: so what most
    turns do not do is kept apart.
    """

    __slots__ = ("besides", "events", "key", "outcome", "scheduled")

    def __init__(self) -> None:
        self.events: list[HistoryEvent] = []
        """What goes into the history."""
        self.scheduled: list[ScheduledActivity] = []
        self.outcome: ExecutionEnding | None = None
        self.key: str | None = None
        """Of a flow: its collation key from here on."""
        self.besides: Besides | None = None
        """None if there is nothing; see `also`."""

    def also(self) -> Besides:
        """What it does besides, to be added to."""
        besides = self.besides
        if besides is None:
            besides = self.besides = Besides()
        return besides


def with_one_more(items: Sequence[Item], item: Item) -> Sequence[Item]:
    """`items` with one more, which makes a list of them."""
    if isinstance(items, list):
        items.append(item)
        return items
    return [item]
