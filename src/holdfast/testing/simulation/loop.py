"""An event loop whose time jumps to the next timer instead of waiting, and whose order a seed chooses."""

import asyncio
import selectors
from collections.abc import Callable, Mapping
from contextvars import Context
from random import Random  # noqa: TID251 - made from the seed of the simulation
from typing import Any, Final, TypeVarTuple

from holdfast.errors import HoldfastError
from holdfast.runtime.faults import SimulatedCrash

Arguments = TypeVarTuple("Arguments")

OVERTAKING: Final = 0.25
"""How often a callback that becomes ready overtakes others that were ready before it."""


class SimulationStuck(HoldfastError):
    """Everybody waits and nothing is going to happen: the promise that everything finishes is broken."""


class _JumpingSelector(selectors.SelectSelector):
    """Nothing comes from outside; where a real selector would wait, time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise SimulationStuck("everybody waits for somebody else")
        self.now += max(timeout, 0.0)
        return []


class SimulationLoop(asyncio.SelectorEventLoop):
    """Runs everything of a simulation on one thread."""

    def __init__(self, random: Random) -> None:
        self._jumping = _JumpingSelector()
        self._random = random
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def call_soon(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        ready: Any = vars(self)["_ready"]
        if len(ready) > 1 and self._random.random() < OVERTAKING:
            ready.pop()
            ready.insert(self._random.randrange(len(ready) + 1), handle)
        return handle


def ignore_crashes(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """A simulated crash is not news; anything else that nobody took is."""
    if not isinstance(context.get("exception"), SimulatedCrash):
        loop.default_exception_handler(dict(context))
