"""Checks the expressions of a flow: whether each compiles, and whether the values that it names exist by then.

A literal that can never be right at its place is an error as well.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, assert_never, cast

from holdfast.core.flow.ancestry import Ancestry, rounds
from holdfast.core.flow.definition import (
    AnyAction,
    ChildAction,
    CycleAction,
    FlowDefinition,
    InterruptAction,
    Node,
    RaiseAction,
    RunAction,
    Template,
    TriggerAction,
    WaitAction,
)
from holdfast.errors import ExpressionError
from holdfast.flows.expressions.expression import Expression, Literal, compile_expression
from holdfast.flows.language.problems import Places, Problems, quoted


class FoundExpression(NamedTuple):
    """An expression and its place: ``when``, ``input.speed``, ``after.fox.when``."""

    where: str
    text: str
    after: str = ""
    """The source of the edge whose condition it is."""
    sees_item: bool = False
    """Whether `item` and `index` have a value there."""


def expressions_of(node: Node) -> Iterator[FoundExpression]:
    """All expressions of a node."""
    for edge in node.after:
        if edge.when:
            yield FoundExpression(f"after.{edge.source}.when", edge.when, edge.source)
    if node.when:
        yield FoundExpression("when", node.when)
    if node.hold is not None and isinstance(node.hold.timeout, str):
        yield FoundExpression("hold.timeout", node.hold.timeout)
    yield from _in_action(node.action)


def _in_action(action: AnyAction) -> Iterator[FoundExpression]:
    match action:
        case TriggerAction():
            pass
        case RunAction() | ChildAction():
            yield from _in_work(action)
        case WaitAction(timeout=timeout):
            if isinstance(timeout, str):
                yield FoundExpression("wait.timeout" if action.event else "wait.timer", timeout)
        case CycleAction(delay=delay):
            if isinstance(delay, str):
                yield FoundExpression("delay", delay)
        case RaiseAction():
            yield FoundExpression("raise.to", action.to)
            yield from _in_template("raise.value", action.value)
        case InterruptAction(target=target):
            if target:
                yield FoundExpression("interrupt", target)
        case _:
            assert_never(action)


def _in_work(action: RunAction | ChildAction) -> Iterator[FoundExpression]:
    sees_item = action.each is not None
    if action.each is not None and not action.each.stream:  # the checker of nodes reads the name of a stream
        yield FoundExpression("each", action.each.items)
    yield from _in_template("input", action.input, sees_item=sees_item)
    if isinstance(action, ChildAction) and action.id:
        yield FoundExpression("id", action.id, sees_item=sees_item)


def expressions_of_output(definition: FlowDefinition) -> Iterator[FoundExpression]:
    """The expressions of the flow's output."""
    yield from _in_template("output", definition.output)


def _in_template(where: str, template: Template, *, sees_item: bool = False) -> Iterator[FoundExpression]:
    if isinstance(template, str):
        yield FoundExpression(where, template, sees_item=sees_item)
    elif isinstance(template, list):
        for place, item in enumerate(cast("list[Template]", template)):
            yield from _in_template(f"{where}.{place}", item, sees_item=sees_item)
    elif isinstance(template, dict):
        for key, value in cast("dict[str, Template]", template).items():
            yield from _in_template(f"{where}.{key}", value, sees_item=sees_item)


def literal_problem(found: FoundExpression, value: object) -> str:
    """The reason why this literal always fails there, or an empty string."""
    match found.where.rpartition(".")[2] if found.after else found.where:
        case "when":
            return "" if isinstance(value, bool) else f"a condition is true or false, not {found.text}"
        case "interrupt":
            message = "interrupt takes self, or an expression that gives the id of an instance, which is a string"
            return "" if isinstance(value, str) else f"{message}, not {found.text}"
        case "id" | "raise.to":
            return "" if isinstance(value, str) else f"the id of an instance is a string, not {found.text}"
        case "each":
            return f"each takes a list, not {found.text}"
        case "wait.timeout" | "wait.timer" | "delay" | "hold.timeout":
            is_time = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
            return "" if is_time else f"a duration is a number of seconds, 0 or more, not {found.text}"
        case _:
            return ""


