"""One execution of a flow: it takes turns like workflow code does, only that a graph decides (K).

Each input is noted in the books and decided upon: which nodes finish by it, which follow, what they do. What comes of
it are the same commands that code gives, so everything around it is the same, too: attempts, ledgers, timers, children,
inboxes. Nothing is ever replayed: a flow that is brought back to life reads its history into its books.

The face of a run, as whoever owns an instance knows it: a flow has the same as workflow code.

Failures of nodes: how they are recorded, and by which names an error edge may catch them (K4).

Updates: a flow has no code that could take them, and says so.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast.core import history as ev
from holdfast.core.collation import Digit
from holdfast.core.flow.definition import CycleAction, WaitAction
from holdfast.core.flow.graph import GraphEdge
from holdfast.core.flow.scheduler import COMPLETED, RELEASED, EdgeState, Errored, FlowOutcome, NodeOutcome, TimedOut
from holdfast.core.flow.state import NO_ITEM, FlowState, NodePlace, replay_event
from holdfast.core.history import EventReceived, Payload, UpdateAccepted
from holdfast.core.lifecycle import InstanceState
from holdfast.core.queries import Reply, unknown_handler
from holdfast.core.run import ExecutionEnding, ExecutionId, LogLine, SliceRunner, TurnOutput, run_unwatched
from holdfast.errors import (
    CycleLimitExceeded,
    DeadlineExceeded,
    ExpressionError,
    HoldfastError,
    InstanceConflict,
    PayloadError,
    WorkflowCancelled,
    WorkflowTerminated,
)
from holdfast.flows.compiled_flow import CompiledFlow
from holdfast.flows.expressions.expression import Expression
from holdfast.flows.expressions.templates import InstanceValues, bounded, evaluate
from holdfast.flows.node_actions import (
    end_timer,
    end_wait,
    next_items,
    restart_cycle,
    start_node,
    stop_child,
    stop_node,
)
from holdfast.flows.workflow import read_input
from holdfast.payloads.failures import Failure, Resolver, failure_of, qualified_name
from holdfast.payloads.limits import PayloadLimit


class NoUpdates:
    """Every update is refused."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Callable[[str, Reply], None]) -> None:
        self._answer = answer

    def refusal(self, event: UpdateAccepted) -> Reply:
        """Why it is not accepted."""
        del event
        return unknown_handler(())

    def refuse(self, update_id: str, answer: Reply) -> None:
        """Tell its sender."""
        self._answer(update_id, answer)


class RunBase:
    """What is asked of every run, and what a flow never has."""

    __slots__ = (
        "_payloads",
        "depth",
        "flow",
        "identity",
        "is_done",
        "limit",
        "now_ms",
        "output",
        "parent",
        "resolve",
        "scheduler",
        "seed",
        "state",
        "values",
        "version",
    )

    mailbox: Final = None
    drops_events: Final = False
    is_ending: Final = False
    is_spoiled: Final = False
    is_end_deferred: Final = False

    def __init__(
        self,
        flow: CompiledFlow,
        identity: ExecutionId,
        resolve: Resolver,
        payloads: dict[str, bytes] | None = None,
        limit: PayloadLimit | None = None,
    ) -> None:
        self.flow = flow
        self.identity = identity
        self.resolve = resolve
        self.limit = limit or PayloadLimit()
        self.state = book = FlowState(flow.graph, flow.roster)
        self.scheduler = book.scheduler
        self._payloads = {} if payloads is None else payloads
        self.values = InstanceValues(flow, identity.instance_id, book, self._payloads)
        self.version = ""
        self.parent = ""
        self.depth = 0
        self.seed = 0
        self.now_ms = 0
        self.output = TurnOutput()
        """What this turn does."""
        self.is_done = False

    @property
    def has_family(self) -> bool:
        """Whether the end of this execution concerns a parent or children."""
        return self.depth > 0 or self.state.next_child > 0

    @property
    def has_open_activities(self) -> bool:
        """Whether activities were still open at the end."""
        effects = self.output.effects
        return bool(self.state.activities) or (effects is not None and bool(effects.abandoned))

    @property
    def waited_for(self) -> tuple[str, ...]:
        """The names of the events that are waited for."""
        return tuple(self.state.waits)

    @property
    def kept(self) -> dict[str, bytes]:
        """A flow keeps nothing besides its state."""
        return {}

    @property
    def updates(self) -> NoUpdates:
        """A flow takes no updates."""
        return NoUpdates(self.answer)

    def waits_for(self, timer: int) -> bool:
        """Whether a timer is still waited for."""
        return timer in self.state.timers

    def waits_for_event(self, name: str) -> bool:
        """Whether an event of this name would reach somebody."""
        return name in self.state.waits

    def misfit(self, event: EventReceived) -> None:
        """A flow takes any value: its expressions read what they need."""

    def values_of(self, activity: int) -> int:
        """A flow takes no values before the last one."""
        del activity
        return -1

    def add_payloads(self, payloads: dict[str, bytes]) -> None:
        """Large payloads that messages still to be applied name by reference."""
        self._payloads.update(payloads)

    def data_of(self, payload: Payload) -> bytes | msgspec.Raw:
        """What a payload holds, wherever it is kept."""
        return self._payloads[payload.reference] if payload.reference else payload.data

    def take_output(self) -> TurnOutput:
        """What was done since the last call."""
        output = self.output
        self.output = TurnOutput()
        return output

    def end(self) -> None:
        """Nothing of a flow is deferred: it has no handlers beside its nodes."""

    def evict(self) -> Sequence[str]:
        """Let go. There is no code to tear down."""
        return ()

    def abandon(self) -> None:
        """As `evict`: there is no code to tear down."""

    def log(self, level: int, message: str, *arguments: Any, **extra: Any) -> None:
        """Log a line with this turn's commit."""
        effects = self.output.ensure_effects()
        effects.logs.append(LogLine(level, message, arguments, extra))

    def answer(self, update_id: str, answer: Reply | None) -> None:
        """Tell the sender of an update how it went."""
        effects = self.output.ensure_effects()
        if effects.answers is None:
            effects.answers = {}
        effects.answers[update_id] = answer


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Failure).decode

