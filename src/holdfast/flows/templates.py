"""Templates: JSON in which every text is an expression, filled in with the values of an instance."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from holdfast.errors import ExpressionError
from holdfast.flows.expressions import Expression, compile_expression
from holdfast.flows.shapes import is_list, is_map
from holdfast.flows.values import Values

_encode: Final = msgspec.json.Encoder().encode
OUTPUT: Final = ".output"

Own = Mapping[str, Any] | None
"""The variables of an item of a fan-out."""


class Filled(Protocol):
    """A compiled template."""

    def __call__(self, values: Values, own: Own, /) -> bytes | msgspec.Raw: ...


def compile_template(template: object) -> Filled:
    """Compile a template. A value that JSON cannot hold is an error when it is filled in."""
    if isinstance(template, str):
        return _expression(template)
    if is_map(template):
        return _map({name: compile_template(value) for name, value in template.items()})
    if is_list(template):
        return _list([compile_template(value) for value in template])
    constant = _encode(template)
    return lambda _values, _own: constant


def evaluate(expression: Expression, values: Values, own: Own = None) -> Any:
    """The value of an expression for this instance."""
    return expression.evaluate(values.of(expression.names, own))


def _expression(text: str) -> Filled:
    expression = compile_expression(text)
    node = text.strip().removesuffix(OUTPUT)
    if node in expression.names and text.strip() == node + OUTPUT:
        return lambda values, _own: values.output(node)  # by far the most frequent, and nothing has to be decoded

    def fill(values: Values, own: Own) -> bytes:
        value = evaluate(expression, values, own)
        try:
            return _encode(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ExpressionError(f"{text}: its value cannot be stored as JSON: {error}") from None

    return fill


def _map(fields: dict[str, Filled]) -> Filled:
    labelled = [(_encode(name) + b":", fill) for name, fill in fields.items()]
    if len(labelled) == 1:
        label, only = labelled[0]
        return lambda values, own: b"{%b%b}" % (label, bytes(only(values, own)))
    return lambda values, own: b"{%b}" % b",".join(label + bytes(fill(values, own)) for label, fill in labelled)


def _list(items: list[Filled]) -> Filled:
    return lambda values, own: b"[%b]" % b",".join(bytes(fill(values, own)) for fill in items)
