"""A flow as a workflow: it is registered, started, run and awaited like a workflow in code.

The input of a flow is one JSON object by the names of its fields, stored as the arguments of a function are.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.authoring.workflow import Workflow
from holdfast.core.flow.definition import (
    FlowDefinition,
    RunAction,
    definition_hash,
    first_key,
    is_list,
    is_map,
)
from holdfast.errors import ArgumentError, UnknownActivity, UsageError
from holdfast.flows.language.checker import argument_mismatches
from holdfast.payloads.encoding import decode, encode
from holdfast.payloads.signature import Arguments, Signature

_JSON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
"""The Python types of each declared type. A boolean is not a number, although `bool` is a subclass of `int`."""


def read_input(definition: FlowDefinition, data: bytes) -> Any:
    """The stored input of a flow, checked. An array comes from a caller that knows the flow only by its name."""
    try:
        given: Any = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ArgumentError(f"the input of flow {definition.name!r} is not valid JSON: {error}") from error
    if is_list(given):
        if len(given) > 1:
            raise ArgumentError(f"flow {definition.name!r} takes one input, not {len(given)}")
        given = given[0] if given else {}
    return _checked(definition, given)


def _checked(definition: FlowDefinition, given: Any) -> Any:
    fields = definition.input
    if not fields:
        return given
    takes = f"flow {definition.name!r} takes {{{', '.join(f'{name}: {kind}' for name, kind in fields.items())}}}"
    if not is_map(given):
        raise ArgumentError(f"{takes}, not {type(given).__name__}")
    if missing := [name for name in fields if name not in given]:
        raise ArgumentError(f"{takes}; {', '.join(missing)} is missing")
    if unknown := [name for name in given if name not in fields]:
        raise ArgumentError(f"{takes}; it has no {', '.join(unknown)}")
    for name, kind in fields.items():
        expected = _JSON_TYPES.get(kind)
        value = given[name]
        is_flag = isinstance(value, bool) and kind in ("integer", "number")
        if expected is not None and (not isinstance(value, expected) or is_flag):
            raise ArgumentError(f"{takes}; {name} is {value!r}"[:400])
    return given


class FlowSignature(Signature):
    """The input of a flow, with the fields that it declares, and its output, as JSON."""

    __slots__ = ("_definition",)

    def __init__(self, definition: FlowDefinition) -> None:
        self._definition = definition
        self.name = definition.name
        self.yields = False

    def encode_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> bytes:
        """The payload of one input, such as a mapping or a dataclass, or of its fields by name."""
        if len(args) > 1 or (args and kwargs):
            raise ArgumentError(f"flow {self.name!r} takes one input, such as {{'name': value}}, or its fields by name")
        data = encode(args[0] if args else dict(kwargs or {}), what=f"the input of flow {self.name!r}")
        data = data if data[:1] == b"{" else b"[%b]" % data
        if self._definition.input:
            read_input(self._definition, data)
        return data

    def decode_arguments(self, data: bytes) -> Arguments:
        """The input, checked."""
        return (read_input(self._definition, data),), {}

    def normalise(self, data: bytes) -> bytes:
        """The payload that this library writes for the same input: for JSON that was written by hand."""
        return self.encode_arguments((read_input(self._definition, data),))

    def encode_result(self, value: Any) -> bytes:
        """The result as JSON."""
        return encode(value, what=f"the output of flow {self.name!r}")

    def decode_result(self, data: bytes | msgspec.Raw) -> Any:
        """The result."""
        return decode(bytes(data))


async def _no_code() -> None:
    raise UsageError("a flow has no code of its own to run")


class FlowWorkflow(Workflow[..., Any]):
    """A workflow that is a graph."""

    is_flow = True

    def __init__(self, name: str, version: str = "") -> None:
        super().__init__(_no_code, name, version)

    @property
    def definition(self) -> FlowDefinition:
        """The definition, checked."""
        raise NotImplementedError

    @cached_property
    def hash(self) -> str:
        """The hash of the definition: any change of the flow changes it."""
        return definition_hash(self.definition)

    @property
    def queues(self) -> tuple[str, ...]:
        runs = [node.action for node in self.definition.nodes if isinstance(node.action, RunAction)]
        return tuple(sorted({action.rules.queue for action in runs if action.rules.queue is not None}))

    @property
    def first_key(self) -> str:
        return first_key(self.definition)

    @property
    def fingerprint(self) -> str:
        return self.hash

    def check_against(self, activity: Callable[[str], Any]) -> None:
        """Check that all its activities are registered and accept the arguments that the flow gives.

        One `UsageError` has all problems.
        """
        problems: list[str] = []
        consumers = {node.stream: node.id for node in self.definition.nodes if node.stream}
        for node in self.definition.nodes:
            if isinstance(node.action, RunAction):
                try:
                    found = activity(node.action.activity)
                except UnknownActivity as error:
                    problems.append(f"{node.id}: {error}")
                else:
                    place = f"{node.id} (line {node.line})" if node.line else node.id
                    mismatches = argument_mismatches(node.action.activity, signature(found.fn), node.action.input)
                    problems += [f"{place}: {mismatch.message}" for mismatch in mismatches]
                    if not found.yields and node.id in consumers:
                        consumer = consumers[node.id]
                        problems.append(f"{place}: {found.name} yields no values; {consumer} has its responses in each")
        if problems:
            raise UsageError(f"flow {self.name!r} cannot run here: {'; '.join(problems)}")

    if not TYPE_CHECKING:

        @cached_property
        def signature(self) -> FlowSignature:
            return FlowSignature(self.definition)
