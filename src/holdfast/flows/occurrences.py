"""Where the expressions of a flow are."""

from collections.abc import Iterator
from typing import NamedTuple, cast

from holdfast.core.flow.definition import (
    ChildAction,
    CycleAction,
    FlowDefinition,
    InterruptAction,
    Node,
    RaiseAction,
    RunAction,
    Template,
    WaitAction,
)


class FoundExpression(NamedTuple):
    """An expression and where it is: ``when``, ``input.speed``, ``after.fox.when``."""

    where: str
    text: str
    after: str = ""
    """For the condition of an edge, where that comes from."""
    sees_item: bool = False
    """Whether `item` and `index` have a value there."""


def expressions_of(node: Node) -> Iterator[FoundExpression]:
    """All expressions of a node."""
    for edge in node.after:
        if edge.when:
            yield FoundExpression(f"after.{edge.source}.when", edge.when, edge.source)
    if node.when:
        yield FoundExpression("when", node.when)
    action = node.action
    if isinstance(action, RunAction | ChildAction):
        if action.each is not None:
            yield FoundExpression("each", action.each.items)
        yield from _in_template("input", action.input, sees_item=action.each is not None)
    if isinstance(action, ChildAction) and action.id:
        yield FoundExpression("id", action.id, sees_item=action.each is not None)
    elif isinstance(action, WaitAction) and isinstance(action.timeout, str):
        yield FoundExpression("wait.timeout" if action.event else "wait.timer", action.timeout)
    elif isinstance(action, CycleAction) and isinstance(action.delay, str):
        yield FoundExpression("delay", action.delay)
    elif isinstance(action, RaiseAction):
        yield FoundExpression("raise.to", action.to)
        yield from _in_template("raise.value", action.value)
    elif isinstance(action, InterruptAction) and action.target:
        yield FoundExpression("interrupt", action.target)


def expressions_of_output(definition: FlowDefinition) -> Iterator[FoundExpression]:
    """The expressions of the flow's output."""
    yield from _in_template("output", definition.output)


def _in_template(where: str, template: Template, *, sees_item: bool = False) -> Iterator[FoundExpression]:
    if isinstance(template, str):
        yield FoundExpression(where, template, sees_item=sees_item)
    elif isinstance(template, list):
        for place, item in enumerate(cast(list[Template], template)):
            yield from _in_template(f"{where}.{place}", item, sees_item=sees_item)
    elif isinstance(template, dict):
        for key, value in cast(dict[str, Template], template).items():
            yield from _in_template(f"{where}.{key}", value, sees_item=sees_item)
