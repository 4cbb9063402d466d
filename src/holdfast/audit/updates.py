"""The updates of one instance: what its history says of them, what waits in its inbox, what their senders are told."""

from collections.abc import Sequence
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
    """What the history says of updates, over all executions."""

    accepted: set[str] = field(default_factory=set[str])
    ended: dict[str, End] = field(default_factory=dict[str, End])
    findings: list[Finding] = field(default_factory=list[Finding])
    is_readable: bool = True
    """False when a turn could not be decoded: then nothing here proves anything."""

    def add(self, text: str) -> None:
        self.findings.append((Rule.UPDATES_AGREE, text))

    def read(self, turns: Sequence[RawTurn]) -> None:
        """Add the turns of one execution, which can be decoded."""
        for turn in turns:
            for event in decode_events(turn.events):
                match event:
                    case ev.UpdateAccepted():
                        if event.id in self.accepted:
                            self.add(f"turn {turn.turn} accepts update {event.id!r} again")
                        self.accepted.add(event.id)
                    case ev.UpdateHandlerCompleted() | ev.UpdateHandlerFailed():
                        if event.id not in self.accepted or event.id in self.ended:
                            self.add(f"turn {turn.turn} ends update {event.id!r}, which is not at work")
                        self.ended[event.id] = event
                    case _:
                        if isinstance(event, ENDED_BY_CODE) and self.accepted - self.ended.keys():
                            self.add(f"execution {turn.execution} came to its end with updates that did not")


def check_updates(
    recorded: RecordedUpdates,
    rows: Sequence[RawUpdate],
    inbox: Sequence[HistoryEvent],
    payloads: Payloads,
    *,
    is_open: bool,
) -> list[Finding]:
    """Accepted once, ended once and before its execution does, and answered to its sender as recorded (G11)."""
    waiting = {event.id for event in inbox if isinstance(event, ev.UpdateAccepted)}
    if not recorded.is_readable:
        return []
    if not (rows or waiting or recorded.accepted or recorded.ended):
        return []
    known = {row.id: row for row in rows}
    for update in sorted(recorded.accepted - known.keys()):
        recorded.add(f"update {update!r} was accepted, and its sender would never learn of it")
    for row in rows:
        if row.state not in set(UpdateState):
            recorded.findings.append((Rule.ROWS_READABLE, f"update {row.id!r} is {row.state!r}, which is no state"))
        else:
            _check_row(recorded, row, is_waiting=row.id in waiting, is_open=is_open)
            recorded.findings += _check_answer(recorded, row, payloads)
    for update in sorted(waiting - known.keys()):
        recorded.add(f"update {update!r} waits in the inbox, and nobody would be answered")
    return recorded.findings


def _check_row(recorded: RecordedUpdates, row: RawUpdate, *, is_waiting: bool, is_open: bool) -> None:
    end = recorded.ended.get(row.id)
    if end is not None:
        expected = UpdateState.DONE if isinstance(end, ev.UpdateHandlerCompleted) else UpdateState.FAILED
        if row.state != expected:
            recorded.add(f"update {row.id!r} is {row.state}, and the history says {expected}")
    elif row.id in recorded.accepted:
        if row.state != UpdateState.ACCEPTED:
            recorded.add(f"update {row.id!r} is {row.state}, and the history says that it is at work")
    elif row.state == UpdateState.ASKED:
        if not is_open:
            recorded.add(f"update {row.id!r} still waits for an instance that is closed")
        elif not is_waiting:
            recorded.add(f"update {row.id!r} was sent and is lost: nobody would take it")
    elif row.state not in REFUSALS:
        recorded.add(f"update {row.id!r} is {row.state}, and the history does not know it")


def _check_answer(recorded: RecordedUpdates, row: RawUpdate, payloads: Payloads) -> list[Finding]:
    if (row.answer is None) != (row.state in (UpdateState.ASKED, UpdateState.ACCEPTED)):
        return [(Rule.UPDATES_AGREE, f"update {row.id!r} is {row.state}, and there is an answer, or none")]
    if row.answer is None:
        return []
    try:
        stored = _payload.decode(row.answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return [(Rule.UPDATES_AGREE, f"the answer to update {row.id!r} cannot be decoded: {error}")]
    end = recorded.ended.get(row.id)
    if end is not None:
        said = end.result if isinstance(end, ev.UpdateHandlerCompleted) else end.failure
        if not payloads.are_same(said, stored):
            return [(Rule.UPDATES_AGREE, f"the answer to update {row.id!r} is not the recorded one")]
    return payloads.check(stored, f"the answer to update {row.id!r}")
