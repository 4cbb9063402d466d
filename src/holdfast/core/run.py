"""What a run of code or of a flow does in one turn, before the turn is committed.

`TurnOutput` is what the runtime turns into one commit. Nothing of it is visible before that commit (G11).
"""

from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    TypeVarTuple,
)

import msgspec

from holdfast.core.activity_options import ActivityOptions
from holdfast.core.children import ParentClose
from holdfast.core.deadlines import Deadline
from holdfast.core.queries import Reply

if TYPE_CHECKING:
    from holdfast.core import history as ev
    from holdfast.core.history import HistoryEvent


Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
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
    arguments: tuple[object, ...]
    extra: dict[str, object]
    error: BaseException | None = None
    place: tuple[str, int, str] = ("holdfast", 0, "")
    """The file, the line and the function that logged it."""


class RunEffects(msgspec.Struct):
    """What a turn did besides calling activities and recording events. Most turns have none of it."""

    abandoned: list[int] = []
    """Activities that the code no longer waits for."""
    timers_started: dict[int, int] = {}
    timers_ended: list[int] = []
    logs: list[LogLine] = []
    sent: list[SentEvent] = []
    waits_changed: bool = False
    kept: dict[str, bytes | None] | None = None
    """State values that changed; None as a value deletes it."""
    children: list["ScheduledChild"] = []
    children_asked: list["CancelledChild"] = []
    answers: dict[str, Reply | None] | None = None
    interrupted: list[tuple[str, str, bool]] = []
    """Of a flow: other instances that are asked to end, each with the reason."""


class TurnOutput:
    """What one turn did, from its first message to its commit."""

    __slots__ = ("effects", "events", "key", "outcome", "scheduled")

    def __init__(self) -> None:
        self.events: list[HistoryEvent] = []
        """What the commit appends to the history."""
        self.scheduled: list[ScheduledActivity] = []
        self.outcome: ExecutionEnding | None = None
        self.key: str | None = None
        """Of a flow: its collation key from here on."""
        self.effects: RunEffects | None = None
        """None while the turn has none: a turn is made for every step, so these are made on first use."""

    def ensure_effects(self) -> RunEffects:
        """The effects, made on first use."""
        effects = self.effects
        if effects is None:
            effects = self.effects = RunEffects()
        return effects


class SliceRunner(Protocol):
    """Calls workflow code, and raises `TurnTooLong` if it had to be stopped from outside."""

    def __call__(self, work: Callable[[*Arguments], Result], *args: *Arguments) -> Result: ...


def run_unwatched(work: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
    """Runs a slice of code without a watchdog."""
    return work(*args)


class ExecutionId(NamedTuple):
    """Which execution of which instance this is."""

    instance_id: str
    workflow: str
    execution: int
    worker: str = ""
    """The key of the worker that runs it; empty where none does, as for a query of a client."""


class ScheduledChild(NamedTuple):
    """A child to be created with the commit of this turn."""

    child: int
    id: str
    named: bool
    """Whether the code chose the id."""
    workflow: str
    version: str
    input: bytes
    deadline: Deadline | None
    parent_close: ParentClose
    seed: int
    depth: int


class CancelledChild(NamedTuple):
    """A child to be asked to end with the commit of this turn."""

    child: int
    reason: str
    descendants: bool = False
