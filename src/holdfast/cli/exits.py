"""The exit codes of the command, drawn up in ``docs/reference/exit-codes.md``."""

import os
import sys
import threading
from typing import Final, NoReturn

from holdfast.errors import (
    HoldfastError,
    QueryFailed,
    StoreError,
    UnknownUpdate,
    UpdateFailed,
    UpdateRejected,
    WorkflowBlocked,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowTerminated,
)

EXIT_BAD_NEWS: Final = 1
"""The command did its work and the answer is bad: the workflow failed, or the audit found problems."""
EXIT_WRONG_INPUT: Final = 2
"""What was asked for cannot be understood, or is not there."""
EXIT_STORE: Final = 3
"""The store cannot be opened, read or written."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C, as shells count it, or SIGTERM to a run. What was recorded stays, and the same command continues."""

BODIES: Final = "holdfast-activity"
"""What the threads are called that bodies of activities run in."""
GRACE_SECONDS: Final = 0.5


def leave(code: int) -> NoReturn:
    """End the process. A body in a thread cannot be stopped and is abandoned (A5), not waited for."""
    for thread in threading.enumerate():
        if thread.name.startswith(BODIES):
            thread.join(GRACE_SECONDS)
            if thread.is_alive():
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
    sys.exit(code)


def exit_code(error: HoldfastError) -> int:
    """The code that the command ends with after an error."""
    match error:
        case UnknownUpdate():
            return EXIT_WRONG_INPUT
        case QueryFailed() | UpdateRejected() | UpdateFailed():
            return EXIT_BAD_NEWS
        case WorkflowFailed() | WorkflowCancelled() | WorkflowTerminated() | WorkflowBlocked():
            return EXIT_BAD_NEWS
        case StoreError():
            return EXIT_STORE
        case _:
            return EXIT_WRONG_INPUT
