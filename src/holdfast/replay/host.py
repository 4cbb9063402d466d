"""What the workflow loop tells the one who drives it."""

from typing import Any, Protocol


class LoopHost(Protocol):
    """What the loop tells its driver. No method is called again once an eviction has begun."""

    def timer_started(self, number: int, due_at: float) -> None:
        """The workflow waits for a new durable timer. Numbers count up from 1."""
        ...

    def timer_cancelled(self, number: int) -> None:
        """A durable timer that has not fired is not waited for any more. Told once."""
        ...

    def unhandled(self, context: dict[str, Any]) -> None:
        """An exception that nobody took: asyncio's context with its message and exception."""
        ...


class DetachedHost:
    """Stands in for the driver of a loop that was evicted: neither has to know the other any more."""

    def timer_started(self, number: int, due_at: float) -> None:
        del number, due_at

    def timer_cancelled(self, number: int) -> None:
        del number

    def unhandled(self, context: dict[str, Any]) -> None:
        del context
