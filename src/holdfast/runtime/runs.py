"""Makes the runs of workflow code, and watches the first turns of every workflow more closely."""

from contextlib import AbstractContextManager
from typing import Any, Final

from holdfast.authoring.registry import Registry
from holdfast.replay.guard import Guard
from holdfast.replay.run import Identity, WorkflowRun

STRICT_TURNS: Final = 20
"""Of every workflow the first so many turns in this process are watched for clocks and randomness, too."""


class RunMaker:
    """One for each worker."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._guard = Guard()
        self._watched: dict[str, int] = {}

    def new_run(self, instance_id: str, workflow: str, execution: int, payloads: dict[str, bytes]) -> WorkflowRun:
        """The code of one execution, before anything was applied to it."""
        return WorkflowRun(
            self._registry.workflow(workflow),
            Identity(instance_id, workflow, execution),
            self._registry.resolve,
            lambda: self._guarded(workflow),
            payloads,
        )

    def _guarded(self, workflow: str) -> AbstractContextManager[Any]:
        watched = self._watched.get(workflow, 0)
        if watched < STRICT_TURNS:
            self._watched[workflow] = watched + 1
        return self._guard.turn(strict=watched < STRICT_TURNS)
