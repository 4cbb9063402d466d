"""The actions of the nodes of a flow: how each kind starts, and how its open work is stopped."""

from collections.abc import Callable
from typing import Any, Final, Protocol, cast

import msgspec

from holdfast.authoring.validation import checked_name, checked_reason
from holdfast.core import history as ev
from holdfast.core.children import NOT_WAITED_FOR, ParentClose
from holdfast.core.collation import MEANING, Digit, Move
from holdfast.core.deadlines import LONGEST_DAYS, LONGEST_SECONDS
from holdfast.core.flow.definition import (
    ChildAction,
    CycleAction,
    InterruptAction,
    RaiseAction,
    RunAction,
    TriggerAction,
    WaitAction,
    is_list,
)
from holdfast.core.flow.scheduler import COMPLETED, FlowScheduler, NodeOutcome
from holdfast.core.flow.state import NO_ITEM, FanOut, FlowState, NodePlace, ResponseStream
from holdfast.core.history import Payload
from holdfast.core.run import (
    CancelledChild,
    ExecutionId,
    ParentInfo,
    ScheduledActivity,
    SentEvent,
    TurnOutput,
    schedule_child,
)
from holdfast.errors import ArgumentError, CycleLimitExceeded, ExpressionError, NodeNotHeld, StreamRestarted
from holdfast.flows.compiled_flow import CompiledFlow, CompiledNode
from holdfast.flows.expressions.expression import Expression
from holdfast.flows.expressions.templates import INDEX, ITEM, InstanceValues, ItemVariables, bounded, evaluate, joined
from holdfast.payloads.limits import PayloadLimit

MILLISECONDS: Final = 1000
MOST_ITEMS: Final = 100_000
"""The most items of one fan-out. Each is a row, and all results together are one list."""
LONGEST_NAME: Final = 100
"""Characters of the name of an unknown node in a message."""
NO_ARGUMENTS: Final = b"{}"
INTERRUPTED: Final = "interrupted by a flow"

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list[Any]).decode
_decode_value: Final = msgspec.json.Decoder().decode
_decode_release: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class NodeRun(Protocol):
    """The run of a flow, as the actions of its nodes use it. `flows.run.FlowRun` implements it."""

    flow: CompiledFlow
    identity: ExecutionId
    seed: int
    depth: int
    now_ms: int
    limit: PayloadLimit
    state: FlowState
    scheduler: FlowScheduler
    values: InstanceValues
    output: TurnOutput
    items: dict[str, list[Any]]

    def data_of(self, payload: Payload) -> bytes | msgspec.Raw: ...
    def do(self, command: ev.Command) -> None: ...
    def finished(self, node: str, outcome: NodeOutcome) -> None: ...
    def failed(self, node: str, error: BaseException) -> None: ...
    def queue_cycle(self, node: str) -> None: ...
    def restart(self, target: str) -> None: ...
    def interrupt(self, reason: str, *, descendants: bool) -> None: ...


def start_node(run: NodeRun, compiled: CompiledNode) -> None:
    """Perform the action of a node that has started. An error that it raises fails the node."""
    node = compiled.node.id
    action = compiled.node.action
    if compiled.activity is not None and not compiled.is_fan_out:  # most nodes
        _call(run, compiled, NodePlace(node), None)
        return
    match action:
        case ChildAction(each=None):
            _start_child(run, compiled, NodePlace(node), None)
        case RunAction() | ChildAction():
            _fan_out(run, compiled)
        case WaitAction():
            _wait(run, compiled, action)
        case CycleAction():
            delay_ms = _milliseconds(run, compiled.span)
            if delay_ms:
                _start_timer(run, node, delay_ms)
            else:
                reach_cycle(run, node)
        case RaiseAction():
            _raise(run, compiled, action)
        case InterruptAction():
            _interrupt(run, compiled, action)
        case TriggerAction():
            raise ExpressionError(f"{node!r} is a trigger, and nothing leads to it")


def next_items(run: NodeRun, place: NodePlace) -> bool:
    """Start the next item of a fan-out after the result of one. Whether the node is complete."""
    fan_out = run.state.fan_outs[place.node]
    if fan_out.responses is not None:
        return start_arrived(run, place.node)
    if fan_out.begun < fan_out.count:
        _start_item(run, run.flow.nodes[place.node], fan_out.begun)
    return _completes(run, place.node, fan_out)


