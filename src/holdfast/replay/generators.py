"""The async generators of a workflow, held from their first step to their end.

The collector would otherwise choose the moment at which an abandoned one runs its ``finally``, and a replay
would choose another. It runs when the workflow ends; ``contextlib.aclosing`` is the way to have it earlier.
"""

from collections.abc import AsyncGenerator
from typing import Any, Final

MIN_GENERATORS_BETWEEN_SWEEPS: Final = 64
"""Finished generators are let go in sweeps."""


class HeldGenerators:
    """Generators that have begun, oldest first."""

    __slots__ = ("_held", "_sweep_at")

    def __init__(self) -> None:
        self._held: dict[int, AsyncGenerator[Any, Any]] = {}
        self._sweep_at = MIN_GENERATORS_BETWEEN_SWEEPS

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Hold `generator`, which takes its first step. This is the hook that Python calls."""
        if len(self._held) >= self._sweep_at:
            self._held = {key: held for key, held in self._held.items() if is_unfinished(held)}
            self._sweep_at = 2 * len(self._held) + MIN_GENERATORS_BETWEEN_SWEEPS
        self._held[id(generator)] = generator

    def take_abandoned(self) -> list[AsyncGenerator[Any, Any]]:
        """Let go of the generators that are not finished and that no task is inside of, and return them."""
        abandoned = [
            generator
            for generator in self._held.values()
            if is_unfinished(generator) and not getattr(generator, "ag_running", False)
        ]
        for generator in abandoned:
            del self._held[id(generator)]
        return abandoned

    def take_all(self) -> list[AsyncGenerator[Any, Any]]:
        """Let go of all generators and return them."""
        everything = list(self._held.values())
        self._held.clear()
        return everything


def is_unfinished(generator: AsyncGenerator[Any, Any]) -> bool:
    """Tell whether an async generator still has a frame, and so perhaps a ``finally`` to run."""
    return getattr(generator, "ag_frame", None) is not None


async def close(generator: AsyncGenerator[Any, Any]) -> None:
    """Close a generator from a task of its own."""
    await generator.aclose()
