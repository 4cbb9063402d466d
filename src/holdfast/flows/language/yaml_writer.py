"""Writes a definition as YAML, one line for each node where that is short enough.

Reading the text gives the same definition, except for the lines.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, assert_never, cast

from holdfast.core.admission import EventPolicy
from holdfast.core.flow.ancestry import Ancestry
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
    """A definition as YAML."""
    lines = [f"flow: {_flow_style(definition.name)}"]
    if definition.version:
        lines.append(f"version: {_quoted(definition.version)}")
    if definition.input:
        lines.append(f"input: {_flow_style(definition.input)}")
    if definition.policy is not FailurePolicy.DRAIN:
        lines.append(f"policy: {definition.policy.value}")
    if definition.event_policy is not EventPolicy.MAILBOX:
        lines.append(f"event_policy: {definition.event_policy.value}")
    lines.append("activities:")
    for node in _in_order(definition):
        fields = describe(node)
        line = f"  {_flow_style(node.id)}: {_flow_style(fields)}"
        if len(line) <= LONGEST_LINE:
            lines.append(line)
        else:
            lines += [f"  {_flow_style(node.id)}:"]
            lines += [f"    {_flow_style(key)}: {_flow_style(value)}" for key, value in fields.items()]
    if definition.output is not None:
        lines.append(f"output: {_flow_style(definition.output)}")
    return "\n".join(lines) + "\n"


def _in_order(definition: FlowDefinition) -> list[Node]:
    """Nodes by their lines. Nodes of a flow that was built have none: each is after the nodes that it comes after."""
    order = Ancestry.of({node.id: node for node in definition.nodes}).before
    positions = {node_id: position for position, node_id in enumerate(order)}
    return sorted(definition.nodes, key=lambda node: (node.line, positions[node.id]))


def describe(node: Node) -> dict[str, Any]:
    """The fields of a node as YAML has them."""
    edges, when, otherwise = _after(node.after, has_when=bool(node.when))
    return {
        **_action(node.action),
        **_given(
            after=edges,
            when=when or node.when or None,
            otherwise=otherwise or None,
            join=None if node.join is Join.ALL else node.join.value,
            hold=_hold(node.hold),
        ),
    }


def _given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None: a field with its default is not written."""
    return {key: value for key, value in fields.items() if value is not None}


def _action(action: AnyAction) -> dict[str, Any]:
    match action:
        case TriggerAction():
            return {"trigger": True}
        case RunAction():
            return {"run": action.activity, **_each(action.each), **_given(input=action.input), **_rules(action.rules)}
        case ChildAction():
            options = _given(input=action.input, id=action.id or None, detached=action.detached or None)
            return {"flow": action.workflow, **_each(action.each), **options}
        case WaitAction(event="", timeout=timeout):
            return {"wait": _given(timer=_span(timeout))}
        case WaitAction(event=event, timeout=timeout):
            return {"wait": _given(event=event, timeout=_span(timeout))}
        case CycleAction():
            limit = None if action.limit == DEFAULT_CYCLE_LIMIT else action.limit
            return {"cycle": action.target, **_given(delay=_span(action.delay or None), limit=limit)}
        case RaiseAction():
            return {"raise": _given(event=action.event, to=action.to, value=action.value)}
        case InterruptAction():
            options = _given(descendants=action.descendants or None, reason=action.reason or None)
            return {"interrupt": action.target or "self", **options}
        case _:
            assert_never(action)


def _hold(hold: Hold | None) -> dict[str, Any] | bool | None:
    if hold is None:
        return None
    return True if hold.timeout is None else {"timeout": _span(hold.timeout)}


def _each(each: Each | None) -> dict[str, Any]:
    return {} if each is None else _given(each=each.items, limit=each.limit)


def _span(span: Span | None) -> str | float | None:
    return show_span(span) if isinstance(span, int) else span


def _rules(rules: RunRules) -> dict[str, Any]:
    return _given(
        queue=rules.queue,
        retry=None if rules.retry is None else _retry(rules.retry),
        schedule_to_start=_span(rules.schedule_to_start_ms),
        start_to_close=_span(rules.start_to_close_ms),
        schedule_to_close=_span(rules.schedule_to_close_ms),
        heartbeat=_span(rules.heartbeat_ms),
        on_exhausted=None if rules.pauses is None else "pause" if rules.pauses else "fail",
    )


def _retry(rules: RetryRules) -> dict[str, Any]:
    return _given(
        attempts=UNLIMITED if rules.attempts == 0 else rules.attempts,
        initial=_span(rules.initial_ms),
        backoff=rules.backoff,
        maximum=_span(rules.maximum_ms),
        jitter=rules.jitter,
        non_retryable=rules.non_retryable,
    )


def _after(edges: tuple[After, ...], *, has_when: bool) -> tuple[Any, str, bool]:
    """The edges as YAML has them, and the `when` and `otherwise` of a single edge, which belong to the node."""
    if len(edges) == 1 and not (has_when and edges[0].when):
        (edge,) = edges
        return edge.source if edge.catch is None else {edge.source: {"catch": edge.catch}}, edge.when, edge.otherwise
    if all(edge.catch is None and not edge.when and not edge.otherwise for edge in edges):
        return [edge.source for edge in edges] or None, "", False
    written: dict[str, Any] = {}
    for edge in edges:
        fields = _given(catch=edge.catch, when=edge.when or None, otherwise=edge.otherwise or None)
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
    """A string in double quotes; characters that YAML does not print are escaped."""
    return f'"{"".join(_QUOTED.get(character) or _printable(character) for character in text)}"'


def _printable(character: str) -> str:
    if character.isprintable() and character != "\ufeff":
        return character
    return f"\\U{ord(character):08x}"
