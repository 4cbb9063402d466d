"""Makes the runs of workflow code, and watches the first turns of every workflow more closely."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from holdfast.authoring.registry import Registry
from holdfast.replay.guard import Guard
from holdfast.replay.run import Identity, WorkflowRun
from holdfast.runtime.surroundings import Surroundings
from holdfast.runtime.watchdog import Watchdog

STRICT_TURNS: Final = 20
"""Of every workflow the first so many turns in this process are watched for clocks and randomness, too."""


class RunMaker:
    """One for each worker, made on the thread that runs its turns. `stuck` hears of code that cannot be stopped."""

    def __init__(self, registry: Registry, surroundings: Surroundings, stuck: Callable[[], None]) -> None:
        self._registry = registry
        self._elapsed_ms = surroundings.providers.elapsed_ms
        self._limit_ms = limit_ms = surroundings.turn_limit_ms
        self._guard = Guard()
        self._relaxed = self._guard.turn()
        self._watchdog: Watchdog | None = None
        if surroundings.watch_turns:
            self._watchdog = Watchdog(limit_ms, guilty=self._guard.guilty_frame, stuck=stuck)
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
            watch=None if self._watchdog is None else self._watchdog.watch(workflow),
        )

    def stop(self) -> None:
        """Make no more runs, and watch none."""
        if self._watchdog is not None:
            self._watchdog.stop()

    def _new_deadline(self) -> Callable[[], bool]:
        """G12: a message may keep the code busy only so long. Asked every few hundred steps of its loop."""
        ends_at_ms = self._elapsed_ms() + self._limit_ms
        return lambda: self._elapsed_ms() > ends_at_ms

    def _guarded(self, workflow: str) -> AbstractContextManager[Any]:
        watched = self._watched.get(workflow, 0)
        if watched >= STRICT_TURNS:
            return self._relaxed
        self._watched[workflow] = watched + 1
        return self._guard.turn(strict=True)
