"""Running what is ready: the inner loop of a slice of workflow code."""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from holdfast.errors import TurnTooLong
from holdfast.replay.futures import ReadyHandle, TimerHandle

DEADLINE_CHECK_STEPS: Final = 256
"""How many steps pass between two looks at the deadline, which reads a clock and so is not free."""


def drain(
    ready: deque[ReadyHandle | TimerHandle],
    unhandled: list[dict[str, Any]],
    max_steps: int,
    deadline: Callable[[], bool] | None,
) -> int:
    """Run callbacks until none is ready. What they raise and nobody takes is added to `unhandled`."""
    steps = 0
    while ready:
        if steps >= max_steps:
            raise TurnTooLong(
                f"the workflow took max_steps={max_steps} steps without waiting for anything durable; "
                "look for a loop around asyncio.sleep(0), or split the work over several turns"
            )
        steps += 1
        handle = ready.popleft()
        if handle._cancelled:  # noqa: SLF001 - asyncio's own loops read these too
            continue
        context, args = handle._context, handle._args  # noqa: SLF001
        try:
            if len(args) == 1:  # the usual number: what a task waited for
                context.run(handle._callback, args[0])  # noqa: SLF001
            else:
                context.run(handle._callback, *args)  # noqa: SLF001
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - told to the host
            # A SystemExit is kept by the task that raised it: it ends the workflow, not the worker.
            unhandled.append({"message": "exception in a callback of a workflow", "exception": error, "handle": handle})
        if deadline is not None and steps % DEADLINE_CHECK_STEPS == 0 and deadline():
            raise TurnTooLong(f"the turn was still busy at its deadline, after {steps} steps")
    return steps
