"""A driver for the workflow loop in tests: it records what the host hears and fires timers on demand."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.replay.loop.event_loop import WorkflowLoop


class RecordingHost:
    """Keeps everything the loop says, in order."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.reports: list[dict[str, Any]] = []

    def timer_started(self, number: int, due_at: float) -> None:
        self.heard.append(("started", number, due_at))

    def timer_cancelled(self, number: int) -> None:
        self.heard.append(("cancelled", number))

    def unhandled(self, context: dict[str, Any]) -> None:
        self.reports.append(context)


class Run:
    """One workflow on its loop."""

    def __init__(self, workflow: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.host = RecordingHost()
        self.loop = WorkflowLoop(self.host)
        self.main = self.loop.create_task(self.loop.run_main(workflow()), name="main")
        self.loop.run_until_idle()

    def fire(self, number: int) -> bool:
        fired = self.loop.fire_timer(number)
        self.loop.run_until_idle()
        return fired

    def finish(self) -> Any:
        """Fire timers by due time until the main task is done, and return its result."""
        while not self.main.done():
            timers = self.loop.pending_timers
            assert timers, "the workflow waits for something that is no timer"
            self.fire(min(timers, key=lambda number: (timers[number], number)))
        return self.main.result()


def finish(workflow: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return Run(workflow).finish()


async def after(seconds: float, result: Any = None) -> Any:
    await asyncio.sleep(seconds)
    return result


async def fail_after(seconds: float, error: Exception) -> None:
    await asyncio.sleep(seconds)
    raise error
