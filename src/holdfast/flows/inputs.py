"""The input of a flow: one JSON object by the names of its fields, as the arguments of a function are stored."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.core.flow.definition import FlowDefinition
from holdfast.errors import ArgumentError
from holdfast.flows.shapes import is_list, is_map
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
"""What a declared type takes. A boolean is no number, though Python thinks so."""


def read_input(definition: FlowDefinition, data: bytes) -> Any:
    """The input that was stored for a flow, checked. An array is that of a caller who knew the flow only by name."""
    try:
        given: Any = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ArgumentError(f"the input of flow {definition.name!r} is no JSON: {error}") from error
    if is_list(given):
        if len(given) > 1:
            raise ArgumentError(f"flow {definition.name!r} takes one input, not {len(given)}")
        given = given[0] if given else {}
    return _checked(definition, given)


def _checked(definition: FlowDefinition, given: Any) -> Any:
    fields = definition.input
    if not fields:
        return given
    said = f"flow {definition.name!r} takes {{{', '.join(f'{name}: {kind}' for name, kind in fields.items())}}}"
    if not is_map(given):
        raise ArgumentError(f"{said}, not {type(given).__name__}")
    if missing := [name for name in fields if name not in given]:
        raise ArgumentError(f"{said}; {', '.join(missing)} is missing")
    if unknown := [name for name in given if name not in fields]:
        raise ArgumentError(f"{said}; it has no {', '.join(unknown)}")
    for name, kind in fields.items():
        expected, value = _JSON_TYPES.get(kind), given[name]
        is_flag = isinstance(value, bool) and kind in ("integer", "number")
        if expected is not None and (not isinstance(value, expected) or is_flag):
            raise ArgumentError(f"{said}; {name} is {value!r}"[:400])
    return given


class FlowSignature(Signature):
    """What a flow takes and gives: JSON, with the fields that it declares."""

    __slots__ = ("_definition",)

    def __init__(self, definition: FlowDefinition) -> None:
        self._definition = definition
        self.name = definition.name
        self.yields = False

    def encode_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> bytes:
        """One input, as a map, a dataclass or the like; or its fields by name."""
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
        """The payload that this library itself would have written: for JSON that was written by hand."""
        return self.encode_arguments((read_input(self._definition, data),))

    def encode_result(self, value: Any) -> bytes:
        """The result as JSON."""
        return encode(value, what=f"the output of flow {self.name!r}")

    def decode_result(self, data: bytes | msgspec.Raw) -> Any:
        """The result."""
        return decode(bytes(data))
