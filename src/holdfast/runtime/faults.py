"""Named points at which a test may stop the world: before and after every commit.

In production nobody listens and a point costs one attribute look-up. Tests put a function there that kills the process
by SIGKILL, or raises, exactly then.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

from holdfast.storage.contract import Member


class FaultPoint(StrEnum):
    """Where a test can interfere."""

    BEFORE_COMMIT = "before_commit"
    AFTER_COMMIT = "after_commit"


class SimulatedCrash(BaseException):
    """Raised by a fault hook: from here on the process is gone. Not an Exception, so that nothing in it can go on."""


FaultHook = Callable[[FaultPoint, Sequence[Member]], None]
