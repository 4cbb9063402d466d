"""Updates: a flow has no code that could take them, and says so."""

from collections.abc import Callable

from holdfast.core.answers import Reply
from holdfast.core.events import UpdateAccepted
from holdfast.replay.answers import unknown


class NoUpdates:
    """Every update is refused."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Callable[[str, Reply], None]) -> None:
        self._answer = answer

    def refusal(self, event: UpdateAccepted) -> Reply:
        """Why it is not accepted."""
        del event
        return unknown(())

    def refuse(self, update_id: str, answer: Reply) -> None:
        """Tell its sender."""
        self._answer(update_id, answer)
