"""One execution of a flow: it takes turns like workflow code, and a graph decides instead of code (K).

Each input is applied to the flow state and decided upon: which nodes finish, which nodes follow, and their actions. The
output has the same commands as that of code, so that attempts, ledgers, timers, children and inboxes are the same. No
decision is repeated from a history: `replay` reads the history into the flow state.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast.core import history as ev
from holdfast.core.admission import EventPolicy, Mailbox
from holdfast.core.attributes import Attributes
from holdfast.core.collation import Digit, Move
from holdfast.core.flow.definition import CycleAction, WaitAction
from holdfast.core.flow.graph import GraphEdge
from holdfast.core.flow.scheduler import (
    COMPLETED,
    RELEASED,
    TIMED_OUT_TYPES,
    EdgeState,
    Errored,
    FlowOutcome,
    NodeOutcome,
    TimedOut,
)
from holdfast.core.flow.state import NO_ITEM, FlowState, NodePlace, replay_event
from holdfast.core.history import Payload
from holdfast.core.lifecycle import InstanceState
from holdfast.core.queries import Reply, ReplyKind, unknown_handler
from holdfast.core.run import (
    ExecutionEnding,
    ExecutionId,
    LogLine,
    QueryAnswer,
    SliceRunner,
    TurnOutput,
    run_unwatched,
)
from holdfast.core.updates import RELEASE_UPDATE
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
    checked_release,
    end_timer,
    end_wait,
    hold_node,
    join_stream,
    next_items,
    reach_cycle,
    restart_cycle,
    start_arrived,
    start_node,
    stop_child,
    stop_node,
)
from holdfast.flows.workflow import read_input
from holdfast.payloads.failures import RecordedFailure, Resolver, failure_of, qualified_name
from holdfast.payloads.limits import PayloadLimit

MOST_ROUNDS_AT_ONCE: Final = 1_000
"""Rounds of cycles in one turn: a cycle that waits for nothing would never end."""
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(RecordedFailure).decode

ANYTHING: Final = "Exception"
"""Catches every error of an activity, also one whose type is not known here."""


def failure_payload(error: BaseException) -> Payload:
    """The encoded failure of a node."""
    return Payload(msgspec.Raw(_encode(failure_of(error))))


def error_types(error: BaseException) -> tuple[str, ...]:
    """The names by which an error edge can catch an error: of its type and base types, short and qualified (K4)."""
    return _names(type(error))


def types_in(failure: bytes | msgspec.Raw, resolve: Resolver) -> tuple[str, ...]:
    """The same for a recorded failure. The names do not depend on the process that reads it."""
    recorded = _decode(failure)
    known = resolve(recorded.type)
    if known is not None:
        return _names(known)
    names = (recorded.type, *recorded.bases)
    return tuple(dict.fromkeys((*names, *(name.rpartition(".")[2] for name in names), ANYTHING)))


def failure_of_child(event: ev.ChildFailed | ev.ChildStopped | ev.ChildRefused) -> Payload:
    """The failure of a node whose child gave no result. That of a failed child is its own."""
    match event:
        case ev.ChildFailed():
            return event.failure
        case ev.ChildRefused():
            return failure_payload(InstanceConflict(event.reason))
        case ev.ChildStopped():
            message = f"the child was {event.state.lower()}" + (f": {event.reason}" if event.reason else "")
            if event.state == InstanceState.TERMINATED:
                return failure_payload(WorkflowTerminated(message, event.reason or None))
            return failure_payload(WorkflowCancelled(message))


def _names(kind: type[BaseException]) -> tuple[str, ...]:
    bases = [base for base in kind.__mro__ if base is not object]
    return tuple(dict.fromkeys(name for base in bases for name in (base.__name__, qualified_name(base))))


class FlowRun:
    """The state of one execution of a flow, and its decisions. Implements `core.run.Run`."""

    __slots__ = (
        "_cycles",
        "_payloads",
        "_starting",
        "_unclear_edges",
        "_unclear_nodes",
        "_watch",
        "began_at_ms",
        "depth",
        "flow",
        "identity",
        "is_done",
        "items",
        "limit",
        "now_ms",
        "output",
        "parent",
        "resolve",
        "root",
        "scheduler",
        "seed",
        "state",
        "trace",
        "values",
        "version",
    )

    is_ending: bool = False
    is_end_deferred: bool = False
    is_tainted: bool = False
    needs_turn: bool = False

    def __init__(
        self,
        flow: CompiledFlow,
        identity: ExecutionId,
        resolve: Resolver,
        payloads: dict[str, bytes] | None = None,
        *,
        limit: PayloadLimit | None = None,
        watch: SliceRunner | None = None,
    ) -> None:
        self.flow = flow
        self.identity = identity
        self.resolve = resolve
        self.limit = limit or PayloadLimit()
        self.state = FlowState(flow.graph, flow.roster)
        self.scheduler = self.state.scheduler
        self.scheduler.lasting = flow.lasting
        self._payloads = {} if payloads is None else payloads
        self.values = InstanceValues(flow, identity.instance_id, self.state, self._payloads)
        self.version = flow.definition.version
        self.parent = ""
        self.root = ""
        self.depth = 0
        self.seed = 0
        self.trace = ""
        self.began_at_ms = 0
        self.now_ms = 0
        self.output = TurnOutput()
        """The output of this turn."""
        self.is_done = False
        self.items: dict[str, list[Any]] = {}
        """The lists of the running fan-outs, by node."""
        self._watch = watch or run_unwatched
        self._starting: deque[str] = deque()
        self._cycles: list[str] = []
        self._unclear_edges: dict[int, str] = {}
        """The errors of edge conditions that are not in `state.unclear` yet."""
        self._unclear_nodes: dict[str, str] = {}
        """The errors of node conditions, of nodes that are about to start."""

    # ------------------------------------------------------------ called by the owner: see `core.run.Run`

    @property
    def mailbox(self) -> Mailbox | None:
        return self.flow.mailbox

    @property
    def drops_events(self) -> bool:
        mailbox = self.flow.mailbox
        return mailbox is not None and mailbox.policy is EventPolicy.DROP_UNSUBSCRIBED

    @property
    def has_relatives(self) -> bool:
        return self.depth > 0 or self.state.next_child > 0

    @property
    def has_open_activities(self) -> bool:
        effects = self.output.effects
        return bool(self.state.activities) or (effects is not None and bool(effects.abandoned))

    @property
    def awaited_events(self) -> tuple[str, ...]:
        return tuple(self.state.waits)

    @property
    def state_values(self) -> dict[str, bytes]:
        """Empty: a flow has no state values."""
        return {}

    @property
    def attributes(self) -> Attributes:
        """Empty: a flow is never continued as new, and its nodes neither read nor set attributes."""
        return {}

    def awaits_timer(self, timer: int) -> bool:
        return timer in self.state.timers

    def awaits_event(self, name: str) -> bool:
        return name in self.state.waits

    def event_misfit(self, event: ev.EventReceived) -> None:
        """None: a wait of a flow takes any value, and expressions read parts of it."""

    def values_received(self, activity: int) -> int:
        stream = self.state.streams.get(activity)
        return -1 if stream is None else stream.received

    def add_payloads(self, payloads: dict[str, bytes]) -> None:
        self._payloads.update(payloads)

    def take_output(self) -> TurnOutput:
        output = self.output
        self.output = TurnOutput()
        return output

    def end(self) -> None:
        """Do nothing: the end of a flow is never deferred."""

    def accepts_update(self, event: ev.UpdateAccepted) -> bool:
        """Whether it releases a node that is held (K11). Any other update is refused: a flow has no handlers."""
        reply = unknown_handler(())
        if event.name == RELEASE_UPDATE:
            try:
                checked_release(self, event)
            except HoldfastError as error:
                reply = Reply(ReplyKind.REJECTED, failure_payload(error).data)
            else:
                return True
        self.output.ensure_effects().answer_update(event.id, reply)
        return False

    def answer_query(self, name: str, data: bytes) -> QueryAnswer:
        """Refuse it: a flow has no handlers."""
        del name, data
        return QueryAnswer(unknown_handler(()))

    def preview(self, apply: Callable[[], None]) -> None:
        apply()

    def log(self, level: int, message: str, *arguments: object) -> None:
        self.output.ensure_effects().logs.append(LogLine(level, message, arguments, {}))

    def evict(self) -> Sequence[str]:
        """Do nothing: a flow has no code to tear down."""
        return ()

    def abandon(self) -> None:
        """Do nothing, as `evict`."""

    def replay(self, history: Iterable[ev.HistoryEvent]) -> None:
        """Read the history into the flow state."""
        for event in history:
            replay_event(self.state, event)
            if isinstance(event, ev.Started):
                self._take_start(event)
            elif isinstance(event, ev.ExecutionCompleted | ev.ExecutionFailed | ev.ExecutionCancelled):
                self.is_done = True
        self.state.closed_stream = None  # its list is in the history
        self._cycles = [
            node
            for node, compiled in self.flow.nodes.items()
            if isinstance(compiled.node.action, CycleAction)
            and self.scheduler.digit(node) in (Digit.STARTED, Digit.RELEASED)
            and self.state.timer_of(node) is None
        ]

    def apply(self, event: ev.Input, has_more: bool = False) -> None:
        """Apply one input, and make all decisions that follow from it (G10)."""
        del has_more
        self.now_ms = max(self.now_ms, event.time_ms)
        if type(event) is ev.Started and not event.flow:
            event = msgspec.structs.replace(event, flow=self.flow.hash, version=self.version)
        self.output.events.append(event)
        place = self.state.apply(event)
        if not self.is_done:
            watch = self._watch
            watch(_DECIDE, self, event, place)

    def _decide(self, event: ev.Input, place: NodePlace | None) -> None:
        _APPLY[type(event)](self, event, place)
        self._advance()

    # ------------------------------------------------------------ called by the actions of nodes

    def data_of(self, payload: Payload) -> bytes | msgspec.Raw:
        """The content of a payload, stored in place or by reference."""
        return self._payloads[payload.reference] if payload.reference else payload.data

    def do(self, command: ev.Command) -> None:
        """Add a command to the flow state and to the history."""
        self.state.apply(command)
        self.output.events.append(command)

    def finished(self, node: str, outcome: NodeOutcome) -> None:
        """Finish a node. Its successors start; an uncaught failure may cancel the remaining nodes (K4).

        A node with `hold` that has run is held first, and finished by its release (K11).
        """
        if self.state.held and node in self.state.held:
            self._hold(node)
            return
        policy = self.flow.definition.policy
        settled = self.scheduler.finish(node, outcome, conditions=self, policy=policy, waiting=self._starting)
        self._starting.extend(settled.started)
        if settled.cancelled:
            self._stop(settled.cancelled)

    def _hold(self, node: str) -> None:
        try:
            hold_node(self, self.flow.nodes[node])
        except HoldfastError as error:  # of the expression for its timeout
            self.failed(node, self._located(node, error))

    def failed(self, node: str, error: BaseException) -> None:
        """Fail a node with an error of its own action."""
        self.failed_by(node, failure_payload(error), error_types(error))

    def failed_by(self, node: str, failure: Payload, types: tuple[str, ...]) -> None:
        """Fail a node with a failure that no activity of it recorded. A node that is paused moves by 5->7 (K2)."""
        is_paused = self.scheduler.digit(node) is Digit.PAUSED
        self.items.pop(node, None)
        stop_node(self, node)
        self.do(ev.NodeFailed(node=node, failure=failure))
        self.finished(node, TimedOut(types) if is_paused else Errored(types))

    def queue_cycle(self, node: str) -> None:
        """Queue a cycle. Its next round starts when no node that it repeats is active (K8)."""
        self._cycles.append(node)

    def restart(self, target: str) -> None:
        """Start a node and all its successors once more (K8)."""
        self._starting.extend(self.scheduler.restart(target, conditions=self).started)

    def interrupt(self, reason: str, *, descendants: bool) -> None:
        """End this instance with its open nodes, and with `descendants` also its children."""
        if descendants:  # before `_cancel`, whose requests do not include the descendants of a child
            for number in list(self.state.children):
                stop_child(self, number, reason, descendants=True)
        self._cancel()
        self._end(ev.ExecutionCancelled(reason=reason))

    # ------------------------------------------------------------ decisions

    def _advance(self) -> None:
        """Start nodes and rounds of cycles until none is left; then complete the flow if no node is open."""
        rounds = 0
        while not self.is_done:
            if self._starting:
                self._start(self._starting.popleft())
            elif not self._cycles:
                break
            elif rounds < MOST_ROUNDS_AT_ONCE and self._start_round():
                rounds += 1
            elif rounds < MOST_ROUNDS_AT_ONCE or not (endless := self._unheld_cycles()):
                break
            else:  # G12: a turn is bounded
                self._fail_endless_cycle(min(endless))
        self._record_progress()
        if not self.is_done and not self.scheduler.open:
            self._complete()

    def _start(self, node: str) -> None:
        try:
            if self.state.unclear or self._unclear_edges or self._unclear_nodes:
                self._raise_if_unclear(node)
            start_node(self, self.flow.nodes[node])
        except HoldfastError as error:
            self.failed(node, self._located(node, error))

    def _raise_if_unclear(self, node: str) -> None:
        """Raise the error of a condition of the node, or of an edge that led to it."""
        if (reason := self._unclear_nodes.pop(node, None)) is not None:
            raise ExpressionError(reason)
        for at in self.flow.graph.incoming[node]:
            reason = self._unclear_edges.get(at) or self.state.unclear.get(at)
            if reason is not None and self.scheduler.edge(at) is EdgeState.TAKEN:
                raise ExpressionError(reason)

    def _start_round(self) -> bool:
        """Start the next round of one cycle whose nodes are all inactive and whose target has been decided.

        Of several cycles the first by id, so that a run read from its history decides the same.
        """
        for node in sorted(self._cycles):
            action = self.flow.nodes[node].node.action
            if (
                isinstance(action, CycleAction)
                and self.scheduler.digit(action.target) is not Digit.PENDING
                and not self.scheduler.is_active_behind(action.target, besides=self._cycles)
            ):
                self._cycles.remove(node)
                restart_cycle(self, node, self._cycles, self._record_progress)
                return True
        return False

    def _unheld_cycles(self) -> list[str]:
        """The queued cycles that were not released: only these can go round without waiting for anything."""
        return [node for node in self._cycles if self.scheduler.digit(node) is Digit.STARTED]

    def _fail_endless_cycle(self, node: str) -> None:
        self._cycles.remove(node)
        message = f"the cycle {node!r} went round {MOST_ROUNDS_AT_ONCE:,} times without waiting for anything"
        self.failed(node, CycleLimitExceeded(message))

    def _cancel(self) -> None:
        """Cancel all open nodes."""
        self._stop(self.scheduler.cancel(self._starting).cancelled)

    def _stop(self, nodes: Iterable[str]) -> None:
        """Stop nodes that were cancelled, and start none of the queued ones."""
        self._starting.clear()
        self._cycles.clear()
        for node in nodes:
            stop_node(self, node)

    def _record_progress(self) -> None:
        """Add the changed digits and edges to the history, and the new key to the output."""
        changes = self.scheduler.take_changes()
        if changes is not None:
            if self._unclear_edges:  # recorded with the edge: its node may start in a later turn
                unclear = {at: reason for at, reason in self._unclear_edges.items() if at in changes.taken}
                self._unclear_edges = {}
                changes = msgspec.structs.replace(changes, unclear=unclear)
                self.state.apply(changes)
            self.output.events.append(changes)
            self.output.key = self.scheduler.write_key()

    def edge_holds(self, edge: GraphEdge) -> bool:
        """Evaluate the condition of an edge. After an error its node starts, and fails with the error."""
        at, condition = self.flow.conditions[edge]
        found = self._evaluate(condition)
        if isinstance(found, str):
            self._unclear_edges[at] = found
        return bool(found)

    def node_admitted(self, activity: str) -> bool:
        """Evaluate the condition of a node. After an error it starts, and fails with the error."""
        when = self.flow.nodes[activity].when
        found = when is None or self._evaluate(when)
        if isinstance(found, str):
            self._unclear_nodes[activity] = found
        return bool(found)

    def _evaluate(self, condition: Expression) -> bool | str:
        """The value of a condition, or the message of its error."""
        try:
            value = evaluate(condition, self.values)
        except ExpressionError as error:
            return f"when: {error}"
        return value if isinstance(value, bool) else f"when: {condition.text}: it must be true or false, not {value!r}"

    def _located(self, node: str, error: HoldfastError) -> HoldfastError:
        """The error with its node and line, if it is of an expression."""
        if not isinstance(error, ExpressionError):
            return error
        line = self.flow.nodes[node].node.line
        where = f", line {line}," if line else ""
        return ExpressionError(f"node {node!r}{where} of flow {self.flow.definition.name!r}: {error}")

    # ------------------------------------------------------------ decisions by type of input

    def _take_start(self, event: ev.Started) -> None:
        self.seed = event.seed
        self.parent = event.parent
        self.root = event.root
        self.depth = event.depth
        self.trace = event.trace
        self.began_at_ms = event.time_ms
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
        if self.state.closed_stream is not None and not self._join_stream(place):
            return
        if place.item == NO_ITEM:
            self.finished(place.node, COMPLETED)
            if self.flow.graph.consumers:
                self._take_responses(place.node)
            return
        try:
            is_complete = next_items(self, place)
        except HoldfastError as error:  # the input of the next item
            self.failed(place.node, self._located(place.node, error))
            return
        if is_complete:
            self.finished(place.node, COMPLETED)

    def _join_stream(self, place: NodePlace) -> bool:
        """Record the values of a stream that has closed as the output of its node or item; False if that failed it."""
        stream = self.state.closed_stream
        self.state.closed_stream = None
        if stream is None:
            return True
        try:
            join_stream(self, place, stream)
        except HoldfastError as error:
            self.failed(place.node, error)
            self._fail_consumers(place.node)
            return False
        return True

    def _yielded(self, _: ev.ActivityYielded, place: NodePlace | None) -> None:
        """Start the nodes that take the responses of a stream, and their items (K10)."""
        if place is not None and place.item == NO_ITEM and place.node in self.flow.graph.consumers:
            self._take_responses(place.node)
            if self.scheduler.digit(place.node) is Digit.STARTED:  # not cancelled by the failure of a consumer (K4)
                self._starting.extend(self.scheduler.respond(place.node, conditions=self).started)

    def _take_responses(self, source: str) -> None:
        """Start items for the new responses of a node, and finish the nodes that have a result for each (K10)."""
        for node in self.flow.graph.consumers.get(source, ()):
            if node not in self.state.fan_outs or self.scheduler.digit(node) is not Digit.STARTED:
                continue
            try:
                is_complete = start_arrived(self, node)
            except HoldfastError as error:
                self.failed(node, self._located(node, error))
                continue
            if is_complete:
                self.finished(node, COMPLETED)

    def _fail_consumers(self, source: str) -> None:
        """The stream of a node failed: the nodes that run for its responses fail with the same failure (K10)."""
        for node in self.flow.graph.consumers.get(source, ()):
            if node in self.state.fan_outs and self.scheduler.digit(node) is Digit.STARTED:
                failure = self.state.errors[source]
                self.failed_by(node, failure, types_in(self.data_of(failure), self.resolve))

    def _activity_failed(self, event: ev.ActivityFailed, place: NodePlace | None) -> None:
        if place is not None:
            self._failed_with(place.node, event.failure)
            if place.item == NO_ITEM:
                self._fail_consumers(place.node)

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
        if node in self.state.held:
            error = TimeoutError(f"the node {node!r} was held and not released in time")
            self.failed_by(node, failure_payload(error), TIMED_OUT_TYPES)
        elif isinstance(action, CycleAction):
            reach_cycle(self, node)
        elif not isinstance(action, WaitAction) or not action.event:
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

    def _update_accepted(self, event: ev.UpdateAccepted, _: NodePlace | None) -> None:
        """Release a node that is held: `accepts_update` has checked it (K11)."""
        node, output = checked_release(self, event)
        if (timer := self.state.timer_of(node)) is not None:
            end_timer(self, timer)
        self.do(ev.NodeReleased(node=node, output=output))
        self.do(ev.UpdateHandlerCompleted(id=event.id, result=Payload()))
        self.output.ensure_effects().answer_update(event.id, Reply(ReplyKind.DONE))
        if isinstance(self.flow.nodes[node].node.action, CycleAction):
            self.scheduler.move(node, Move.RELEASE)
            self.queue_cycle(node)
        else:
            self.finished(node, RELEASED)

    def _cancel_requested(self, event: ev.CancelRequested, _: NodePlace | None) -> None:
        if event.by_deadline:
            self._cancel()
            self._fail(failure_payload(DeadlineExceeded(event.reason)))
        else:
            self.interrupt(event.reason, descendants=event.descendants)

    def _attributes_changed(self, _: ev.AttributesChanged, __: NodePlace | None) -> None:
        """Nodes do not read attributes, and the store has the change already."""

    def _send_judged(self, _: ev.SendJudged, __: NodePlace | None) -> None:
        """Nodes wait for no verdict on what they send."""

    # ------------------------------------------------------------ the end

    def _complete(self) -> None:
        """Complete or fail the flow. Exactly one commit does so, and this turn is part of it (K5)."""
        if self.scheduler.outcome is FlowOutcome.ERROR:
            failures = self.scheduler.failures
            failed = filter(self.state.has_failed, self.state.errors)
            uncaught = [node for node in failed if node not in failures.caught]
            first = next((node for node in uncaught if node not in failures.offered), uncaught[0])
            self._fail(self.state.errors[first])  # a failure that was offered to an error edge did not end the flow
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
        """Fail with the failure of a node, stored in place also if it was a large payload."""
        self._end(ev.ExecutionFailed(failure=Payload(msgspec.Raw(bytes(self.data_of(failure))))))

    def _end(self, outcome: ExecutionEnding) -> None:
        self._record_progress()
        self.is_done = True
        self.output.outcome = outcome
        self.output.events.append(outcome)


_DECIDE: Final = FlowRun._decide  # noqa: SLF001 - its own method; a bound one would be an allocation for each event
_APPLY: Final[dict[type[ev.Input], Callable[[FlowRun, Any, NodePlace | None], None]]] = {
    ev.Started: FlowRun._started,  # noqa: SLF001 - the table of its own methods
    ev.ActivityCompleted: FlowRun._answered,  # noqa: SLF001
    ev.ActivityFailed: FlowRun._activity_failed,  # noqa: SLF001
    ev.TimerFired: FlowRun._timer_fired,  # noqa: SLF001
    ev.EventReceived: FlowRun._event_received,  # noqa: SLF001
    ev.CancelRequested: FlowRun._cancel_requested,  # noqa: SLF001
    ev.AttributesChanged: FlowRun._attributes_changed,  # noqa: SLF001
    ev.ActivityYielded: FlowRun._yielded,  # noqa: SLF001
    ev.ChildStarted: FlowRun._answered,  # noqa: SLF001
    ev.ChildRefused: FlowRun._child_failed,  # noqa: SLF001
    ev.ChildCompleted: FlowRun._answered,  # noqa: SLF001
    ev.ChildFailed: FlowRun._child_failed,  # noqa: SLF001
    ev.ChildStopped: FlowRun._child_failed,  # noqa: SLF001
    ev.SendJudged: FlowRun._send_judged,  # noqa: SLF001
    ev.UpdateAccepted: FlowRun._update_accepted,  # noqa: SLF001
}
"""The decision for each type of input."""
