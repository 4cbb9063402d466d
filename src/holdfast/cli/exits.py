"""The exit codes of the command, which ``docs/reference/exit-codes.md`` describes."""

import os
import sys
import threading
from typing import Final, NoReturn

from holdfast.errors import (
    HoldfastError,
    NodeNotHeld,
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

EXIT_NEGATIVE: Final = 1
"""The command ran, and the result is negative: the workflow failed, or the audit found problems."""
EXIT_WRONG_INPUT: Final = 2
"""An argument cannot be understood, or names something that does not exist."""
EXIT_STORE: Final = 3
"""The store cannot be opened, read or written."""
EXIT_UNANSWERED: Final = 4
"""The request or the report is stored, and no worker has handled it in time. It is handled later."""
EXIT_REFUSED: Final = 5
"""The engine refused the request or the report; the message has the reason."""
EXIT_LOST: Final = 6
"""The claim on an activity is lost: the attempt was released, has ended, or another executor has it."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C, with the code of shells, or SIGTERM to a run. The same command continues what was recorded."""

BODIES: Final = "holdfast-activity"
"""The prefix of the names of threads in which bodies of activities run."""
GRACE_SECONDS: Final = 0.5


def leave(code: int) -> NoReturn:
    """Ends the process. A body in a thread, which cannot be stopped, is abandoned after a short wait (A5)."""
    for thread in threading.enumerate():
        if thread.name.startswith(BODIES):
            thread.join(GRACE_SECONDS)
            if thread.is_alive():
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
    sys.exit(code)


def exit_code(error: HoldfastError) -> int:
    """The exit code after an error."""
    match error:
        case UnknownUpdate():
            return EXIT_WRONG_INPUT
        case QueryFailed() | UpdateRejected() | UpdateFailed() | NodeNotHeld():
            return EXIT_NEGATIVE
        case WorkflowFailed() | WorkflowCancelled() | WorkflowTerminated() | WorkflowBlocked():
            return EXIT_NEGATIVE
        case StoreError():
            return EXIT_STORE
        case _:
            return EXIT_WRONG_INPUT
