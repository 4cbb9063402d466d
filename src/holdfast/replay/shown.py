"""What a run shows of itself: its key-values and its status. Made when the code first uses any of it.

Replay repeats what the code set, so nothing of it stands in the history; what an earlier execution kept comes with the
start (G4). Outside it shows once the turn is committed (G11).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast.replay.conditions import WaitConditions

if TYPE_CHECKING:
    from holdfast.replay.loop import WorkflowLoop


class WorkflowState:
    """`note` puts a change into the output of the turn."""

    def __init__(self, loop: "WorkflowLoop", note: Callable[[str, bytes | None], None]) -> None:
        self._loop = loop
        self._note = note
        self.conditions = WaitConditions(loop)
        self.kept: dict[str, bytes] = {}
        """The key-values, encoded, and under the empty key the status. Changed by `keep` only."""

    def carry_over(self, kept: Mapping[str, msgspec.Raw]) -> None:
        """Begin with what the execution before this one kept."""
        self.kept = {key: bytes(value) for key, value in kept.items()}

    def keep(self, key: str, value: bytes | None) -> None:
        """Set a key-value, or with None take it away."""
        self._loop.check_evicted()
        if value is None:
            self.kept.pop(key, None)
        else:
            self.kept[key] = value
        self._note(key, value)