def start_arrived(run: NodeRun, node: str) -> bool:
    """Start items for the responses that have arrived, as far as the limit allows. Whether the node is complete (K10).

    Raises `StreamRestarted` if the stream begins again and items have begun for its earlier responses.
    """
    compiled = run.flow.nodes[node]
    fan_out = run.state.fan_outs[node]
    if fan_out.is_restarted:
        raise StreamRestarted(
            f"the stream of {compiled.node.stream!r} begins again: {fan_out.begun} items of {node!r} began before that",
            fan_out.begun,
        )
    if fan_out.count > MOST_ITEMS:
        raise ExpressionError(f"each: a stream has at most {MOST_ITEMS:,} responses here, and it goes on")
    action: Any = compiled.node.action
    limit = MOST_ITEMS if action.each.limit is None else action.each.limit
    while fan_out.begun < fan_out.count and fan_out.begun - len(fan_out.results) < limit:
        _start_item(run, compiled, fan_out.begun)
    return _completes(run, node, fan_out)


def join_stream(run: NodeRun, place: NodePlace, stream: ResponseStream) -> None:
    """Record the values of a stream that has closed as the output of its node, or as the result of its item."""
    what = f"the list of the values of {place.node!r}"
    values = joined((bytes(run.data_of(value)) for value in stream.values), what)
    output = Payload(msgspec.Raw(bounded(b"[%b]" % values, what, run.limit)))
    run.do(ev.NodeCompleted(node=place.node, item=place.item, output=output))


def hold_node(run: NodeRun, compiled: CompiledNode) -> None:
    """Hold a node that has run (8->5): nothing behind it starts before its release (K11)."""
    node = compiled.node.id
    span_ms = None if compiled.hold_span is None else _milliseconds(run, compiled.hold_span)
    if run.scheduler.digit(node) is Digit.STARTED:  # a wait is paused already
        run.scheduler.pause(node)
    if span_ms is not None:
        _start_timer(run, node, span_ms)


def checked_release(run: NodeRun, event: ev.UpdateAccepted) -> tuple[str, Payload | None]:
    """The node that an update releases, and the output that replaces its own; an error if it cannot be released."""
    try:
        arguments = _decode_release(run.data_of(event.input))
        node = msgspec.json.decode(arguments[0], type=str)
        (output,) = arguments[1:] or (None,)
    except (msgspec.MsgspecError, LookupError, ValueError):
        raise ArgumentError("a release takes the id of a node, and optionally another output") from None
    held = [each for each in sorted(run.state.held) if run.scheduler.digit(each) is Digit.PAUSED]
    if node not in held:
        others = f"; held are {', '.join(held)}" if held else ""
        raise NodeNotHeld(f"{_obstacle(run, node)}, so it cannot be released{others}")
    return node, None if output is None else Payload(output)


def _obstacle(run: NodeRun, node: str) -> str:
    """The reason why a node cannot be released."""
    if node not in run.flow.nodes:
        return f"there is no node {node[:LONGEST_NAME]!r} in flow {run.flow.definition.name!r}"
    digit = run.scheduler.digit(node)
    if digit is Digit.PAUSED:
        return f"{node!r} still waits for its event or timer"
    return f"{node!r} is {MEANING[digit]} ({int(digit)}), not held (5)"


def reach_cycle(run: NodeRun, node: str) -> None:
    """A cycle is about to begin its next round. One with a hold is held first, unless it is at its limit (K11)."""
    compiled = run.flow.nodes[node]
    action = cast("CycleAction", compiled.node.action)
    if compiled.node.hold is None or run.state.rounds.get(node, 0) >= action.limit:
        run.queue_cycle(node)
        return
    _complete(run, node, b"null")
    run.finished(node, COMPLETED)


def restart_cycle(run: NodeRun, node: str, waiting: list[str], record_progress: Callable[[], None]) -> None:
    """Start the next round of a cycle whose nodes are all inactive, or fail it at its limit (K8)."""
    action = cast("CycleAction", run.flow.nodes[node].node.action)
    rounds = run.state.rounds.get(node, 0)
    if rounds >= action.limit:
        run.failed(node, CycleLimitExceeded(f"the cycle {node!r} went round {rounds} times, which is its limit"))
        return
    members = run.flow.graph.reachable(action.target)
    for other in [node, *(each for each in waiting if each in members)]:
        if run.scheduler.digit(other) is Digit.STARTED:  # a cycle that was held has been released
            run.scheduler.move(other, Move.COMPLETE)  # the round also restarts other cycles that are queued
    waiting[:] = [each for each in waiting if each not in members]
    record_progress()
    run.do(ev.CycleRestarted(node=node, target=action.target, round=rounds + 1))
    run.restart(action.target)


def stop_node(run: NodeRun, node: str) -> None:
    """Cancel the open activities, timer, wait and attached children of a node."""
    state = run.state
    for number in [number for number, place in state.activities.items() if place.node == node]:
        run.output.ensure_effects().abandoned.append(number)
        run.do(ev.ActivityAbandoned(activity=number))
    if (timer := state.timer_of(node)) is not None:
        end_timer(run, timer)
    if (wait := state.wait_of(node)) is not None:
        end_wait(run, wait)
    for number, child in list(state.children.items()):
        if child.node == node and not child.detached:
            stop_child(run, number, NOT_WAITED_FOR)