ANYTHING: Final = "Exception"
"""What an activity raised is at least this, also where its type is not known here."""


def failure_payload(error: BaseException) -> Payload:
    """An error as the failure of a node."""
    return Payload(msgspec.Raw(_encode(failure_of(error))))


def error_types(error: BaseException) -> tuple[str, ...]:
    """The names by which an error can be caught: of its type and of those it derives from, short and in full."""
    return _names(type(error))


def types_in(failure: bytes | msgspec.Raw, resolve: Resolver) -> tuple[str, ...]:
    """The same, of a recorded failure: which names it can be caught by does not depend on who reads it."""
    recorded = _decode(failure)
    known = resolve(recorded.type)
    if known is not None:
        return _names(known)
    names = (recorded.type, *recorded.bases)
    return tuple(dict.fromkeys((*names, *(name.rpartition(".")[2] for name in names), ANYTHING)))


def failure_of_child(event: ev.ChildFailed | ev.ChildStopped | ev.ChildRefused) -> Payload:
    """What a flow makes of a child that gave no result. One that failed hands on what it failed with."""
    match event:
        case ev.ChildFailed():
            return event.failure
        case ev.ChildRefused():
            return failure_payload(InstanceConflict(event.reason))
        case ev.ChildStopped():
            said = f"the child was {event.state.lower()}" + (f": {event.reason}" if event.reason else "")
            if event.state == InstanceState.TERMINATED:
                return failure_payload(WorkflowTerminated(said, event.reason or None))
            return failure_payload(WorkflowCancelled(said))


def _names(kind: type[BaseException]) -> tuple[str, ...]:
    bases = [base for base in kind.__mro__ if base is not object]
    return tuple(dict.fromkeys(name for base in bases for name in (base.__name__, qualified_name(base))))


MOST_ROUNDS_AT_ONCE: Final = 1_000
"""Of cycles, in one turn: one that waits for nothing would never end."""


