"""The kinds of nodes: for each, the function that reads its action from fields, and the keys that it has.

YAML and the builder use the same functions. A value that cannot be read is added to the problems of its fields, and
the action has the default in its place; a flow with problems is never used.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, cast

from holdfast.authoring.validation import LARGEST
from holdfast.core.activity_options import LONGEST_DELAY_MS
from holdfast.core.admission import EventPolicy
from holdfast.core.flow.definition import (
    DEFAULT_CYCLE_LIMIT,
    After,
    AnyAction,
    ChildAction,
    CycleAction,
    Each,
    FailurePolicy,
    FlowDefinition,
    Hold,
    InterruptAction,
    Node,
    RaiseAction,
    RetryRules,
    RunAction,
    RunRules,
    TriggerAction,
    WaitAction,
)
from holdfast.core.flow.graph import Join
from holdfast.flows.language.fields import ABSENT, Fields, is_integer
from holdfast.flows.language.problems import quoted

UNLIMITED: Final = "unlimited"
MOST_AT_A_TIME: Final = 10_000
COMMON_KEYS: Final = frozenset({"after", "when", "otherwise", "join", "hold"})
"""Keys of every kind but the trigger."""


class NodeKind(NamedTuple):
    """How a kind is read, and the keys that it has beside `COMMON_KEYS`."""

    read: Callable[[Fields], AnyAction]
    keys: frozenset[str]


def _trigger(fields: Fields) -> TriggerAction:
    if fields.take("trigger") is not True:
        fields.add_problem("trigger", f"trigger must be true, not {fields.shown('trigger')}")
    return TriggerAction()


def _run(fields: Fields) -> RunAction:
    return RunAction(fields.name("run", "an activity"), fields.template("input"), _each(fields), _rules(fields))


def _child(fields: Fields) -> ChildAction:
    return ChildAction(
        fields.name("flow", "a flow or workflow"),
        fields.template("input"),
        _each(fields),
        fields.expression("id"),
        fields.boolean("detached"),
    )


def _each(fields: Fields) -> Each | None:
    items = fields.expression("each")
    limit = fields.integer("limit", least=1, most=MOST_AT_A_TIME)
    if "each" in fields:
        return Each(items, limit)
    if "limit" in fields:
        fields.add_problem("limit", "limit goes with each: it is the number of items that run at a time")
    return None


def _rules(fields: Fields) -> RunRules:
    return RunRules(
        queue=fields.name("queue", "a queue") or None,
        retry=_retry(fields),
        schedule_to_start_ms=fields.duration("schedule_to_start", least_ms=1),
        start_to_close_ms=fields.duration("start_to_close", least_ms=1),
        schedule_to_close_ms=fields.duration("schedule_to_close", least_ms=1),
        heartbeat_ms=fields.duration("heartbeat", least_ms=1),
        pauses=_pauses(fields),
    )


def _pauses(fields: Fields) -> bool | None:
    word = fields.word("on_exhausted", ("fail", "pause"))
    return None if not word else word == "pause"


def _retry(fields: Fields) -> RetryRules | None:
    inner = fields.inner("retry", "{attempts: 5, initial: 1s}")
    if inner is None:
        return None
    rules = RetryRules(
        attempts=_attempts(inner),
        initial_ms=_delay(inner, "initial"),
        backoff=inner.number("backoff", least=1),
        maximum_ms=_delay(inner, "maximum"),
        jitter=inner.boolean("jitter") if "jitter" in inner else None,
        non_retryable=inner.strings("non_retryable", "the name of an error"),
    )
    if rules.initial_ms is not None and rules.maximum_ms is not None and rules.initial_ms > rules.maximum_ms:
        inner.add_problem("maximum", "maximum must be at least as long as initial")
    inner.finish("jitter")
    return rules


def _attempts(fields: Fields) -> int | None:
    value = fields.take("attempts")
    if value == UNLIMITED:
        return 0
    if is_integer(value) and 1 <= value <= LARGEST:
        return int(value)
    if value is not ABSENT:
        fields.add_problem("attempts", f"attempts must be 1 or more, or {UNLIMITED}, not {fields.shown('attempts')}")
    return None


def _delay(fields: Fields, key: str) -> int | None:
    length = fields.duration(key)
    if length is not None and length > LONGEST_DELAY_MS:
        fields.add_problem(key, f"{key} must be at most a year")
        return None
    return length


def _wait(fields: Fields) -> WaitAction:
    inner = fields.inner("wait", "{event: approved, timeout: 2d} or {timer: 1h}")
    if inner is None:
        return WaitAction()
    event = inner.name("event", "an event")
    timeout = inner.span_or_expression("timeout")
    timer = inner.span_or_expression("timer")
    if "timer" in inner and ("event" in inner or "timeout" in inner):
        inner.add_problem("timer", "timer is for a wait without an event; an event has a timeout")
    elif "event" not in inner and "timer" not in inner:
        inner.add_problem("", "it needs an event or a timer")
    inner.finish()
    return WaitAction(timeout=timer) if "timer" in inner else WaitAction(event, timeout)


def _cycle(fields: Fields) -> CycleAction:
    limit = fields.integer("limit", least=1, most=LARGEST)
    return CycleAction(
        fields.text("cycle", "the id of an activity"),
        fields.span_or_expression("delay") or 0,
        DEFAULT_CYCLE_LIMIT if limit is None else limit,
    )


def _raise(fields: Fields) -> RaiseAction:
    inner = fields.inner("raise", "{event: shipped, to: received.input.buyer}")
    if inner is None:
        return RaiseAction("", "")
    action = RaiseAction(inner.name("event", "an event"), inner.expression("to"), inner.template("value"))
    for key in ("event", "to"):
        if key not in inner:
            inner.add_problem(key, f"it needs {key}")
    inner.finish()
    return action


def _interrupt(fields: Fields) -> InterruptAction:
    target = fields.expression("interrupt")
    descendants = fields.boolean("descendants")
    return InterruptAction("" if target == "self" else target, descendants, fields.text("reason"))


_EACH: Final = frozenset({"each", "limit", "input"})
_OPTIONS: Final = frozenset(
    {"queue", "retry", "schedule_to_start", "start_to_close", "schedule_to_close", "heartbeat", "on_exhausted"}
)
KINDS: Final[Mapping[str, NodeKind]] = {
    "trigger": NodeKind(_trigger, frozenset()),
    "run": NodeKind(_run, _EACH | _OPTIONS),
    "flow": NodeKind(_child, _EACH | {"id", "detached"}),
    "wait": NodeKind(_wait, frozenset()),
    "cycle": NodeKind(_cycle, frozenset({"limit", "delay"})),
    "raise": NodeKind(_raise, frozenset()),
    "interrupt": NodeKind(_interrupt, frozenset({"descendants", "reason"})),
}


def node_with_edges(fields: Fields, action: AnyAction, edges: Iterable[After], line: int = 0) -> Node:
    """A node that is not the trigger. The `when` and `otherwise` of a node with one edge belong to that edge."""
    after = _distinct_edges(fields, edges)
    when = fields.expression("when")
    otherwise = fields.boolean("otherwise")
    if len(after) == 1:
        (edge,) = after
        edge_when = edge.when or when
        if not edge.when:
            when = ""
        after = (After(edge.source, edge.catch, edge_when, edge.otherwise or otherwise),)
    elif otherwise:
        fields.add_problem("otherwise", "otherwise belongs to one edge, and there are several; write it in after")
    for edge in after:
        if edge.otherwise and (edge.when or edge.catch is not None):
            key = "otherwise" if "otherwise" in fields else "after"
            message = "otherwise is taken when no condition holds; it has neither when nor catch itself"
            fields.add_problem(key, message)
    join = fields.word("join", tuple(Join))
    return Node(fields.node, action, after, Join(join) if join else Join.ALL, when, line, _hold(fields))


def _hold(fields: Fields) -> Hold | None:
    """True, or a mapping with a timeout; false is the same as absent."""
    value = fields.take("hold")
    if value is ABSENT or value is False:
        return None
    if value is True:
        return Hold()
    if not isinstance(value, Mapping):
        fields.add_problem(
            "hold", f"hold must be true or a mapping such as {{timeout: 1d}}, not {fields.shown('hold')}"
        )
        return None
    inner = fields.inside("hold", cast("Mapping[str, object]", value))
    timeout = inner.span_or_expression("timeout")
    if not inner.values:
        inner.add_problem("timeout", "it needs a timeout; write hold: true for a hold without one")
    inner.finish()
    return Hold(timeout)


def _distinct_edges(fields: Fields, edges: Iterable[After]) -> tuple[After, ...]:
    """The edges in order. A node has at most two edges from another: one for its errors and one for its completion."""
    found: dict[tuple[str, bool], After] = {}
    twice: set[str] = set()
    for edge in edges:
        key = (edge.source, edge.catch is not None)
        if key in found:
            twice.add(edge.source)
        found.setdefault(key, _checked_edge(fields, edge))
    for source in sorted(twice):
        message = f"{quoted(source)} occurs twice; join the conditions, or the errors to catch"
        given = fields.values.get("after")
        if isinstance(given, Mapping):
            fields.inside("after", cast("Mapping[str, object]", given)).add_problem(source, message)
        else:
            fields.add_problem("after", f"after: {message}")
    return tuple(found[key] for key in sorted(found))


def _checked_edge(fields: Fields, edge: After) -> After:
    """The edge, without its condition if that is blank. The fields of YAML have been checked before."""
    if not edge.when or edge.when.strip():
        return edge
    when = fields.inside("after", {}).inside(edge.source, {"when": edge.when}).expression("when")
    return After(edge.source, edge.catch, when, edge.otherwise)


INPUT_TYPES: Final = ("string", "integer", "number", "boolean", "array", "object", "any")
_OTHER_TYPES: Final = {
    "text": "string", "str": "string", "int": "integer", "float": "number", "double": "number", "bool": "boolean",
    "list": "array", "dict": "object", "map": "object",
}  # fmt: skip
"""Type names of other languages, and the JSON type that a flow declares instead."""


def _input_types(fields: Fields) -> dict[str, str]:
    """The fields that a flow takes, each with the name of its JSON type."""
    inner = fields.inner("input", "{order_id: string, cents: integer}")
    if inner is None:
        return {}
    found: dict[str, str] = {}
    for name in inner:
        type_name = inner.take(name)
        if isinstance(type_name, str) and type_name in INPUT_TYPES:
            found[name] = type_name
        else:
            suggestion = _OTHER_TYPES.get(type_name, "") if isinstance(type_name, str) else ""
            message = f"{quoted(name)} must be one of {', '.join(INPUT_TYPES)}, not {inner.shown(name)}"
            inner.add_problem(name, message, suggestion=suggestion)
    return found


def read_definition(fields: Fields, name: str, nodes: Iterable[Node]) -> FlowDefinition:
    """The definition with these nodes; the rest of it is read from the fields of the flow."""
    policy = fields.word("policy", tuple(FailurePolicy))
    event_policy = fields.word("event_policy", tuple(EventPolicy))
    return FlowDefinition(
        name=name,
        nodes=tuple(sorted(nodes, key=lambda node: node.id)),
        version=fields.text("version"),
        input=_input_types(fields),
        policy=FailurePolicy(policy) if policy else FailurePolicy.DRAIN,
        output=fields.template("output"),
        event_policy=EventPolicy(event_policy) if event_policy else EventPolicy.MAILBOX,
    )
