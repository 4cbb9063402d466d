"""One execution in memory: the `Run` protocol, and the output of one turn.

Workflow code (`replay.run.WorkflowRun`) and flows (`flows.run.FlowRun`) implement `Run`. The runtime drives a run
through this protocol only, and turns its `TurnOutput` into one commit. No effect of a turn is visible before that
commit (G11).
"""

from collections.abc import Callable, Iterable, Sequence
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
from holdfast.core.admission import IdPolicy
from holdfast.core.attributes import Attributes, StoredAttribute
from holdfast.core.children import MOST_PARENTS, ParentClose, child_seed, default_child_id
from holdfast.core.deadlines import Deadline
from holdfast.core.queries import Reply
from holdfast.errors import NestedTooDeep, PayloadError

if TYPE_CHECKING:
    from holdfast.core import history as ev
    from holdfast.core.admission import Mailbox
    from holdfast.core.history import HistoryEvent


Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
ExecutionEnding: TypeAlias = "ev.ExecutionCompleted | ev.ExecutionFailed | ev.ExecutionCancelled | ev.ContinuedAsNew"
"""The last command of an execution that ends by its own decision."""


class ExecutionId(NamedTuple):
    """Identifies one execution of one instance."""

    instance_id: str
    workflow: str
    execution: int
    worker: str = ""
    """The key of the worker that runs it; empty where no worker does, as for a query of a client."""


class ScheduledActivity(msgspec.Struct, frozen=True, gc=False):
    """A call of an activity; the commit creates its first attempt."""

    activity: int
    name: str
    input: bytes
    options: ActivityOptions
    encoded_options: bytes


class ScheduledChild(NamedTuple):
    """A child; the commit of the turn creates its instance."""

    child: int
    id: str
    named: bool
    """Whether the code or the flow chose the id."""
    workflow: str
    version: str | None
    """None: the worker that takes its first turn chooses it (R6)."""
    input: bytes
    deadline: Deadline | None
    parent_close: ParentClose
    seed: int
    depth: int
    policy: IdPolicy = IdPolicy.IDEMPOTENT
    trace: str = ""
    """The trace context of the execution that starts it."""


class CancelledChild(NamedTuple):
    """A request to a child to end, sent with the commit of the turn."""

    child: int
    reason: str
    descendants: bool = False


class SentEvent(NamedTuple):
    """An event for another instance."""

    number: int
    target: str
    name: str
    data: bytes
    trace: str = ""
    """The trace context of the sender."""
    is_awaited: bool = False
    """The code waits for the verdict."""


class SentCancel(NamedTuple):
    """A request to another instance to end."""

    number: int
    target: str
    reason: str
    is_awaited: bool = False


class LogLine(NamedTuple):
    """A line that the code logged; written once its turn is committed."""

    level: int
    message: str
    arguments: tuple[object, ...]
    extra: dict[str, object]
    error: BaseException | None = None
    place: tuple[str, int, str] = ("holdfast", 0, "")
    """The file, the line and the function that logged it."""


class QueryAnswer(NamedTuple):
    """The reply to a query, and the lines that its handler logged."""

    reply: Reply
    logs: Sequence[LogLine] = ()


class NextAttempt(NamedTuple):
    """The execution that follows a failed one (G18)."""

    input: bytes
    attempt: int
    begins_at_ms: int


