"""Where the expressions of a flow are."""

from collections.abc import Iterator
from typing import NamedTuple, cast

from holdfast.core.flow.definition import Child, Cycle, FlowDefinition, Interrupt, Node, Raise, Run, Template, Wait


class Found(NamedTuple):
    """An expression and where it is: ``when``, ``input.speed``, ``after.fox.when``."""

    where: str
    text: str
    after: str = ""
    """For the condition of an edge, where that comes from."""
    sees_item: bool = False
    """Whether `item` and `index` have a value there."""


def expressions_of(node: Node) -> Iterator[Found]:
    """All expressions of a node."""
    for edge in node.after:
        if edge.when:
            yield Found(f"after.{edge.source}.when", edge.when, edge.source)
    if node.when:
        yield Found("when", node.when)
    action = node.action
    if isinstance(action, Run | Child):
        if action.each is not None:
            yield Found("each", action.each.items)
        yield from _in_template("input", action.input, sees_item=action.each is not None)
    if isinstance(action, Child) and action.id:
        yield Found("id", action.id, sees_item=action.each is not None)
    elif isinstance(action, Wait) and isinstance(action.timeout, str):
        yield Found("wait.timeout" if action.event else "wait.timer", action.timeout)
    elif isinstance(action, Cycle) and isinstance(action.delay, str):
        yield Found("delay", action.delay)
    elif isinstance(action, Raise):
        yield Found("raise.to", action.to)
        yield from _in_template("raise.value", action.value)
    elif isinstance(action, Interrupt) and action.target:
        yield Found("interrupt", action.target)


def expressions_of_output(definition: FlowDefinition) -> Iterator[Found]:
    """The expressions of the flow's output."""
    yield from _in_template("output", definition.output)


def _in_template(where: str, template: Template, *, sees_item: bool = False) -> Iterator[Found]:
    if isinstance(template, str):
        yield Found(where, template, sees_item=sees_item)
    elif isinstance(template, list):
        for place, item in enumerate(cast(list[Template], template)):
            yield from _in_template(f"{where}.{place}", item, sees_item=sees_item)
    elif isinstance(template, dict):
        for key, value in cast(dict[str, Template], template).items():
            yield from _in_template(f"{where}.{key}", value, sees_item=sees_item)
