"""What a run shows of itself: its key-values and its status. Made when the code first uses any of it.

Replay repeats what the code set, so nothing of it stands in the history; what an earlier execution kept comes with the
start (G4). Outside it shows once the turn is committed (G11).

Waiting for a condition: tasks sleep until a predicate is true, looked at after every step of the workflow.

A step is one input, applied until the code waits again. Replay takes the same steps, so it looks at the same moments.
"""

from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from inspect import iscoroutine
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from holdfast.errors import TurnTooLong, UsageError
from holdfast.replay.loop.tasks import Evicted

if TYPE_CHECKING:
    from holdfast.replay.loop.event_loop import WorkflowLoop
    from holdfast.replay.loop.tasks import WorkflowFuture


MAX_ROUNDS: Final = 100_000
"""How many waiters one input may wake, one after the other."""


class WaitCondition(NamedTuple):
    """One waiter."""

    predicate: Callable[[], object]
    future: "WorkflowFuture"
    context: Context


class WaitConditions:
    """The waiters of one run, oldest first. One is woken at a time: what it does may make it false for the next."""

    def __init__(self, loop: "WorkflowLoop") -> None:
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
        """Wake those whose condition has come true, until nobody's has. Whether anybody was woken."""
        for rounds in range(MAX_ROUNDS):
            if not self._waiting:
                return rounds > 0
            self._woke = False
            self._loop.call_soon(self._look)
            self._loop.run_until_idle(deadline=deadline)
            if not self._woke:
                return rounds > 0
        raise TurnTooLong(f"conditions that make each other true woke {MAX_ROUNDS} waiters in one turn")

    def _look(self) -> None:
        for condition in list(self._waiting):
            if condition.future.done():
                continue
            try:
                found = condition.context.run(is_true, condition.predicate)
            except (Evicted, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                condition.future.set_exception(error)
            else:
                if not found:
                    continue
                condition.future.set_result(None)
            self._waiting.remove(condition)
            self._woke = True
            return


def is_true(predicate: Callable[[], object]) -> bool:
    """Ask a predicate, which must be a plain function."""
    found = predicate()
    if iscoroutine(found):
        found.close()
        raise UsageError("the predicate of hf.wait_until must be a plain function, and this one has to be awaited")
    return bool(found)


class WorkflowState:
    """`note` puts a change into the output of the turn."""

    def __init__(self, loop: "WorkflowLoop", note: Callable[[str, bytes | None], None]) -> None:
        self._loop = loop
        self._note = note
        self.conditions = WaitConditions(loop)
        self.kept: dict[str, bytes] = {}
        """The key-values, encoded, and under the empty key the status. Changed by `keep` only."""

    def restore(self, kept: Mapping[str, msgspec.Raw]) -> None:
        """Begin with what the execution before this one kept."""
        self.kept = {key: bytes(value) for key, value in kept.items()}

    def set(self, key: str, value: bytes | None) -> None:
        """Set a key-value, or with None take it away."""
        self._loop.check_evicted()
        if value is None:
            self.kept.pop(key, None)
        else:
            self.kept[key] = value
        self._note(key, value)
