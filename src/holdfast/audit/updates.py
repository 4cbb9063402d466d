"""Checks the updates of one instance: their rows against its history and its inbox."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from holdfast.audit.payloads import Payloads
from holdfast.audit.problems import Finding, Rule
from holdfast.core import history as ev
from holdfast.core.history import HistoryEvent, Payload, decode_events
from holdfast.core.updates import REFUSALS, UpdateState
from holdfast.storage.relational.raw_tables import RawTurn, RawUpdate

End = ev.UpdateHandlerCompleted | ev.UpdateHandlerFailed
ENDED_BY_CODE = (ev.ExecutionCompleted, ev.ExecutionFailed, ev.ExecutionCancelled, ev.ContinuedAsNew)
_payload = msgspec.json.Decoder(Payload)


@dataclass(slots=True)
class RecordedUpdates:
    """The updates in the history of all executions."""

    accepted: set[str] = field(default_factory=set[str])
    ended: dict[str, End] = field(default_factory=dict[str, End])
    is_readable: bool = True
    """False if a turn could not be decoded: then a missing event proves nothing."""

    def read(self, turns: Sequence[RawTurn]) -> Iterator[Finding]:
        """Adds the turns of one execution, all of which can be decoded."""
        for turn in turns:
            for event in decode_events(turn.events):
                match event:
                    case ev.UpdateAccepted():
                        if event.id in self.accepted:
                            yield Rule.UPDATES_AGREE, f"turn {turn.turn} accepts update {event.id!r} again"
                        self.accepted.add(event.id)
                    case ev.UpdateHandlerCompleted() | ev.UpdateHandlerFailed():
                        if event.id not in self.accepted or event.id in self.ended:
                            yield Rule.UPDATES_AGREE, f"turn {turn.turn} ends update {event.id!r}, which does not run"
                        self.ended[event.id] = event
                    case _:
                        if isinstance(event, ENDED_BY_CODE) and self.accepted - self.ended.keys():
                            yield Rule.UPDATES_AGREE, f"execution {turn.execution} ended before its updates"


def check_updates(
    recorded: RecordedUpdates,
    rows: Sequence[RawUpdate],
    inbox: Sequence[HistoryEvent],
    payloads: Payloads,
    *,
    is_open: bool,
) -> Iterator[Finding]:
    """An update is accepted once, ends once and before its execution, and its row has the recorded answer (G11)."""
    if not recorded.is_readable:
        return
    waiting = {event.id for event in inbox if isinstance(event, ev.UpdateAccepted)}
    known = {row.id for row in rows}
    for update in sorted(recorded.accepted - known):
        yield Rule.UPDATES_AGREE, f"update {update!r} was accepted and has no row, so its sender gets no answer"
    for row in rows:
        if row.state not in set(UpdateState):
            yield Rule.ROWS_READABLE, f"update {row.id!r} has the unknown state {row.state!r}"
            continue
        if why := _disagreement(recorded, row, is_waiting=row.id in waiting, is_open=is_open):
            yield Rule.UPDATES_AGREE, f"update {row.id!r} {why}"
        yield from _check_answer(recorded, row, payloads)
    for update in sorted(waiting - known):
        yield Rule.UPDATES_AGREE, f"update {update!r} is in the inbox and has no row, so its sender gets no answer"


def _disagreement(recorded: RecordedUpdates, row: RawUpdate, *, is_waiting: bool, is_open: bool) -> str | None:
    """The contradiction between the state of an update and the history or the inbox."""
    end = recorded.ended.get(row.id)
    if end is not None:
        expected = UpdateState.DONE if isinstance(end, ev.UpdateHandlerCompleted) else UpdateState.FAILED
        return None if row.state == expected else f"is {row.state}, and in the history it is {expected}"
    if row.id in recorded.accepted:
        return None if row.state == UpdateState.ACCEPTED else f"is {row.state}, and in the history it still runs"
    if row.state != UpdateState.ASKED:
        return None if row.state in REFUSALS else f"is {row.state}, and is not in the history"
    if not is_open:
        return "still waits for an instance that is closed"
    return None if is_waiting else "was sent and is not in the inbox, so it would never run"


def _check_answer(recorded: RecordedUpdates, row: RawUpdate, payloads: Payloads) -> Iterator[Finding]:
    if (row.answer is None) != (row.state in (UpdateState.ASKED, UpdateState.ACCEPTED)):
        which = "no answer" if row.answer is None else "an answer"
        yield Rule.UPDATES_AGREE, f"update {row.id!r} is {row.state} and has {which}"
        return
    if row.answer is None:
        return
    try:
        stored = _payload.decode(row.answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        yield Rule.UPDATES_AGREE, f"the answer to update {row.id!r} cannot be decoded: {error}"
        return
    end = recorded.ended.get(row.id)
    if end is not None:
        answer = end.result if isinstance(end, ev.UpdateHandlerCompleted) else end.failure
        if not payloads.are_same(answer, stored):
            yield Rule.UPDATES_AGREE, f"the answer to update {row.id!r} is not the recorded one"
            return
    yield from payloads.check(stored, f"the answer to update {row.id!r}")