class RunEffects(msgspec.Struct):
    """The effects of a turn besides activities and history events. Most turns have none of them."""

    abandoned: list[int] = []
    """Activities whose result is not awaited any more."""
    timers_started: dict[int, int] = {}
    timers_ended: list[int] = []
    logs: list[LogLine] = []
    activities_asked: list[int] = []
    """Activities that are cancelled, and whose end is awaited."""
    sent: list[SentEvent] = []
    cancels: list[SentCancel] = []
    waits_changed: bool = False
    state_values: dict[str, bytes | None] | None = None
    """State values that changed; None as a value deletes it."""
    attributes: dict[str, StoredAttribute | None] | None = None
    """Attributes that changed; None as a value deletes it."""
    children: list[ScheduledChild] = []
    children_asked: list[CancelledChild] = []
    answers: dict[str, Reply | None] | None = None
    next_attempt: NextAttempt | None = None
    """With an `ExecutionFailed` that is retried."""
    interrupted: list[tuple[str, str, bool]] = []
    """Requests of a flow to other instances to end: id, reason, whether their descendants end, too."""

    def cancel_timer(self, number: int) -> None:
        """Drop a timer. One that started in this turn never reaches the store."""
        if self.timers_started.pop(number, None) is None:
            self.timers_ended.append(number)

    def set_attribute(self, name: str, value: StoredAttribute | None) -> None:
        if self.attributes is None:
            self.attributes = {}
        self.attributes[name] = value

    def set_state_value(self, key: str, value: bytes | None) -> None:
        if self.state_values is None:
            self.state_values = {}
        self.state_values[key] = value

    def answer_update(self, update_id: str, reply: Reply | None) -> None:
        """Report the progress of an update to its sender; None: it was accepted."""
        if self.answers is None:
            self.answers = {}
        self.answers[update_id] = reply


class TurnOutput:
    """The output of one turn, from its first message to its commit."""

    __slots__ = ("effects", "events", "key", "outcome", "scheduled")

    def __init__(self) -> None:
        self.events: list[HistoryEvent] = []
        """The events that the commit appends to the history."""
        self.scheduled: list[ScheduledActivity] = []
        self.outcome: ExecutionEnding | None = None
        self.key: str | None = None
        """The collation key of a flow after this turn."""
        self.effects: RunEffects | None = None
        """None while the turn has none: every step makes an output, so the effects are made on first use."""

    def ensure_effects(self) -> RunEffects:
        """The effects, made on first use."""
        effects = self.effects
        if effects is None:
            effects = self.effects = RunEffects()
        return effects


