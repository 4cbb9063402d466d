"""Runs of flows. What flows need is loaded with the first of them: most programs have none."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from holdfast.authoring.registry import Registry
from holdfast.authoring.workflow import Workflow
from holdfast.core.history import Started, decode_event, decode_events
from holdfast.core.run import ExecutionId, SliceRunner
from holdfast.errors import FlowError, HistoryMismatch
from holdfast.payloads.limits import PayloadLimit
from holdfast.storage.contract import Store
from holdfast.storage.members.instances import SaveFlow
from holdfast.storage.records import HistoryRow, InboxRow

if TYPE_CHECKING:
    from holdfast.flows.compiled_flow import CompiledFlow
    from holdfast.flows.run import FlowRun
    from holdfast.flows.workflow import FlowWorkflow
    from holdfast.replay.run import WorkflowRun


AnyRun: TypeAlias = "WorkflowRun | FlowRun"
_VERSION: Final = b'"flow":"'
"""Is in the start of every flow. Where it is not, nothing needs to be decoded."""


class FlowRunFactory:
    """Makes runs of flows, each on the version that its instance was started with."""

    def __init__(self, registry: Registry, limit: PayloadLimit | None = None) -> None:
        self._registry = registry
        self._limit = limit or PayloadLimit()
        self._compiled: dict[str, CompiledFlow] = {}

    def new_run(
        self,
        workflow: Workflow[..., Any],
        identity: ExecutionId,
        payloads: dict[str, bytes],
        flow: str,
        watch: SliceRunner | None = None,
    ) -> "FlowRun":
        """A run of the version with this hash, or of the one that is registered."""
        from holdfast.flows.run import FlowRun  # noqa: PLC0415 - see above

        compiled = self._compiled.get(flow) or self._current(cast("FlowWorkflow", workflow))
        return FlowRun(compiled, identity, self._registry.resolve, payloads, self._limit, watch=watch)

    def has(self, workflow: str, digest: str) -> bool:
        """Whether a version is ready to run without a look into the store. Code has none."""
        return not digest or digest in self._compiled or self._registry.workflows[workflow].fingerprint == digest

    async def fetch(
        self, store: Store, workflow: str, history: Sequence[HistoryRow], inbox: Sequence[InboxRow] = ()
    ) -> str:
        """The version that an instance stays with, ready to run; empty if its first turn is yet to choose it.

        What is raised besides a `StoreError` says why that version cannot run here.
        """
        is_flow = self._registry.workflow(workflow).is_flow
        told = history[0].events if history else inbox[0].event if inbox else b""  # its start is the first of all
        if not told or not (is_flow or _VERSION in told):
            return ""
        first = decode_events(told)[0] if history else decode_event(told)
        if not isinstance(first, Started):
            return ""
        digest = first.flow
        if digest and not is_flow:
            raise HistoryMismatch(f"{_other_kind(workflow, 'a flow', 'code')} (the flow has the version {digest})")
        if history and not digest:
            raise HistoryMismatch(_other_kind(workflow, "code", "a flow"))
        if digest and digest not in self._compiled:
            known = self._registry.workflow(workflow)
            if known.fingerprint == digest:  # the same flow, with the lines of its file as it is now
                self._current(cast("FlowWorkflow", known))
                return digest
            definition = await store.read_flow(digest)
            if definition is None:
                raise FlowError(f"the flow {workflow!r} of version {digest} is not in the store")
            self._add(digest, definition)
        return digest

    def definitions(self) -> list[SaveFlow]:
        """The flows that are registered, to be kept in the store."""
        flows = [cast("FlowWorkflow", each) for each in self._registry.workflows.values() if each.is_flow]
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
        f"it goes on where {workflow!r} is {before}, or terminate it"
    )


def saved(flow: "FlowWorkflow") -> SaveFlow:
    """A flow as it is kept."""
    from holdfast.core.flow.definition import encode_definition  # noqa: PLC0415 - see above

    return SaveFlow(hash=flow.hash, name=flow.name, version=flow.version, definition=encode_definition(flow.definition))
