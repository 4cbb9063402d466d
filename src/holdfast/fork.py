"""Fork detection: copies of connections, locks and worker keys must not be used in a child process (W5).

An object that holds such things stores the `generation` in which it was made, which differs in a child process.
"""

import os
import sys
from contextlib import suppress

_generation = 0
"""The number of forks between the first process and this one."""


def generation() -> int:
    """A number that is constant in one process and differs in its children."""
    return _generation


def _forked() -> None:
    global _generation  # noqa: PLW0603 - it describes the process
    _generation += 1


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_forked)


def leave_if_forked(made_in: int, error: BaseException | None = None) -> None:
    """Exit if this process is the child of a body that forked and returned: the child is no worker.

    The exit code is that of a `SystemExit`, else 1 if the body raised, else 0.
    """
    if made_in == generation():
        return
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    code = error.code if isinstance(error, SystemExit) else None if error is None else 1
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)