class FlowRun(RunBase):
    """The books of one execution, and what it decides."""

    __slots__ = ("_cycles", "_starting", "_unclear_edges", "_unclear_nodes", "_watch", "items")

    def __init__(self, *args: Any, watch: SliceRunner | None = None) -> None:
        super().__init__(*args)
        self._watch = watch or run_unwatched
        self._starting: deque[str] = deque()
        self._cycles: list[str] = []
        self._unclear_edges: dict[int, str] = {}
        """What is new of `book.unclear`."""
        self._unclear_nodes: dict[str, str] = {}
        """Nodes that are about to start and whose own condition could not be evaluated."""
        self.scheduler.lasting = self.flow.lasting
        self.items: dict[str, list[Any]] = {}
        """The lists of fan-outs that run now."""

    def replay(self, history: Iterable[ev.HistoryEvent]) -> None:
        """Read the history into the books."""
        for event in history:
            replay_event(self.state, event)
            if isinstance(event, ev.Started):
                self._take_start(event)
            elif isinstance(event, ev.ExecutionCompleted | ev.ExecutionFailed | ev.ExecutionCancelled):
                self.is_done = True
        self._cycles = [
            node
            for node, compiled in self.flow.nodes.items()
            if isinstance(compiled.node.action, CycleAction)
            and self.scheduler.digit(node) is Digit.STARTED
            and self.state.timer_of(node) is None
        ]

    def apply(self, event: ev.Input, has_more: bool = False) -> None:
        """Apply one input, and decide everything that follows from it (G10)."""
        del has_more
        self.now_ms = max(self.now_ms, event.time_ms)
        if type(event) is ev.Started and not event.flow:
            event = msgspec.structs.replace(event, flow=self.flow.hash)
        self.output.events.append(event)
        place = self.state.apply(event)
        if not self.is_done:
            watch = self._watch
            watch(_DECIDE, self, event, place)

    def _decide(self, event: ev.Input, place: NodePlace | None) -> None:
        _HOW[type(event)](self, event, place)
        self._go_on()

    # ------------------------------------------------------------ what nodes do

    def do(self, command: ev.Command) -> None:
        """A command of this turn: into the books, and into the history."""
        self.state.apply(command)
        self.output.events.append(command)

    def finished(self, node: str, outcome: NodeOutcome) -> None:
        """A node is decided. What it leads to starts; an uncaught failure may end the rest (K4)."""
        policy = self.flow.definition.policy
        settled = self.scheduler.finish(node, outcome, conditions=self, policy=policy, waiting=self._starting)
        self._starting.extend(settled.started)
        if settled.cancelled:
            self._stop(settled.cancelled)

    def failed(self, node: str, error: BaseException) -> None:
        """A node failed by itself."""
        stop_node(self, node)
        self.do(ev.NodeFailed(node=node, failure=failure_payload(error)))
        self.finished(node, Errored(error_types(error)))

    def queue_cycle(self, node: str) -> None:
        """A cycle goes round once nothing that it runs again is active (K8)."""
        self._cycles.append(node)

    def restart(self, target: str) -> None:
        """K8: a node and everything behind it run once more."""
        self._starting.extend(self.scheduler.restart(target, conditions=self).started)

    def interrupt(self, reason: str, *, descendants: bool) -> None:
        """End this instance: nothing that is open goes on, and with `descendants` no child either."""
        if descendants:  # before the others: what a child has below it ends, too
            for number in list(self.state.children):
                stop_child(self, number, reason, descendants=True)
        self._cancel()
        self._end(ev.ExecutionCancelled(reason=reason))

    # ------------------------------------------------------------ deciding

    def _go_on(self) -> None:
        """Start what follows and let cycles go round until nothing more happens; then see whether the flow is over."""
        rounds = 0
        while not self.is_done:
            if self._starting:
                self._start(self._starting.popleft())
            elif not self._cycles:
                break
            elif rounds < MOST_ROUNDS_AT_ONCE and self._go_round():
                rounds += 1
            elif rounds < MOST_ROUNDS_AT_ONCE:
                break
            else:  # G12: a turn is bounded
                self._run_away(min(self._cycles))
        self._note_progress()
        if not self.is_done and not self.scheduler.open:
            self._complete()

    def _start(self, node: str) -> None:
        try:
            if self.state.unclear or self._unclear_edges or self._unclear_nodes:
                self._refuse_if_unclear(node)
            start_node(self, self.flow.nodes[node])
        except HoldfastError as error:
            self.failed(node, self._placed(node, error))

    def _refuse_if_unclear(self, node: str) -> None:
        """A condition that led here could not be evaluated: the node fails with the reason."""
        if (why := self._unclear_nodes.pop(node, None)) is not None:
            raise ExpressionError(why)
        for at in self.flow.graph.incoming[node]:
            why = self._unclear_edges.get(at) or self.state.unclear.get(at)
            if why is not None and self.scheduler.edge(at) is EdgeState.TAKEN:
                raise ExpressionError(why)

    def _go_round(self) -> bool:
        """Let one cycle go round, if there is one whose members are all at rest, and whose target has had its turn.

        Of several the first by its id: whoever reads the flow from its history decides the same.
        """
        for node in sorted(self._cycles):
            action = self.flow.nodes[node].node.action
            if (
                isinstance(action, CycleAction)
                and self.scheduler.digit(action.target) is not Digit.PENDING
                and not self.scheduler.is_active_behind(action.target, besides=self._cycles)
            ):
                self._cycles.remove(node)
                restart_cycle(self, node, self._cycles, self._note_progress)
                return True
        return False

    def _run_away(self, node: str) -> None:
        self._cycles.remove(node)
        said = f"the cycle {node!r} went round {MOST_ROUNDS_AT_ONCE:,} times without waiting for anything"
        self.failed(node, CycleLimitExceeded(said))

    def _cancel(self) -> None:
        """Nothing that is open goes on."""
        self._stop(self.scheduler.cancel(self._starting).cancelled)

    def _stop(self, nodes: Iterable[str]) -> None:
        """These were cancelled, and with them what was about to start."""
        self._starting.clear()
        self._cycles.clear()
        for node in nodes:
            stop_node(self, node)

    def _note_progress(self) -> None:
        changes = self.scheduler.take_changes()
        if changes is not None:
            if self._unclear_edges:  # those whose state is recorded may be asked again
                unclear = {at: why for at, why in self._unclear_edges.items() if at in changes.taken}
                self._unclear_edges = {}
                changes = msgspec.structs.replace(changes, unclear=unclear)
                self.state.apply(changes)
            self.output.events.append(changes)
            self.output.key = self.scheduler.write_key()

    def edge_holds(self, edge: GraphEdge) -> bool:
        """Evaluate the condition of an edge. One that cannot be evaluated lets its node start, and fail."""
        at, condition = self.flow.conditions[edge]
        found = self._judged(condition)
        if isinstance(found, str):
            self._unclear_edges[at] = found
        return bool(found)

    def node_admitted(self, activity: str) -> bool:
        """Evaluate the condition of a node. One that cannot be evaluated lets it start, and fail."""
        when = self.flow.nodes[activity].when
        found = when is None or self._judged(when)
        if isinstance(found, str):
            self._unclear_nodes[activity] = found
        return bool(found)

    def _judged(self, condition: Expression) -> bool | str:
        """What a condition says, or why it could not be evaluated."""
        try:
            value = evaluate(condition, self.values)
        except ExpressionError as error:
            return f"when: {error}"
        return value if isinstance(value, bool) else f"when: {condition.text}: it must be true or false, not {value!r}"

    def _placed(self, node: str, error: HoldfastError) -> HoldfastError:
        """The error, with where in the flow it happened."""
        if not isinstance(error, ExpressionError):
            return error
        line = self.flow.nodes[node].node.line
        where = f", line {line}," if line else ""
        return ExpressionError(f"node {node!r}{where} of flow {self.flow.definition.name!r}: {error}")

    # ------------------------------------------------------------ how each input is taken

    def _take_start(self, event: ev.Started) -> None:
        self.seed = event.seed
        self.version = event.version
        self.parent = event.parent
        self.depth = event.depth
        self.values.set_input(read_input(self.flow.definition, bytes(self.data_of(event.input))))

    def _started(self, event: ev.Started, _: NodePlace | None) -> None:
        try:
            self._take_start(event)
        except HoldfastError as error:
            self._cancel()
            self._fail(failure_payload(error))
            return
        self._starting.extend(self.scheduler.trigger(self).started)

    def _answered(self, _: ev.Input, place: NodePlace | None) -> None:
        if place is None:
            return
        if place.item == NO_ITEM:
            self.finished(place.node, COMPLETED)
            return
        try:
            is_complete = next_items(self, place)
        except HoldfastError as error:  # the input of the next item
            self.failed(place.node, self._placed(place.node, error))
            return
        if is_complete:
            self.finished(place.node, COMPLETED)

    def _activity_failed(self, event: ev.ActivityFailed, place: NodePlace | None) -> None:
        if place is not None:
            self._failed_with(place.node, event.failure)

    def _child_failed(self, event: ev.ChildFailed | ev.ChildStopped | ev.ChildRefused, place: NodePlace | None) -> None:
        if place is not None:
            failure = failure_of_child(event)
            self.do(ev.NodeFailed(node=place.node, failure=failure))
            self._failed_with(place.node, failure)

    def _failed_with(self, node: str, failure: Payload) -> None:
        self.items.pop(node, None)
        stop_node(self, node)  # other items of a fan-out
        self.finished(node, Errored(types_in(self.data_of(failure), self.resolve)))

    def _timer_fired(self, _: ev.TimerFired, place: NodePlace | None) -> None:
        if place is None:
            return
        node = place.node
        action = self.flow.nodes[node].node.action
        if not isinstance(action, WaitAction):
            self.queue_cycle(node)
        elif not action.event:
            self.do(ev.NodeCompleted(node=node, output=Payload()))
            self.finished(node, RELEASED)
        else:
            if (wait := self.state.wait_of(node)) is not None:
                end_wait(self, wait)
            error = TimeoutError(f"the event {action.event!r} did not come in time")
            self.do(ev.NodeFailed(node=node, failure=failure_payload(error)))
            self.finished(node, TimedOut())

    def _event_received(self, _: ev.EventReceived, place: NodePlace | None) -> None:
        self.output.ensure_effects().waits_changed = True
        if place is not None:
            if (timer := self.state.timer_of(place.node)) is not None:
                end_timer(self, timer)
            self.finished(place.node, RELEASED)

    def _cancel_requested(self, event: ev.CancelRequested, _: NodePlace | None) -> None:
        if event.by_deadline:
            self._cancel()
            self._fail(failure_payload(DeadlineExceeded(event.reason)))
        else:
            self.interrupt(event.reason, descendants=event.descendants)

    def _unmoved(self, _: ev.Input, __: NodePlace | None) -> None:
        """Nothing in a flow hangs on it."""

    # ------------------------------------------------------------ the end

    def _complete(self) -> None:
        """K5: exactly one commit takes the flow from active to complete, and this turn is in it."""
        if self.scheduler.outcome is FlowOutcome.ERROR:
            failures, failed = self.scheduler.failures, filter(self.state.has_failed, self.state.errors)
            uncaught = [node for node in failed if node not in failures.caught]
            first = next((node for node in uncaught if node not in failures.offered), uncaught[0])
            self._fail(self.state.errors[first])  # one that was still offered did not end it
            return
        try:
            fill = self.flow.output
            result = b"null" if fill is None else bounded(bytes(fill(self.values, None)), "its output", self.limit)
        except ExpressionError as error:
            self._fail(failure_payload(ExpressionError(f"output of flow {self.flow.definition.name!r}: {error}")))
        except PayloadError as error:
            self._fail(failure_payload(error))
        else:
            self._end(ev.ExecutionCompleted(result=Payload(msgspec.Raw(result))))

    def _fail(self, failure: Payload) -> None:
        """Fail with what a node failed with, in place also where it is kept aside."""
        self._end(ev.ExecutionFailed(failure=Payload(msgspec.Raw(bytes(self.data_of(failure))))))

    def _end(self, outcome: ExecutionEnding) -> None:
        self._note_progress()
        self.is_done = True
        self.output.outcome = outcome
        self.output.events.append(outcome)


