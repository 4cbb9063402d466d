"""A flow is a workflow: it is registered, started, run and awaited like one written as code."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

from holdfast.authoring.workflow import Workflow
from holdfast.core.flow.definition import FlowDefinition, hash_of
from holdfast.errors import UsageError
from holdfast.flows.inputs import FlowSignature


async def _no_code() -> None:
    raise UsageError("a flow has no code of its own to run")


class FlowWorkflow(Workflow[..., Any]):
    """A workflow whose decisions come from a graph."""

    is_flow = True

    def __init__(self, name: str, version: str = "") -> None:
        super().__init__(_no_code, name, version)

    @property
    def definition(self) -> FlowDefinition:
        """What the flow says, checked."""
        raise NotImplementedError

    @cached_property
    def hash(self) -> str:
        """The name of exactly this flow: whatever is changed in it, the hash is another."""
        return hash_of(self.definition)

    if TYPE_CHECKING:
        signature: FlowSignature
    else:

        @cached_property
        def signature(self) -> FlowSignature:
            return FlowSignature(self.definition)
