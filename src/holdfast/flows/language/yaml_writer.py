"""A flow as YAML: a line for each activity, as a person would write it."""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from holdfast.core.flow.definition import (
    DEFAULT_CYCLE_LIMIT,
    After,
    AnyAction,
    ChildAction,
    CycleAction,
    FailurePolicy,
    FlowDefinition,
    InterruptAction,
    Node,
    RaiseAction,
    RetryRules,
    RunAction,
    RunRules,
    Span,
    TriggerAction,
    WaitAction,
    is_span,
    show_span,
)
from holdfast.core.flow.graph import Join
from holdfast.flows.language.node_kinds import UNLIMITED
from holdfast.flows.language.yaml_tree import is_text

LONGEST_LINE: Final = 110
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_QUOTED: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def write_yaml(definition: FlowDefinition) -> str:
    """The text of a flow; reading it gives the same definition, but for the lines."""
    lines = [f"flow: {_flow_style(definition.name)}"]
    if definition.version:
        lines.append(f"version: {_quoted(definition.version)}")
    if definition.input:
        lines.append(f"input: {_flow_style(definition.input)}")
    if definition.policy is not FailurePolicy.DRAIN:
        lines.append(f"policy: {definition.policy.value}")
    lines.append("activities:")
    for node in _in_order(definition):
        said = describe(node)
        line = f"  {_flow_style(node.id)}: {_flow_style(said)}"
        if len(line) <= LONGEST_LINE:
            lines.append(line)
        else:
            lines += [f"  {_flow_style(node.id)}:"]
            lines += [f"    {_flow_style(key)}: {_flow_style(value)}" for key, value in said.items()]
    if definition.output is not None:
        lines.append(f"output: {_flow_style(definition.output)}")
    return "\n".join(lines) + "\n"


def _in_order(definition: FlowDefinition) -> list[Node]:
    """As they were written; a flow that was built has its trigger first, and each activity after what it needs."""
    depth: dict[str, int] = {}
    nodes = {node.id: node for node in definition.nodes}
    waiting = [node.id for node in definition.nodes]
    while waiting:
        left = [name for name in waiting if any(edge.source not in depth for edge in nodes[name].after)]
        for name in waiting:
            if name not in left:
                depth[name] = 1 + max((depth[edge.source] for edge in nodes[name].after), default=0)
        if len(left) == len(waiting):
            break
        waiting = left
    return sorted(definition.nodes, key=lambda node: (node.line, depth.get(node.id, 0), node.id))


def describe(node: Node) -> dict[str, Any]:
    """What YAML says about a node."""
    said = _action(node.action)
    if node.after:
        edges, when, otherwise = _after(node.after, has_when=bool(node.when))
        said["after"] = edges
        if when or node.when:
            said["when"] = when or node.when
        if otherwise:
            said["otherwise"] = True
    if node.join is not Join.ALL:
        said["join"] = node.join.value
    return said


def _action(action: AnyAction) -> dict[str, Any]:
    said: dict[str, Any]
    match action:
        case TriggerAction():
            return {"trigger": True}
        case RunAction():
            said = {"run": action.activity, **_each(action), **_template("input", action.input), **_rules(action.rules)}
        case ChildAction():
            said = {"flow": action.workflow, **_each(action), **_template("input", action.input)}
            said |= {"id": action.id} if action.id else {}
            said |= {"detached": True} if action.detached else {}
        case WaitAction():
            said = {"wait": _wait(action)}
        case CycleAction():
            said = {"cycle": action.target}
            said |= {"delay": _span(action.delay)} if action.delay else {}
            said |= {"limit": action.limit} if action.limit != DEFAULT_CYCLE_LIMIT else {}
        case RaiseAction():
            said = {"raise": {"event": action.event, "to": action.to, **_template("value", action.value)}}
        case InterruptAction():
            said = {"interrupt": action.target or "self"}
            said |= {"descendants": True} if action.descendants else {}
            said |= {"reason": action.reason} if action.reason else {}
    return said


def _each(action: RunAction | ChildAction) -> dict[str, Any]:
    if action.each is None:
        return {}
    limit = {} if action.each.limit is None else {"limit": action.each.limit}
    return {"each": action.each.items, **limit}


def _template(key: str, template: object) -> dict[str, Any]:
    return {} if template is None else {key: template}


def _wait(action: WaitAction) -> dict[str, Any]:
    timeout = {} if action.timeout is None else {"timeout" if action.event else "timer": _span(action.timeout)}
    return {"event": action.event, **timeout} if action.event else timeout


def _span(span: Span) -> str | float:
    return span if isinstance(span, str) else show_span(span)


def _rules(rules: RunRules) -> dict[str, Any]:
    said: dict[str, Any] = {"queue": rules.queue, "retry": None if rules.retry is None else _retry(rules.retry)}
    for key in ("schedule_to_start", "start_to_close", "schedule_to_close", "heartbeat"):
        length: int | None = getattr(rules, f"{key}_ms")
        said[key] = None if length is None else show_span(length)
    return {key: value for key, value in said.items() if value is not None}


def _retry(rules: RetryRules) -> dict[str, Any]:
    said: dict[str, Any] = {
        "attempts": UNLIMITED if rules.attempts == 0 else rules.attempts,
        "initial": None if rules.initial_ms is None else show_span(rules.initial_ms),
        "backoff": rules.backoff,
        "maximum": None if rules.maximum_ms is None else show_span(rules.maximum_ms),
        "jitter": rules.jitter,
        "non_retryable": None if rules.non_retryable is None else list(rules.non_retryable),
    }
    return {key: value for key, value in said.items() if value is not None}


def _after(edges: tuple[After, ...], *, has_when: bool) -> tuple[Any, str, bool]:
    """The edges, and what is said of the only one outside of them: its condition, and that it is the default."""
    if len(edges) == 1 and not (has_when and edges[0].when):
        (edge,) = edges
        source: Any = edge.source if edge.catch is None else {edge.source: {"catch": list(edge.catch)}}
        return source, edge.when, edge.otherwise
    if all(edge.catch is None and not edge.when and not edge.otherwise for edge in edges):
        return [edge.source for edge in edges], "", False
    written: dict[str, Any] = {}
    for edge in edges:
        fields: dict[str, Any] = {} if edge.catch is None else {"catch": list(edge.catch)}
        fields |= {"when": edge.when} if edge.when else {}
        fields |= {"otherwise": True} if edge.otherwise else {}
        written[edge.source] = [written[edge.source], fields] if edge.source in written else fields
    return written, "", False


# ---------------------------------------------------------------- YAML


def _flow_style(value: object) -> str:
    """A value on one line."""
    if isinstance(value, str):
        is_plain = is_span(value) or (_PLAIN.fullmatch(value) and is_text(value))
        return value if is_plain else _quoted(value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value).items()
        return f"{{{', '.join(f'{_flow_style(key)}: {_flow_style(one)}' for key, one in entries)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_flow_style(one) for one in cast('list[object]', value))}]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def _quoted(text: str) -> str:
    """A text in double quotes; what YAML does not print is escaped."""
    return f'"{"".join(_QUOTED.get(character) or _printable(character) for character in text)}"'


def _printable(character: str) -> str:
    if character.isprintable() and character != "\ufeff":
        return character
    return f"\\U{ord(character):08x}"