_DECIDE: Final = FlowRun._decide  # noqa: SLF001 - its own method, without making a bound one for each event
_HOW: Final[dict[type[ev.Input], Callable[[FlowRun, Any, NodePlace | None], None]]] = {
    ev.Started: FlowRun._started,  # noqa: SLF001 - the table of its own methods
    ev.ActivityCompleted: FlowRun._answered,  # noqa: SLF001
    ev.ActivityFailed: FlowRun._activity_failed,  # noqa: SLF001
    ev.TimerFired: FlowRun._timer_fired,  # noqa: SLF001
    ev.EventReceived: FlowRun._event_received,  # noqa: SLF001
    ev.CancelRequested: FlowRun._cancel_requested,  # noqa: SLF001
    ev.ActivityYielded: FlowRun._unmoved,  # noqa: SLF001
    ev.ChildStarted: FlowRun._answered,  # noqa: SLF001
    ev.ChildRefused: FlowRun._child_failed,  # noqa: SLF001
    ev.ChildCompleted: FlowRun._answered,  # noqa: SLF001
    ev.ChildFailed: FlowRun._child_failed,  # noqa: SLF001
    ev.ChildStopped: FlowRun._child_failed,  # noqa: SLF001
    ev.UpdateAccepted: FlowRun._unmoved,  # noqa: SLF001
}
"""How each input is taken."""
