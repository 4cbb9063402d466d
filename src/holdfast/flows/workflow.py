"""A flow is a workflow: it is registered, started, run and awaited like one written as code."""

from collections.abc import Callable
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any

from holdfast.authoring.workflow import Workflow
from holdfast.core.flow.definition import FlowDefinition, RunAction, first_key, hash_of
from holdfast.errors import UnknownActivity, UsageError
from holdfast.flows.arguments import misfits
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
        """Whether all its activities are registered where it is to run, and take what they are given.

        Everything that is wrong is told at once.
        """
        problems: list[str] = []
        for node in self.definition.nodes:
            if isinstance(node.action, RunAction):
                try:
                    found = activity(node.action.activity)
                except UnknownActivity as error:
                    problems.append(f"{node.id}: {error}")
                else:
                    if found.yields:
                        problems.append(f"{node.id}: {found.name} yields values, which only workflow code can take")
                    place = f"{node.id} (line {node.line})" if node.line else node.id
                    several = misfits(node.action.activity, signature(found.fn), node.action.input)
                    problems += [f"{place}: {misfit.message}" for misfit in several]
        if problems:
            raise UsageError(f"flow {self.name!r} cannot run here: {'; '.join(problems)}")

    if not TYPE_CHECKING:

        @cached_property
        def signature(self) -> FlowSignature:
            return FlowSignature(self.definition)
