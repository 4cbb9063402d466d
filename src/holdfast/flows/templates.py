"""Templates: JSON in which every text is an expression, filled in with the values of an instance."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from holdfast.errors import ExpressionError, PayloadError, PayloadTooLarge
from holdfast.flows.expressions import Expression, compile_expression
from holdfast.flows.shapes import is_list, is_map
from holdfast.flows.values import FLOW, INDEX, ITEM, NULL, InstanceValues
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES, PayloadLimit
from holdfast.payloads.wire import ESCAPED_NUL, SHORTEST_SUSPECT_BYTES, is_within_bounds

_encode: Final = msgspec.json.Encoder().encode
OUTPUT: Final = ".output"
NO_NODES: Final = (ITEM, INDEX, FLOW)

A_VALUE: Final = "what a flow puts together"

ItemVariables = Mapping[str, Any] | None
"""The variables of an item of a fan-out."""


class CompiledTemplate(Protocol):
    """A compiled template."""

    def __call__(self, values: InstanceValues, own: ItemVariables, /) -> bytes | msgspec.Raw: ...


def compile_template(template: object, *, is_output: bool = False) -> CompiledTemplate:
    """Compile a template. A value that JSON cannot hold is an error when it is filled in.

    In the output of a flow, an expression that fails because it reads a node without an output (it failed and was
    caught, or was skipped) is null: the work of the flow is done, and this must not fail it.
    """
    if isinstance(template, str):
        return _or_null(template) if is_output else _expression(template)
    if is_map(template):
        return _map({name: compile_template(value, is_output=is_output) for name, value in template.items()})
    if is_list(template):
        return _list([compile_template(value, is_output=is_output) for value in template])
    constant = _encode(template)
    return lambda _values, _own: constant


def evaluate(expression: Expression, values: InstanceValues, own: ItemVariables = None) -> Any:
    """The value of an expression for this instance."""
    return expression.evaluate(values.of(expression.names, own))


def bounded(data: bytes, what: str, limit: PayloadLimit) -> bytes:
    """What a flow has put together, within the limits of any payload: its parts may all be, and it not."""
    if len(data) < SHORTEST_SUSPECT_BYTES and ESCAPED_NUL not in data:
        return data
    limit.checked(data, what)
    if not is_within_bounds(data):
        raise PayloadError(f"{what} is nested too deep, or has a text with the character U+0000")
    return data


def joined(parts: Iterable[bytes], what: str) -> bytes:
    """The parts of a list or a map. More than a payload may weigh is not even put together."""
    kept: list[bytes] = []
    size = 0
    for part in parts:
        size += len(part) + 1
        if size > PAYLOAD_LIMIT_BYTES:
            raise PayloadTooLarge(f"{what} has more than {PAYLOAD_LIMIT_BYTES:,} bytes, which is the limit")
        kept.append(part)
    return b",".join(kept)


def _expression(text: str) -> CompiledTemplate:
    expression = compile_expression(text)
    node = text.strip().removesuffix(OUTPUT)
    if node in expression.names and node not in NO_NODES and text.strip() == node + OUTPUT:
        return lambda values, _own: values.output(node)  # by far the most frequent, and nothing has to be decoded

    def fill(values: InstanceValues, own: ItemVariables) -> bytes:
        value = evaluate(expression, values, own)
        try:
            return _encode(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ExpressionError(f"{text}: its value cannot be stored as JSON: {error}") from None

    return fill


def _or_null(text: str) -> CompiledTemplate:
    fill = _expression(text)
    names = compile_expression(text).names - set(NO_NODES)

    def fill_or_null(values: InstanceValues, own: ItemVariables) -> bytes | msgspec.Raw:
        try:
            return fill(values, own)
        except ExpressionError:
            if any(values.has_no_output(name) for name in names):
                return NULL
            raise

    return fill_or_null


def _map(fields: dict[str, CompiledTemplate]) -> CompiledTemplate:
    labelled = [(_encode(name) + b":", fill) for name, fill in fields.items()]
    if len(labelled) == 1:
        label, only = labelled[0]
        return lambda values, own: b"{%b%b}" % (label, bytes(only(values, own)))
    return lambda values, own: b"{%b}" % joined((label + bytes(fill(values, own)) for label, fill in labelled), A_VALUE)


def _list(items: list[CompiledTemplate]) -> CompiledTemplate:
    return lambda values, own: b"[%b]" % joined((bytes(fill(values, own)) for fill in items), A_VALUE)
