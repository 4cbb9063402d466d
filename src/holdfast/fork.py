"""A fork leaves a copy of everything in the child, and none of it may be used there (W5).

The child of a process that has a store open shares its connections, locks and worker keys with the parent. Whoever
holds such things notes the `generation` in which they were made; in a child it is another one.
"""

import os
import sys
from contextlib import suppress

_generation = 0
"""Which process this is, counted in forks."""


def generation() -> int:
    """The same in one process, another one in its children."""
    return _generation


def _forked() -> None:
    global _generation  # noqa: PLW0603 - there is one for the process, as it is what a fork copies
    _generation += 1


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_forked)


def leave_if_forked(made_in: int, error: BaseException | None = None) -> None:
    """End this process if it is the child of a body that forked and came back: it is nobody's worker.

    A `SystemExit` says how; anything else that was raised is a failure.
    """
    if made_in == generation():
        return
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    code = error.code if isinstance(error, SystemExit) else None if error is None else 1
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)
