"""Programs that run a sample to its end, or die on the way: ``STORE NAME BODIES [POINT K]``.

Such a program starts (or finds) the instance "it" of the sample and finishes it. With a point and a number it kills
itself by SIGKILL exactly before or after its commit number K. Bodies leave lines in a file, so that their runs can be
counted.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from holdfast.runtime.platform import FaultPoint
from holdfast.storage.members.member import Member

BODIES = "HOLDFAST_TEST_BODIES"


def ran(what: str) -> None:
    """One line for each run of a body, in one write, so that lines of several processes never mix."""
    descriptor = os.open(os.environ[BODIES], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{what}\n".encode())
    os.close(descriptor)


class KillAt:
    """Ends the process at a commit."""

    def __init__(self, point: str, number: int) -> None:
        self._point = point
        self._left = number

    def __call__(self, point: FaultPoint, members: Sequence[Member]) -> None:
        del members
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


Finish = Callable[[str, str, KillAt | None], Coroutine[Any, Any, object]]
"""Runs the sample of a name on a store."""


def run_program(finish: Finish) -> None:
    """Do what the words of the command line say."""
    store, name, bodies, *fault = sys.argv[1:]
    os.environ[BODIES] = bodies
    hook = KillAt(fault[0], int(fault[1])) if fault else None
    result = asyncio.run(finish(store, name, hook))
    Path(bodies).with_suffix(".result").write_text(repr(result), encoding="utf-8")
