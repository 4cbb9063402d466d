"""Histories as files: the stable form in which one is exported, kept with a program's tests, and replayed.

``{"holdfast_history": 1, "id": ..., "workflow": ..., "execution": 1, "turns": [[event, ...], ...]}``: a list of events
for each turn, each as it is stored, with large values in place. Lines with one such list each are read, too.
"""

from typing import Final

import msgspec

from holdfast.core.events import HistoryEvent, Started, decode_events, encode_events
from holdfast.errors import MalformedPayload

FORM: Final = 1


class ExportedHistory(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of an instance."""

    holdfast_history: int = FORM
    id: str
    workflow: str
    execution: int = 1
    turns: list[msgspec.Raw]

    def events(self) -> list[HistoryEvent]:
        """What happened, in order."""
        return [event for turn in self.turns for event in decode_events(bytes(turn))]


def export(instance_id: str, workflow: str, execution: int, turns: list[list[HistoryEvent]]) -> str:
    """The text of a history."""
    encoded = [msgspec.Raw(encode_events(turn)) for turn in turns]
    history = ExportedHistory(id=instance_id, workflow=workflow, execution=execution, turns=encoded)
    return msgspec.json.format(msgspec.json.encode(history)).decode() + "\n"


def parse(text: str) -> tuple[ExportedHistory, list[HistoryEvent]]:
    """A history from its text, in either form; `MalformedPayload` if it is none."""
    try:
        if text.lstrip().startswith("["):
            history = ExportedHistory(
                id="", workflow="", turns=[msgspec.Raw(line.encode()) for line in text.splitlines() if line.strip()]
            )
        else:
            history = msgspec.json.decode(text, type=ExportedHistory)
        events = history.events()
    except (msgspec.DecodeError, UnicodeError) as error:
        raise MalformedPayload(f"this is no exported history: {error}") from error
    if history.holdfast_history != FORM:
        raise MalformedPayload(f"a history of form {history.holdfast_history}; this release reads form {FORM}")
    if not events or not isinstance(events[0], Started):
        raise MalformedPayload("this is no exported history: it does not begin with the start of a workflow")
    return history, events
