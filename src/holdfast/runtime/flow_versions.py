"""The versions of flows that can run in this process, compiled on first use.

An instance stays with the version that it was started with. The modules of flows are imported with the first flow:
most programs have none.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from holdfast.authoring.registry import Registry
from holdfast.authoring.workflow import Workflow
from holdfast.core.history import FROM_OUTSIDE, Started, decode_event, decode_events
from holdfast.errors import FlowError, HistoryMismatch
from holdfast.storage.contract import Store
from holdfast.storage.members.instances import SaveFlow
from holdfast.storage.records import HistoryRow, InboxRow

if TYPE_CHECKING:
    from holdfast.flows.compiled_flow import CompiledFlow
    from holdfast.flows.workflow import FlowWorkflow


_VERSION: Final = b'"flow":"'
"""Part of the encoded start of every flow. A start without it needs no decoding."""


class FlowVersions:
    """The compiled versions by hash: registered ones, and those that were fetched from the store."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._compiled: dict[str, CompiledFlow] = {}

    def compiled(self, workflow: Workflow[..., Any], digest: str) -> "CompiledFlow":
        """The version with this hash, which `fetch` has made ready, or the registered version."""
        return self._compiled.get(digest) or self._current(cast("FlowWorkflow", workflow))

    def has(self, workflow: str, digest: str) -> bool:
        """Whether a version can run without `fetch`. Code has no versions: its hash is empty."""
        return not digest or digest in self._compiled or self._registry.workflows[workflow].fingerprint == digest

    async def fetch(
        self, store: Store, workflow: str, history: Sequence[HistoryRow], inbox: Sequence[InboxRow] = ()
    ) -> str:
        """Make the version of an instance ready to run. Its hash; empty if the first turn is yet to choose it.

        Any error besides a `StoreError` is the reason why that version cannot run here.
        """
        is_flow = self._registry.workflow(workflow).is_flow
        first_row = history[0].events if history else inbox[0].event if inbox else b""  # the start comes first
        if not first_row or not (is_flow or _VERSION in first_row):
            return ""
        events = decode_events(first_row) if history else [decode_event(first_row)]
        first = events[0]
        if not isinstance(first, Started):
            return ""
        digest = first.flow
        if digest and not is_flow:
            raise HistoryMismatch(f"{_other_kind(workflow, 'a flow', 'code')} (the flow has the version {digest})")
        if not digest and isinstance(events[-1], FROM_OUTSIDE):
            return ""  # it was closed after its claim, without a turn
        if history and not digest:
            raise HistoryMismatch(_other_kind(workflow, "code", "a flow"))
        if digest and digest not in self._compiled:
            known = self._registry.workflow(workflow)
            if known.fingerprint == digest:  # the same flow, with the current line numbers of its file
                self._current(cast("FlowWorkflow", known))
                return digest
            definition = await store.read_flow(digest)
            if definition is None:
                raise FlowError(f"the flow {workflow!r} of version {digest} is not in the store")
            self._add(digest, definition)
        return digest

    def definitions(self) -> list[SaveFlow]:
        """The registered flows, to be saved in the store."""
        flows = [cast("FlowWorkflow", each) for each in self._registry.definitions if each.is_flow]
        return [saved(flow) for flow in flows]

    def _current(self, workflow: "FlowWorkflow") -> "CompiledFlow":
        known = self._compiled.get(workflow.hash)
        return known or self._add(workflow.hash, saved(workflow).definition)

    def _add(self, digest: str, definition: bytes) -> "CompiledFlow":
        from holdfast.core.flow.definition import decode_definition  # noqa: PLC0415 - see above
        from holdfast.flows.compiled_flow import CompiledFlow  # noqa: PLC0415

        compiled = CompiledFlow(decode_definition(definition), digest, self._registry.activity_called)
        self._compiled[digest] = compiled
        return compiled


def _other_kind(workflow: str, before: str, now: str) -> str:
    return (
        f"this instance was started as {before}, and {workflow!r} is {now} here; "
        f"it continues where {workflow!r} is {before}, or terminate it"
    )


def saved(flow: "FlowWorkflow") -> SaveFlow:
    """A flow as the store saves it."""
    from holdfast.core.flow.definition import encode_definition  # noqa: PLC0415 - see above

    return SaveFlow(hash=flow.hash, name=flow.name, version=flow.version, definition=encode_definition(flow.definition))