MOST_EXPRESSIONS: Final = 10_000
"""Ten for each activity of the largest flow. Each takes up to a tenth of a millisecond to compile."""
ITEM_NAMES: Final = frozenset({"item", "index"})
BESIDE_NODES: Final = ITEM_NAMES | {"flow"}
"""Names in expressions that are not activities."""
NODE_FIELDS: Final = frozenset({"input", "output", "error"})
RESPONSES: Final = "responses"
OTHER_WORDS: Final = {"None": "null", "True": "true", "False": "false"}
"""Words of Python, and the words of CEL for the same."""
_WORDS: Final = re.compile(r"[A-Za-z]+(?: [A-Za-z]+){1,9}[.!?]?")
"""A sentence: a string without its quotes."""
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ][0-9]{1,2}:[0-9:.]{2,20}(?:[Zz]|[-+][0-9:]{2,6})?)?")
"""A date without the quotes of a string. As an expression it is a subtraction."""
_TESTS_FIRST: Final = re.compile(r"\bnull\b|\bhas\(|\?")
SHOWN_HANDLERS: Final = 3
ERROR_FIELDS: Final = frozenset({"type", "message"})
FLOW_FIELDS: Final = frozenset({"id", "name", "version"})


def check_expressions(
    problems: Problems,
    definition: FlowDefinition,
    *,
    nodes: Mapping[str, Node],
    ancestry: Ancestry,
    places: Places,
    unreadable: frozenset[str],
) -> None:
    """Add the problems of the expressions of a flow."""
    checker = _References(problems, definition, nodes=nodes, ancestry=ancestry, places=places, unreadable=unreadable)
    expressions = [(node.id, found) for node in definition.nodes for found in expressions_of(node)]
    expressions += [("", found) for found in expressions_of_output(definition)]
    if len(expressions) > MOST_EXPRESSIONS:
        line = places.get(("", "activities"), 0)
        problems.add(line, f"a flow has at most {MOST_EXPRESSIONS:,} expressions, not {len(expressions):,}")
        return
    for node_id, found in expressions:
        checker.check(node_id, found)


def _quotes(text: str) -> str:
    return f"a string has quotes of its own: \"'{text}'\""


