"""Templates: JSON in which every string is an expression, filled with the values of an instance.

`InstanceValues` has the variables of expressions: the input, output and error of each node, as JSON.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from holdfast.core.flow.definition import FlowDefinition, is_list, is_map
from holdfast.core.flow.graph import Graph
from holdfast.core.flow.state import FlowState
from holdfast.core.history import Payload
from holdfast.errors import ExpressionError, PayloadError, PayloadTooLarge
from holdfast.flows.expressions.expression import Expression, compile_expression
from holdfast.payloads.failures import RecordedFailure
from holdfast.payloads.limits import (
    ESCAPED_NUL,
    PAYLOAD_LIMIT_BYTES,
    SHORTEST_SUSPECT_BYTES,
    PayloadLimit,
    is_within_bounds,
)

ITEM: Final = "item"
INDEX: Final = "index"
FLOW: Final = "flow"
NULL: Final = b"null"

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_decode_failure: Final = msgspec.json.Decoder(RecordedFailure).decode


class FlowOfValues(Protocol):
    """The parts of a compiled flow that the values of its instances depend on."""

    @property
    def definition(self) -> FlowDefinition: ...
    @property
    def graph(self) -> Graph: ...


class InstanceValues:
    """The values of one instance. Payloads are decoded when an expression first reads them.

    It refers to the state of a run, not to the run, which refers to it: a reference cycle would delay its release.
    """

    __slots__ = ("_flow", "_id", "_input", "_payloads", "_seen", "_state")

    def __init__(self, flow: FlowOfValues, instance_id: str, state: FlowState, payloads: Mapping[str, bytes]) -> None:
        self._flow = flow
        self._id = instance_id
        self._state = state
        self._payloads = payloads
        self._input: Any = None
        self._seen: dict[str, tuple[Payload | None, Any]] = {}

    def set_input(self, value: Any) -> None:
        """Set the input of the flow, which is that of its trigger."""
        self._input = value

    def output(self, node: str) -> bytes | msgspec.Raw:
        """The stored output of a node; null if it has none."""
        payload = self._state.outputs.get(node)
        if payload is None:
            return _encode(self._input) if node == self._flow.graph.trigger else NULL
        return self._data_of(payload)

    def has_no_output(self, node: str) -> bool:
        """Whether a node failed, was skipped or has not run."""
        return node != self._flow.graph.trigger and node not in self._state.outputs

    def of(self, names: Iterable[str], own: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The variables with these names. `own` has those of an item."""
        found: dict[str, Any] = {}
        for name in names:
            if own is not None and name in own:
                found[name] = own[name]
            elif name == FLOW:
                found[name] = self._of_flow()
            else:
                found[name] = self._node(name)
        return found

    def _data_of(self, payload: Payload) -> bytes | msgspec.Raw:
        return self._payloads[payload.reference] if payload.reference else payload.data

    def _of_flow(self) -> dict[str, str]:
        definition = self._flow.definition
        return {"id": self._id, "name": definition.name, "version": definition.version}

    def _node(self, node: str) -> dict[str, Any]:
        state = self._state
        failure = state.errors.get(node)
        is_trigger = node == self._flow.graph.trigger
        return {
            "input": self._input if is_trigger else None,
            "output": self._input if is_trigger else self._decoded(node, state.outputs.get(node)),
            "error": None if failure is None else self._error(failure),
        }

    def _decoded(self, node: str, payload: Payload | None) -> Any:
        """The decoded output of a node; each payload is decoded once."""
        known = self._seen.get(node)
        if known is not None and known[0] is payload:
            return known[1]
        value = None if payload is None else _decode(self._data_of(payload))
        self._seen[node] = (payload, value)
        return value

    def _error(self, payload: Payload) -> dict[str, str]:
        failure = _decode_failure(self._data_of(payload))
        return {"type": failure.type.rpartition(".")[2], "message": failure.message}


OUTPUT: Final = ".output"
NO_NODES: Final = (ITEM, INDEX, FLOW)

A_VALUE: Final = "a value that a flow composes"

ItemVariables = Mapping[str, Any] | None
"""The variables of an item of a fan-out."""


class CompiledTemplate(Protocol):
    """A compiled template."""

    def __call__(self, values: InstanceValues, own: ItemVariables, /) -> bytes | msgspec.Raw: ...


def compile_template(template: object, *, is_output: bool = False) -> CompiledTemplate:
    """Compile a template. A value that is not JSON is an error when it is filled.

    In the output of a flow, an expression that fails because it reads a node without an output (it failed and was
    caught, or was skipped) is null: the work of the flow is done, and the output must not fail it.
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
    """`data`, checked against the limits of a payload: the parts of a value can be within them, and the value not."""
    if len(data) < SHORTEST_SUSPECT_BYTES and ESCAPED_NUL not in data:
        return data
    limit.checked(data, what)
    if not is_within_bounds(data):
        raise PayloadError(f"{what} is nested too deep, or has a string with the character U+0000")
    return data


def joined(parts: Iterable[bytes], what: str) -> bytes:
    """The parts of a list or a mapping, joined up to the limit of a payload."""
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
        return lambda values, _own: values.output(node)  # the most frequent template, without decoding

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
