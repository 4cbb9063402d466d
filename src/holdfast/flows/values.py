"""What the expressions of a flow see: for each node its input, output and error, as JSON."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.event import Payload
from holdfast.core.flow.book import FlowState
from holdfast.payloads.failures import Failure

if TYPE_CHECKING:
    from holdfast.flows.compiled import CompiledFlow

ITEM: Final = "item"
INDEX: Final = "index"
FLOW: Final = "flow"
NULL: Final = b"null"

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_decode_failure: Final = msgspec.json.Decoder(Failure).decode


class InstanceValues:
    """The values of one instance. What no expression asks for is never decoded.

    It has the books of a run and not the run, which has it: the two would wait for the garbage collector.
    """

    __slots__ = ("_book", "_flow", "_id", "_input", "_payloads", "_seen")

    def __init__(self, flow: "CompiledFlow", instance_id: str, book: FlowState, payloads: Mapping[str, bytes]) -> None:
        self._flow, self._id, self._book, self._payloads = flow, instance_id, book, payloads
        self._input: Any = None
        self._seen: dict[str, tuple[Payload | None, Any]] = {}

    def set_input(self, value: Any) -> None:
        """The input of the flow, which is that of its trigger."""
        self._input = value

    def output(self, node: str) -> bytes | msgspec.Raw:
        """The output of a node as it is stored; null where it has none."""
        payload = self._book.outputs.get(node)
        if payload is None:
            return _encode(self._input) if node == self._flow.graph.trigger else NULL
        return self._data_of(payload)

    def has_no_output(self, node: str) -> bool:
        """Whether a node has not completed: it failed, was skipped, or has not run."""
        return node != self._flow.graph.trigger and node not in self._book.outputs

    def of(self, names: Iterable[str], own: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The variables of these names. `own` has those of an item."""
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
        book = self._book
        failure = book.errors.get(node)
        is_trigger = node == self._flow.graph.trigger
        return {
            "input": self._input if is_trigger else None,
            "output": self._input if is_trigger else self._decoded(node, book.outputs.get(node)),
            "error": None if failure is None else self._error(failure),
        }

    def _decoded(self, node: str, payload: Payload | None) -> Any:
        """Decoded once, however often it is asked for."""
        known = self._seen.get(node)
        if known is not None and known[0] is payload:
            return known[1]
        value = None if payload is None else _decode(self._data_of(payload))
        self._seen[node] = (payload, value)
        return value

    def _error(self, payload: Payload) -> dict[str, str]:
        failure = _decode_failure(self._data_of(payload))
        return {"type": failure.type.rpartition(".")[2], "message": failure.message}
