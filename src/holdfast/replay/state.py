"""State values, status and wait conditions of a run. Made when the code first uses one of them.

Replay repeats the assignments of the code, so that the history has none of the values; those of an earlier execution
come with the start (G4). They are visible outside once the turn is committed (G11). Attributes are kept in the same way
(F2).

A wait condition suspends a task until a predicate is true. The predicates are evaluated after every step of the
workflow. A step is one input, applied until the code waits again: replay takes the same steps.
"""

from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from inspect import iscoroutine
from typing import Final, NamedTuple

import msgspec

from holdfast.core.attributes import StoredAttribute
from holdfast.errors import TurnTooLong, UsageError
from holdfast.replay.context import RunContext
from holdfast.replay.loop.event_loop import WorkflowLoop
from holdfast.replay.loop.tasks import Evicted, WorkflowFuture

MAX_ROUNDS: Final = 100_000
"""Waiters that one input may wake, one after the other."""


class WaitCondition(NamedTuple):
    """A task that waits for a predicate."""

    predicate: Callable[[], object]
    future: WorkflowFuture
    context: Context


class WaitConditions:
    """The waiters of one run, oldest first. One is woken at a time: it may make the condition of the next one false."""

    __slots__ = ("_loop", "_waiting", "_woke")

    def __init__(self, loop: WorkflowLoop) -> None:
        self._loop = loop
        self._waiting: list[WaitCondition] = []
        self._woke = False

    async def wait(self, predicate: Callable[[], object]) -> None:
        """Return once the predicate is true; at once if it is."""
        if is_true(predicate):
            return
        condition = WaitCondition(predicate, self._loop.create_future(), copy_context())
        self._waiting.append(condition)
        try:
            await condition.future
        finally:
            if condition in self._waiting:
                self._waiting.remove(condition)

    def settle(self, deadline: Callable[[], bool] | None) -> bool:
        """Wake waiters until no condition is true. Whether a waiter was woken."""
        for rounds in range(MAX_ROUNDS):
            if not self._waiting:
                return rounds > 0
            self._woke = False
            self._loop.call_soon(self._wake_next)
            self._loop.run_until_idle(deadline=deadline)
            if not self._woke:
                return rounds > 0
        raise TurnTooLong(f"conditions that make each other true woke {MAX_ROUNDS} waiters in one turn")

    def _wake_next(self) -> None:
        for condition in list(self._waiting):
            if condition.future.done():
                continue
            try:
                found = condition.context.run(is_true, condition.predicate)
            except (Evicted, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - raised in the waiting task
                condition.future.set_exception(error)
            else:
                if not found:
                    continue
                condition.future.set_result(None)
            self._waiting.remove(condition)
            self._woke = True
            return


def is_true(predicate: Callable[[], object]) -> bool:
    """Evaluate a predicate, which must be a plain function."""
    found = predicate()
    if iscoroutine(found):
        found.close()
        raise UsageError("the predicate of hf.wait_until must be a plain function, and this one has to be awaited")
    return bool(found)


class WorkflowState:
    """The state values of one run, and its wait conditions."""

    __slots__ = ("_context", "conditions", "values")

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self.conditions = WaitConditions(context.loop)
        self.values: dict[str, bytes] = {}
        """The encoded values, and under the empty key the status. Changed by `set` and `delete` only."""

    def restore(self, values: Mapping[str, msgspec.Raw]) -> None:
        """Begin with the values of the execution before this one."""
        self.values = {key: bytes(value) for key, value in values.items()}

    def set(self, key: str, value: bytes) -> None:
        self._context.loop.check_evicted()
        self.values[key] = value
        self._context.output.ensure_effects().set_state_value(key, value)

    def delete(self, key: str) -> None:
        self._context.loop.check_evicted()
        self.values.pop(key, None)
        self._context.output.ensure_effects().set_state_value(key, None)


class AttributeValues:
    """The attributes of one run."""

    __slots__ = ("_context", "values")

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self.values: dict[str, StoredAttribute] = {}
        """Changed by `set` and `delete` only."""

    def restore(self, values: Mapping[str, StoredAttribute]) -> None:
        """Begin with the attributes of the start."""
        self.values = dict(values)

    def receive(self, changes: Mapping[str, StoredAttribute | None]) -> None:
        """Apply the change of a client. The turn writes it again, after assignments of turns that had not read it."""
        effects = self._context.output.ensure_effects()
        for name, value in changes.items():
            if value is None:
                self.values.pop(name, None)
            else:
                self.values[name] = value
            effects.set_attribute(name, value)

    def set(self, name: str, value: StoredAttribute) -> None:
        self._context.loop.check_evicted()
        self.values[name] = value
        self._context.output.ensure_effects().set_attribute(name, value)

    def delete(self, name: str) -> None:
        self._context.loop.check_evicted()
        self.values.pop(name, None)
        self._context.output.ensure_effects().set_attribute(name, None)
