"""Test tools for programs that use Holdfast, and for Holdfast itself: environments, crashes, replay, conformance."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.activity_runs import ActivityRun, run_activity
    from holdfast.testing.crashes import Crash
    from holdfast.testing.environment import Environment
    from holdfast.testing.every_commit import CrashReport
    from holdfast.testing.replayer import Replayer

__all__ = ["ActivityRun", "Crash", "CrashReport", "Environment", "Replayer", "run_activity"]

_WHERE = {
    "ActivityRun": "activity_runs",
    "Crash": "crashes",
    "CrashReport": "every_commit",
    "Environment": "environment",
    "Replayer": "replayer",
    "run_activity": "activity_runs",
}

if not TYPE_CHECKING:  # a type checker must still report a misspelled name

    def __getattr__(name: str) -> object:
        """Import a part when one of its names is first used."""
        where = _WHERE.get(name)
        if where is None:
            raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
        return getattr(import_module(f"holdfast.testing.{where}"), name)