class Run(Protocol):
    """One execution in memory, as its owner drives it. It does no I/O: its owner commits `take_output`."""

    trace: str
    """The trace context of the start, which the next execution gets; empty if it was not traced."""

    @property
    def identity(self) -> ExecutionId: ...
    @property
    def version(self) -> str:
        """The version of the workflow on which it runs."""
        ...

    @property
    def parent(self) -> str:
        """The id of the parent instance; empty if there is none."""
        ...

    @property
    def root(self) -> str:
        """The id of the topmost ancestor; empty if there is no parent, or if it was not recorded."""
        ...

    @property
    def depth(self) -> int:
        """The number of parents above this instance."""
        ...

    @property
    def seed(self) -> int:
        """The seed of the random numbers and ids of this execution; no other execution has it."""
        ...

    @property
    def began_at_ms(self) -> int:
        """The time of the start of this execution."""
        ...

    @property
    def mailbox(self) -> "Mailbox | None":
        """The rules for events that are not awaited; None: the defaults (G6)."""
        ...

    @property
    def drops_events(self) -> bool:
        """Whether events that are not awaited are dropped."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether the execution has ended in this turn, with all of its tasks."""
        ...

    @property
    def is_ending(self) -> bool:
        """Whether the main function has ended. Its remaining tasks may still clean up."""
        ...

    @property
    def is_end_deferred(self) -> bool:
        """Whether the main function has ended and `end` is to be called after the remaining messages (G14)."""
        ...

    @property
    def is_tainted(self) -> bool:
        """Whether read-only code or a failed preview has changed the run, so that it differs from its replay."""
        ...

    @property
    def needs_turn(self) -> bool | None:
        """Whether a preview met a value that only a committed turn decides; None if there was no preview."""
        ...

    @property
    def has_relatives(self) -> bool:
        """Whether the end of this execution concerns a parent or children."""
        ...

    @property
    def has_open_activities(self) -> bool:
        """Whether activities are open at the end of the execution."""
        ...

    @property
    def awaited_events(self) -> tuple[str, ...]:
        """The names of the awaited events. An empty name: no update is accepted any more (G4)."""
        ...

    @property
    def state_values(self) -> dict[str, bytes]:
        """The encoded state values, and under the empty key the status."""
        ...

    @property
    def attributes(self) -> Attributes:
        """The attributes of the instance, as the code sees them (F2)."""
        ...

    def awaits_timer(self, timer: int) -> bool: ...
    def awaits_event(self, name: str) -> bool: ...
    def event_misfit(self, event: "ev.EventReceived") -> PayloadError | None:
        """The reason why the value of an awaited event does not fit its wait; None if it fits."""
        ...

    def values_received(self, activity: int) -> int:
        """The number of values that an activity has streamed to this run; -1 if no stream of it is open."""
        ...

    def apply(self, event: "ev.Input", has_more: bool = False) -> None:
        """Apply one input and run until the code waits again (G10). `has_more`: see `is_end_deferred`."""
        ...

    def end(self) -> None:
        """Apply the end of the main function, if it is deferred."""
        ...

    def accepts_update(self, event: "ev.UpdateAccepted") -> bool:
        """Whether an update is accepted. The reply to a refused one becomes part of the output."""
        ...

    def answer_query(self, name: str, data: bytes) -> QueryAnswer:
        """Answer a query from the current state, which must be committed (G11)."""
        ...

    def preview(self, apply: Callable[[], None]) -> None:
        """Call `apply`, which applies inputs to this run. Their effects are never committed, and no line is logged."""
        ...

    def replay(self, history: "Iterable[HistoryEvent]") -> None:
        """Rebuild the run from its history (G12)."""
        ...

    def add_payloads(self, payloads: dict[str, bytes]) -> None:
        """Add large payloads that messages still to be applied name by reference."""
        ...

    def take_output(self) -> TurnOutput:
        """The output since the last call."""
        ...

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log a line of the engine with the commit of this turn."""
        ...

    def evict(self) -> Sequence[str]:
        """Tear the code down without any effect. The names of the tasks that would not end."""
        ...

    def abandon(self) -> None:
        """Make the next `evict` run no code: coroutines stay suspended until the process ends."""
        ...


class ParentInfo(NamedTuple):
    """The parent of a child to be scheduled."""

    identity: ExecutionId
    seed: int
    depth: int


def schedule_child(
    parent: ParentInfo,
    number: int,
    *,
    workflow: str,
    version: str | None,
    encoded: bytes,
    deadline: Deadline | None,
    parent_close: ParentClose,
    chosen_id: str,
    policy: IdPolicy = IdPolicy.IDEMPOTENT,
    node: str = "",
) -> ScheduledChild:
    """Child number `number` of an execution, with its id, seed and depth; `NestedTooDeep` bounds the depth.

    `node` is the node of a flow that starts it.
    """
    depth = parent.depth + 1
    if depth > MOST_PARENTS:
        starter = f"its node {node!r} " if node else ""
        advice = "a flow uses a cycle" if node else "a workflow calls hf.continue_as_new"
        raise NestedTooDeep(
            f"it has {parent.depth} parents above it, the most that are allowed, and {starter}cannot start "
            f"{workflow!r}; to repeat itself, {advice}"
        )
    identity = parent.identity
    return ScheduledChild(
        child=number,
        id=chosen_id or default_child_id(identity.instance_id, identity.execution, number),
        named=bool(chosen_id),
        workflow=workflow,
        version=version,
        input=encoded,
        deadline=deadline,
        parent_close=parent_close,
        seed=child_seed(parent.seed, number),
        depth=depth,
        policy=policy,
    )


class SliceRunner(Protocol):
    """Calls workflow code, and raises `TurnTooLong` if it had to be interrupted."""

    def __call__(self, work: Callable[[*Arguments], Result], *args: *Arguments) -> Result: ...


def run_unwatched(work: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
    """Run a slice of code without a watchdog."""
    return work(*args)