def stop_child(run: NodeRun, number: int, reason: str, *, descendants: bool = False) -> None:
    """Ask a child to end, without waiting for that."""
    run.output.ensure_effects().children_asked.append(CancelledChild(number, reason, descendants))
    run.do(ev.ChildCancelRequested(child=number, reason=reason))


def end_timer(run: NodeRun, timer: int) -> None:
    """Cancel a timer."""
    run.output.ensure_effects().cancel_timer(timer)
    run.do(ev.TimerCancelled(timer=timer))


def end_wait(run: NodeRun, wait: int) -> None:
    """End the wait for an event."""
    run.output.ensure_effects().waits_changed = True
    run.do(ev.EventWaitEnded(wait=wait))


# ---------------------------------------------------------------- kinds of nodes


def _call(run: NodeRun, compiled: CompiledNode, place: NodePlace, own: ItemVariables) -> None:
    activity = compiled.activity
    if activity is None:
        raise ExpressionError(f"{place.node!r} runs no activity")
    encoded = _arguments(run, compiled, own)
    output = run.output
    number = run.state.next_activity
    name = activity.name
    output.scheduled.append(ScheduledActivity(number, name, encoded, activity.options, activity.encoded_options))
    stream = activity.stream
    output.events.append(
        ev.ActivityScheduled(activity=number, name=name, node=place.node, item=place.item, stream=stream)
    )
    run.state.scheduled(number, place, stream)


def _start_child(run: NodeRun, compiled: CompiledNode, place: NodePlace, own: ItemVariables) -> None:
    action = cast("ChildAction", compiled.node.action)
    encoded = _arguments(run, compiled, own)
    chosen = "" if compiled.target is None else _id(run, compiled.target, own)
    number = run.state.next_child
    scheduled = schedule_child(
        ParentInfo(run.identity, run.seed, run.depth),
        number,
        workflow=action.workflow,
        version=None,
        encoded=encoded,
        deadline=None,
        parent_close=ParentClose.ABANDON if action.detached else ParentClose.TERMINATE,
        chosen_id=chosen,
        node=place.node,
    )
    run.output.ensure_effects().children.append(scheduled)
    run.do(
        ev.ChildScheduled(
            child=number,
            name=action.workflow,
            id=scheduled.id,
            named=scheduled.named,
            node=place.node,
            item=place.item,
            detached=action.detached,
        )
    )
    if action.detached and not chosen and place.item == NO_ITEM:  # not awaited: its id is the output
        _complete(run, place.node, _encode(scheduled.id))
        run.finished(place.node, COMPLETED)


def _fan_out(run: NodeRun, compiled: CompiledNode) -> None:
    if compiled.node.stream:
        _fan_out_responses(run, compiled)
        return
    node = compiled.node.id
    items = run.items[node] = _evaluated_items(run, compiled)
    count = len(items)
    action: Any = compiled.node.action
    limit = count if action.each.limit is None else min(action.each.limit, count)
    later = (
        None if limit == count else Payload(msgspec.Raw(bounded(_encode(items), f"the list of {node!r}", run.limit)))
    )
    run.do(ev.FanOutStarted(node=node, count=count, items=later))
    for item in range(limit):
        _start_item(run, compiled, item)
    _finish_if_complete(run, compiled)


def _fan_out_responses(run: NodeRun, compiled: CompiledNode) -> None:
    node = compiled.node.id
    source = compiled.node.stream
    if source not in run.state.responses:
        raise ExpressionError(f"each: {source} has no responses, because its activity yields no values")
    run.do(ev.FanOutStarted(node=node, count=0, stream=source))
    if start_arrived(run, node):
        run.finished(node, COMPLETED)


def _finish_if_complete(run: NodeRun, compiled: CompiledNode) -> None:
    """Complete a fan-out at once if its list is empty, or its items are detached children."""
    node = compiled.node.id
    fan_out = run.state.fan_outs[node]
    while len(fan_out.results) == fan_out.begun < fan_out.count:
        _start_item(run, compiled, fan_out.begun)
    if _completes(run, node, fan_out):
        run.finished(node, COMPLETED)


def _completes(run: NodeRun, node: str, fan_out: FanOut) -> bool:
    """Whether a fan-out has all results. They become the output of its node, in the order of the items."""
    if not fan_out.is_complete:
        return False
    what = f"the list of the results of {node!r}"
    results = joined((bytes(run.data_of(fan_out.results[at])) for at in range(fan_out.count)), what)
    _complete(run, node, bounded(b"[%b]" % results, what, run.limit))
    return True