class _References:
    def __init__(
        self,
        problems: Problems,
        definition: FlowDefinition,
        *,
        nodes: Mapping[str, Node],
        ancestry: Ancestry,
        places: Places,
        unreadable: frozenset[str],
    ) -> None:
        self._problems = problems
        self._definition = definition
        self._nodes = nodes
        self._ids = {*nodes, *unreadable}
        self._ancestry = ancestry
        self._rounds = rounds(nodes, ancestry)
        self._places = places
        self._handlers: dict[str, list[str]] = {}
        """The nodes that catch failures of each node."""
        for each in nodes.values():
            for edge in each.after:
                if edge.catch is not None:
                    self._handlers.setdefault(edge.source, []).append(each.id)
        self._trigger = next((node.id for node in nodes.values() if isinstance(node.action, TriggerAction)), "")

    def check(self, node: str, found: FoundExpression) -> None:
        if self._problems.is_spoiled(node, found.where):
            return
        line = self._places.get((node, found.where)) or self._places.get((node, ""), 0)
        where = found.where.removeprefix(f"after.{found.after}.") if found.after else found.where
        if _DATE.fullmatch(found.text.strip()):
            message = f"{quoted(found.text)} is a date, which CEL reads as a subtraction"
            self._problems.add(line, f"{where}: {message}; {_quotes(found.text.strip())}", node=node)
            return
        try:
            expression = compile_expression(found.text)
        except ExpressionError as error:
            column = f", column {error.column}" if error.column else ""
            message = f"{where}: {quoted(found.text)} cannot be read{column}: {error}"
            if _WORDS.fullmatch(found.text):
                message += f"; {_quotes(found.text)}"
            self._problems.add(line, message, node=node)
            return
        if isinstance(expression, Literal) and (reason := literal_problem(found, expression.evaluate({}))):
            self._problems.add(line, f"{where}: {reason}", node=node)
        for name in sorted(expression.names) if len(expression.names) > 1 else expression.names:
            if reason := self._no_value(node, found, expression, name):
                suggestion = (
                    "" if name in self._ids else OTHER_WORDS.get(name) or self._problems.closest(name, self._ids)
                )
                self._problems.add(line, f"{where}: {reason}", node=node, suggestion=suggestion)
            else:
                for message, suggestion in self._unknown_fields(expression, name):
                    self._problems.add(line, f"{where}: {message}", node=node, suggestion=suggestion)
                if reason := self._possibly_null(node, expression, name):
                    self._problems.warn(line, f"{where}: {reason}", node=node)

    def _no_value(self, node: str, found: FoundExpression, expression: Expression, name: str) -> str:
        """The reason why `name` has no value there, or an empty string."""
        if name in ITEM_NAMES:
            return "" if found.sees_item else f"{name} has a value only in the input and id of an activity with each"
        if name == "flow":
            return ""
        if name not in self._ids:
            hint = f"; {_quotes(name)}" if expression.text.strip() == name else ""
            return f"there is no activity {quoted(name)}{hint}"
        if not node or name not in self._nodes or node in self._ancestry.tangled or name in self._ancestry.tangled:
            return ""
        return self._too_early(node, found, name)

    def _too_early(self, node: str, found: FoundExpression, name: str) -> str:
        base = found.after if found.after in self._ancestry.before else node
        readable = self._ancestry.before[base] | self._rounds.get(base, 0) | self._rounds.get(node, 0)
        if found.after in self._ancestry.before:
            readable |= self._ancestry.bits[base]
        if readable & self._ancestry.bits[name]:
            source = self._nodes[node].stream
            if name == source:
                return f"{name} may still run: its responses are the items; read item, not {name}"
            return ""
        if name == node:
            return f"{name} has no value before it runs"
        if found.after and self._ancestry.before[node] & self._ancestry.bits[name]:
            return f"it is evaluated when {found.after} has finished, and {name} may not have finished by then"
        return f"{name} does not come before it, so it may not have run by then"

    def _possibly_null(self, node: str, expression: Expression, name: str) -> str:
        """The reason why the output of `name` may be null there although the flow continues, or an empty string.

        An expression that tests for null, or for a field, is assumed to handle that.
        """
        if not expression.fields(name, "output") or _TESTS_FIRST.search(expression.text):
            return ""
        handlers = self._handlers.get(name, [])
        if not handlers or (node and node not in handlers):
            return ""
        caught = f"if {name} fails, {' or '.join(handlers[:SHOWN_HANDLERS])} catches that and {name}.output is null"
        if node:
            return f"{caught}, so this fails; {name}.error has the error"
        return (
            f"{caught}, and so is this; to choose another value write {name}.output == null ? ... : {expression.text}"
        )

    def _unknown_fields(self, expression: Expression, name: str) -> Iterator[tuple[str, str]]:
        """Fields that do not exist, such as ``fox.ouput``, with a suggestion."""
        fields = expression.paths[name]
        if not fields or name in ITEM_NAMES:
            return
        known = FLOW_FIELDS if name == "flow" else NODE_FIELDS
        if name != "flow" and RESPONSES in fields:
            yield f"{name}.responses stands alone in each, which runs a node once for each response", ""
        for field in sorted(fields.keys() - known - {RESPONSES}):
            yield f"{name} has no {field}, only {', '.join(sorted(known))}", self._problems.closest(field, known)
        for field in sorted(expression.fields(name, "error") - ERROR_FIELDS) if "error" in fields else ():
            yield f"{name}.error has no {field}, only type and message", self._problems.closest(field, ERROR_FIELDS)
        if name == self._trigger and self._definition.input:
            declared = self._definition.input
            for field in sorted(expression.fields(name, "input") - declared.keys()):
                yield f"the input of the flow has no {quoted(field)}", self._problems.closest(field, declared)
