"""Makes the runs of workflow code, and watches the first turns of every workflow more closely."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from holdfast.authoring.registry import Registry
from holdfast.replay.guard import Guard
from holdfast.replay.run import Identity, WorkflowRun

STRICT_TURNS: Final = 20
"""Of every workflow the first so many turns in this process are watched for clocks and randomness, too."""


LONGEST_MESSAGE_MS: Final = 10_000
"""What one message may take. Workflow code that works longer belongs into an activity."""


class RunMaker:
    """One for each worker."""

    def __init__(self, registry: Registry, elapsed_ms: Callable[[], int]) -> None:
        self._registry = registry
        self._elapsed_ms = elapsed_ms
        self._guard = Guard()
        self._relaxed = self._guard.turn()
        self._watched: dict[str, int] = {}

    def new_run(self, instance_id: str, workflow: str, execution: int, payloads: dict[str, bytes]) -> WorkflowRun:
        """The code of one execution, before anything was applied to it."""
        return WorkflowRun(
            self._registry.workflow(workflow),
            Identity(instance_id, workflow, execution),
            self._registry.resolve,
            lambda: self._guarded(workflow),
            payloads,
            new_deadline=self._new_deadline,
        )

    def _new_deadline(self) -> Callable[[], bool]:
        """G12: a message may keep the code busy only so long. Asked every few hundred steps of its loop."""
        ends_at_ms = self._elapsed_ms() + LONGEST_MESSAGE_MS
        return lambda: self._elapsed_ms() > ends_at_ms

    def _guarded(self, workflow: str) -> AbstractContextManager[Any]:
        watched = self._watched.get(workflow, 0)
        if watched >= STRICT_TURNS:
            return self._relaxed
        self._watched[workflow] = watched + 1
        return self._guard.turn(strict=True)