def _start_item(run: NodeRun, compiled: CompiledNode, item: int) -> None:
    own = {ITEM: _item(run, compiled.node.id, item), INDEX: item}
    place = NodePlace(compiled.node.id, item)
    if compiled.activity is not None:
        _call(run, compiled, place, own)
    else:
        _start_child(run, compiled, place, own)


def _item(run: NodeRun, node: str, item: int) -> Any:
    """The value of one item of a running fan-out."""
    responses = run.state.fan_outs[node].responses
    if responses is None:
        return _items(run, node)[item]
    return _decode_value(run.data_of(responses.values[item]))


def _items(run: NodeRun, node: str) -> list[Any]:
    """The list of a running fan-out: the evaluated one, also after the run was read from its history."""
    known = run.items.get(node)
    if known is None:
        items = run.state.fan_outs[node].items
        known = run.items[node] = [] if items is None else _decode(run.data_of(items))
    return known


def _evaluated_items(run: NodeRun, compiled: CompiledNode) -> list[Any]:
    value: object = None if compiled.items is None else evaluate(compiled.items, run.values)
    if not is_list(value):
        raise ExpressionError(f"each: a list is needed, not {type(value).__name__}")
    if len(value) > MOST_ITEMS:
        raise ExpressionError(f"each: a list has at most {MOST_ITEMS:,} items here, not {len(value):,}")
    return value


def _wait(run: NodeRun, compiled: CompiledNode, action: WaitAction) -> None:
    node = compiled.node.id
    span_ms = None if compiled.span is None else _milliseconds(run, compiled.span)
    run.scheduler.pause(node)
    if action.event:
        run.output.ensure_effects().waits_changed = True
        run.do(ev.EventAwaited(wait=run.state.next_wait, name=action.event, node=node))
    if span_ms is not None:
        _start_timer(run, node, span_ms)


def _raise(run: NodeRun, compiled: CompiledNode, action: RaiseAction) -> None:
    node = compiled.node.id
    target = _id(run, compiled.target, None)
    data = (
        b"null" if compiled.input is None else bounded(bytes(compiled.input(run.values, None)), "the value", run.limit)
    )
    number = run.state.sent
    run.output.ensure_effects().sent.append(SentEvent(number, target, action.event, data))
    run.do(ev.EventRaised(number=number, target=target, name=action.event))
    _complete(run, node, b"null")
    run.finished(node, COMPLETED)


def _interrupt(run: NodeRun, compiled: CompiledNode, action: InterruptAction) -> None:
    node = compiled.node.id
    reason = checked_reason(action.reason) or INTERRUPTED
    if compiled.target is None:
        run.scheduler.move(node, Move.COMPLETE)
        run.interrupt(reason, descendants=action.descendants)
        return
    target = _id(run, compiled.target, None)
    run.output.ensure_effects().interrupted.append((target, reason, action.descendants))
    _complete(run, node, b"null")
    run.finished(node, COMPLETED)


# ---------------------------------------------------------------- parts of actions


def _complete(run: NodeRun, node: str, output: bytes) -> None:
    run.items.pop(node, None)
    run.do(ev.NodeCompleted(node=node, output=Payload(msgspec.Raw(output))))


def _arguments(run: NodeRun, compiled: CompiledNode, own: ItemVariables) -> bytes:
    """The encoded arguments of a call: a mapping by name, a list by position; any other value is the only argument."""
    if compiled.input is None:
        return NO_ARGUMENTS if own is None else bounded(b"[%b]" % _encode(own[ITEM]), "the input", run.limit)
    fill = compiled.input
    encoded = bytes(fill(run.values, own))
    return bounded(encoded if compiled.has_arguments else b"[%b]" % encoded, "the input", run.limit)


def _id(run: NodeRun, expression: Expression | None, own: ItemVariables) -> str:
    return checked_name(None if expression is None else evaluate(expression, run.values, own), "an instance")


def _milliseconds(run: NodeRun, span: int | Expression | None) -> int:
    if not isinstance(span, Expression):
        return span or 0
    value = evaluate(span, run.values)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_SECONDS:
        bounds = f"from 0 to {LONGEST_SECONDS:,} ({LONGEST_DAYS:,} days)"
        raise ExpressionError(f"{span.text}: a duration is a number of seconds {bounds}, not {value!r}")
    return round(value * MILLISECONDS)


def _start_timer(run: NodeRun, node: str, span_ms: int) -> None:
    number = run.state.next_timer
    due_at_ms = run.now_ms + span_ms
    run.output.ensure_effects().timers_started[number] = due_at_ms
    run.do(ev.TimerStarted(timer=number, due_at_ms=due_at_ms, node=node))
