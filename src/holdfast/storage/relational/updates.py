"""Updates: sent once by their id, answered with the turn that took them, and kept with their instance (G5, G7, G11)."""

import hashlib

from holdfast.core.events import UpdateAccepted
from holdfast.core.gates import EventVerdict
from holdfast.core.require import require
from holdfast.core.updates import MAX_OPEN_UPDATES, REFUSALS, REJECTION_KEPT_MS, UpdateState, decide_update
from holdfast.storage.contract import InstanceNumber, InstanceRecord, UpdateAnswer, UpdateRow
from holdfast.storage.relational.rows import word_of
from holdfast.storage.relational.transaction import Row, Transaction


def note_update(transaction: Transaction, found: InstanceRecord, event: UpdateAccepted) -> EventVerdict:
    """Judge an update, and note one that is to be delivered."""
    asked = hashlib.sha256(b"%b\0%b" % (event.name.encode(), bytes(event.input.data))).digest()
    rows = transaction.rows(transaction.sql.read_update, found.number, event.id)
    known, is_same = (rows[0][1], rows[0][3] == asked) if rows else (None, True)
    open_updates = transaction.rows(transaction.sql.count_open_updates, found.number, MAX_OPEN_UPDATES)[0][0]
    verdict = decide_update(found.state, known=known, is_same=is_same, open_updates=open_updates)
    if verdict is EventVerdict.DELIVER:
        transaction.change(transaction.sql.ask_update, found.number, event.id, asked)
    return verdict


def write_answers(transaction: Transaction, number: InstanceNumber, answers: tuple[UpdateAnswer, ...]) -> None:
    """What a turn says to those who sent updates."""
    for one in answers:
        expires_at_ms = transaction.now_ms + REJECTION_KEPT_MS if one.state in REFUSALS else None
        changed = transaction.change(
            transaction.sql.answer_update, number, one.id, one.state, one.answer, expires_at_ms
        )
        require(changed == 1, f"update {one.id!r} of instance {number} was answered before, or never sent")


def update_of(row: Row) -> UpdateRow:
    """A row of updates."""
    return UpdateRow(id=row[0], state=word_of(UpdateState, row[1]), answer=row[2])
