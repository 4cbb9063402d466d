"""A flow that can run here: its expressions compiled, its activities resolved to registered ones."""

from collections.abc import Callable
from typing import Final, Protocol, assert_never

import msgspec
from msgspec.structs import replace

from holdfast.core.activity_options import ActivityOptions, RetryPolicy, encode_options
from holdfast.core.admission import EventPolicy, Mailbox
from holdfast.core.collation import ActivityOrder
from holdfast.core.flow.definition import (
    AnyAction,
    ChildAction,
    CycleAction,
    FlowDefinition,
    InterruptAction,
    Node,
    RaiseAction,
    RetryRules,
    RunAction,
    RunRules,
    Span,
    Template,
    TriggerAction,
    WaitAction,
    graph_of,
)
from holdfast.core.flow.graph import Graph, GraphEdge
from holdfast.core.history import STREAM_RESTARTS, STREAM_RESUMES
from holdfast.flows.expressions.expression import Expression, compile_expression
from holdfast.flows.expressions.templates import CompiledTemplate, compile_template


class ActivityLookup(Protocol):
    """An activity, as a flow needs it."""

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> ActivityOptions: ...


class NodeActivity(msgspec.Struct, frozen=True):
    """The activity of a node, with the options of the node applied."""

    name: str
    options: ActivityOptions
    encoded_options: bytes
    stream: str = ""
    """How a new attempt continues, if the activity yields values: see `ActivityScheduled.stream`."""


class CompiledNode(msgspec.Struct, frozen=True):
    """One node. Fields that its kind does not have are None."""

    node: Node
    when: Expression | None
    input: CompiledTemplate | None
    has_arguments: bool
    """Whether the input is a mapping or a list of arguments; else it is the only argument."""
    is_fan_out: bool
    items: Expression | None
    """The list of a fan-out; None if its items are the responses of a stream (K10)."""
    activity: NodeActivity | None
    span: int | Expression | None
    target: Expression | None
    hold_span: int | Expression | None
    """How long it is held at most (K11)."""


class CompiledFlow:
    """One version of a flow, ready for any number of instances."""

    def __init__(self, definition: FlowDefinition, digest: str, activity: Callable[[str], ActivityLookup]) -> None:
        self.definition = definition
        self.hash = digest
        self.graph = graph_of(definition)
        self.roster = ActivityOrder.of(self.graph.joins)
        self.nodes = {node.id: _compiled(node, activity) for node in definition.nodes}
        self.conditions: dict[GraphEdge, tuple[int, Expression]] = {}
        """The condition of each edge that has one, with the position of the edge."""
        edges = iter(enumerate(self.graph.edges))
        for node in definition.nodes:
            for after in node.after:
                at, edge = next(edges)
                if after.when:
                    self.conditions[edge] = (at, compile_expression(after.when))
        self.lasting = _outside_edges(definition, self.graph)
        """Edges into the nodes of a cycle from outside: their state holds for every round (K8)."""
        policy = definition.event_policy
        self.mailbox = None if policy is EventPolicy.MAILBOX else Mailbox(policy)
        """The rules for events for which no node waits; None: the defaults (G6)."""
        self.output: CompiledTemplate | None = (
            None if definition.output is None else compile_template(definition.output, is_output=True)
        )


def _outside_edges(definition: FlowDefinition, graph: Graph) -> frozenset[int]:
    found: set[int] = set()
    for node in definition.nodes:
        if isinstance(node.action, CycleAction):
            reach = graph.reachable(node.action.target)
            inward = (at for member in reach for at in graph.incoming[member])
            found.update(at for at in inward if graph.edges[at].source not in reach)
    return frozenset(found)


def _compiled(node: Node, activity: Callable[[str], ActivityLookup]) -> CompiledNode:
    action = node.action
    given = _template_of(action)
    each = action.each if isinstance(action, RunAction | ChildAction) else None
    return CompiledNode(
        node=node,
        when=compile_expression(node.when) if node.when else None,
        input=None if given is None else compile_template(given),
        has_arguments=isinstance(given, dict | list),
        is_fan_out=each is not None,
        items=None if each is None or each.stream else compile_expression(each.items),
        activity=_activity(activity(action.activity), action.rules) if isinstance(action, RunAction) else None,
        span=_span(action),
        target=_target(action),
        hold_span=None if node.hold is None else _compiled_span(node.hold.timeout),
    )


def _template_of(action: AnyAction) -> Template:
    """The input of an activity or a child, or the value of an event."""
    match action:
        case RunAction(input=template) | ChildAction(input=template) | RaiseAction(value=template):
            return template
        case TriggerAction() | WaitAction() | CycleAction() | InterruptAction():
            return None
        case _:
            assert_never(action)


def _span(action: AnyAction) -> int | Expression | None:
    """The time-out of a wait, or the delay of a cycle."""
    match action:
        case WaitAction(timeout=span) | CycleAction(delay=span):
            return _compiled_span(span)
        case TriggerAction() | RunAction() | ChildAction() | RaiseAction() | InterruptAction():
            return None
        case _:
            assert_never(action)


def _compiled_span(span: Span | None) -> int | Expression | None:
    return compile_expression(span) if isinstance(span, str) else span


def _target(action: AnyAction) -> Expression | None:
    """The expression for the id of another instance."""
    match action:
        case RaiseAction(to=text) | InterruptAction(target=text) | ChildAction(id=text):
            return compile_expression(text) if text else None
        case TriggerAction() | RunAction() | WaitAction() | CycleAction():
            return None
        case _:
            assert_never(action)


def _activity(code: ActivityLookup, rules: RunRules) -> NodeActivity:
    options = options_with(code.options, rules)
    stream = "" if options.stream is None else STREAM_RESUMES if options.stream.resumable else STREAM_RESTARTS
    return NodeActivity(code.name, options, encode_options(options), stream)


_OVERRIDES: Final = (
    "schedule_to_start_ms",
    "start_to_close_ms",
    "schedule_to_close_ms",
    "heartbeat_ms",
    "queue",
    "pauses",
)


def options_with(options: ActivityOptions, rules: RunRules) -> ActivityOptions:
    """The options of an activity, with those of a node applied."""
    overrides = {name: value for name in _OVERRIDES if (value := getattr(rules, name)) is not None}
    retry = options.retry if rules.retry is None else _retry_with(options.retry, rules.retry)
    return replace(options, retry=retry, **overrides)


def _retry_with(policy: RetryPolicy, rules: RetryRules) -> RetryPolicy:
    names = ("attempts", "initial_ms", "backoff", "maximum_ms", "jitter", "non_retryable")
    overrides = {name: value for name in names if (value := getattr(rules, name)) is not None}
    if "attempts" in overrides:
        overrides["attempts"] = overrides["attempts"] or None
    if "non_retryable" in overrides:
        overrides["non_retryable"] = frozenset(overrides["non_retryable"])
    if "initial_ms" in overrides and "maximum_ms" not in overrides:
        overrides["maximum_ms"] = max(policy.maximum_ms, overrides["initial_ms"])
    return replace(policy, **overrides)
