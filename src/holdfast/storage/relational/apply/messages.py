"""Apply messages for instances: events, requests to cancel, updates (G5, G6, G7, A9).

An update is delivered once by its id, answered with the turn that took it, and stored with its instance (G7, G11).
"""

import hashlib
import json
import logging
from functools import lru_cache

from holdfast.core.admission import DEFAULT_MAILBOX_LIMIT, EventPolicy, EventVerdict, decide_event
from holdfast.core.checks import require
from holdfast.core.history import EventReceived, SendJudged, UpdateAccepted
from holdfast.core.lifecycle import InstanceState
from holdfast.core.updates import MAX_OPEN_UPDATES, REFUSALS, REJECTION_KEPT_MS, decide_update
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Delivered, Outcome, Rejected, TargetInstance
from holdfast.storage.members.turns import TurnEffects, UpdateAnswer
from holdfast.storage.records import InstanceNumber, InstanceRecord
from holdfast.storage.relational.apply.children import close_children
from holdfast.storage.relational.apply.instance_endings import cancel
from holdfast.storage.relational.apply.shared_writes import put_in_inbox
from holdfast.storage.relational.rows import instance_of
from holdfast.storage.relational.transaction import Row, Transaction


def record_update(transaction: Transaction, found: InstanceRecord, event: UpdateAccepted) -> EventVerdict:
    """Judge an update, and insert one that is delivered."""
    asked = hashlib.sha256(b"%b\0%b" % (event.name.encode(), bytes(event.input.data))).digest()
    rows = transaction.fetch(transaction.sql.read_update, found.number, event.id)
    known, is_same = (rows[0][1], rows[0][3] == asked) if rows else (None, True)
    open_updates = transaction.fetch(transaction.sql.count_open_updates, found.number, MAX_OPEN_UPDATES)[0][0]
    verdict = decide_update(found.state, known=known, is_same=is_same, open_updates=open_updates)
    if verdict is EventVerdict.DELIVER:
        transaction.update(transaction.sql.insert_update, found.number, event.id, asked)
    return verdict


def write_answers(transaction: Transaction, number: InstanceNumber, answers: tuple[UpdateAnswer, ...]) -> None:
    """Write the answers of a turn to updates."""
    for one in answers:
        expires_at_ms = transaction.now_ms + REJECTION_KEPT_MS if one.state in REFUSALS else None
        changed = transaction.update(
            transaction.sql.answer_update, number, one.id, one.state, one.answer, expires_at_ms
        )
        require(changed == 1, f"update {one.id!r} of instance {number} was answered before, or never sent")


logger = logging.getLogger("holdfast")


def apply_deliver(transaction: Transaction, message: Deliver) -> Outcome:
    """Deliver a message, or reject it. A refused message changes nothing."""
    event = message.event
    number = message.number
    if isinstance(event, EventReceived):
        by_id = (transaction.sql.lock_mailbox_by_id, message.id)
        rows = transaction.fetch(*(by_id if number is None else (transaction.sql.lock_mailbox, number)))
        if rows:
            return _raise(transaction, rows[0], event, message.message_id)
    else:
        by_id = (transaction.sql.lock_instance_by_id, message.id)
        rows = transaction.fetch(*(by_id if number is None else (transaction.sql.lock_instance, number)))
        if rows:
            found = instance_of(rows[0])
            if isinstance(event, UpdateAccepted):
                if message.watcher is not None:
                    transaction.execute(transaction.sql.watch_instance, message.watcher, found.number)
                return Delivered(instance=found, verdict=_update(transaction, found, event))
            verdict, at_once = cancel(transaction, found, event)
            ended = close_children(transaction, found.number, found.execution) if at_once else ()
            return Delivered(instance=found, verdict=verdict, ended=ended)
    return Rejected(reason=f"no instance has the id {message.id!r}")


def write_mailbox(transaction: Transaction, effects: TurnEffects, number: InstanceNumber, execution: int) -> None:
    """Write which events the instance waits for, how many a turn took or set aside, and send its own messages."""
    if effects.waits is not None or effects.events_taken:
        waits = None if effects.waits is None else _text_of(effects.waits)
        transaction.update(transaction.sql.set_awaited_events, waits, effects.events_taken, number)
    for message_id in effects.ids_set_aside:
        transaction.execute(transaction.sql.forget_received, number, message_id)
    if effects.mailbox is not None:
        transaction.update(transaction.sql.set_event_policy, effects.mailbox.policy, effects.mailbox.limit, number)
    for message in effects.sent:
        verdict = _send(transaction, message)
        if message.reply_to is not None:
            judged = SendJudged(time_ms=transaction.now_ms, number=message.reply_to, verdict=verdict.name)
            put_in_inbox(transaction, number, execution, judged)


@lru_cache(maxsize=1_000)
def _text_of(waits: tuple[str, ...]) -> str:
    """The stored form of awaited names. Instances of one workflow wait for the same ones, hence the cache."""
    return json.dumps(waits)


@lru_cache(maxsize=1_000)
def _names_in(waits: str) -> frozenset[str]:
    return frozenset(json.loads(waits))


def _send(transaction: Transaction, message: Deliver) -> EventVerdict:
    """Deliver a message that a turn sends. A refusal is logged unless the code waits for the verdict."""
    outcome = apply_deliver(transaction, message)
    verdict = outcome.verdict if isinstance(outcome, Delivered) else EventVerdict.UNKNOWN
    if message.reply_to is not None:
        return verdict
    if isinstance(outcome, Rejected):
        logger.warning("a message of a workflow was not delivered: %s", outcome.reason)
    elif verdict in REFUSED:
        logger.warning("a message of a workflow for %r was %s", message.id, verdict.value)
    return verdict


REFUSED = frozenset(
    {
        EventVerdict.CLOSED,
        EventVerdict.DROP_UNSUBSCRIBED,
        EventVerdict.MAILBOX_FULL,
        EventVerdict.UNKNOWN,
    }
)


def _raise(transaction: Transaction, mailbox: Row, event: EventReceived, message_id: str) -> Delivered:
    number, state, execution, waits, kept, policy, limit = mailbox
    found = TargetInstance(number=number, state=InstanceState(state), execution=execution)
    verdict = decide_event(
        found.state,
        seen_before=bool(message_id) and bool(transaction.fetch(transaction.sql.was_received, number, message_id)),
        is_awaited=waits is not None and event.name in _names_in(waits),
        kept=kept,
        policy=EventPolicy.MAILBOX if policy is None else EventPolicy(policy),
        limit=DEFAULT_MAILBOX_LIMIT if limit is None else limit,
    )
    if verdict in (EventVerdict.DELIVER, EventVerdict.KEEP):
        if message_id:
            transaction.update(transaction.sql.insert_received, number, message_id)
        transaction.update(transaction.sql.count_event, verdict is EventVerdict.DELIVER, number)
        put_in_inbox(transaction, number, execution, event, event.name, wakes=False)  # `count_event` does
    return Delivered(instance=found, verdict=verdict)


def _update(transaction: Transaction, found: InstanceRecord, event: UpdateAccepted) -> EventVerdict:
    """Put an update into the inbox (G5). For its empty name see `release_instance.sql`.

    It does not start the first turn of an instance earlier than its start names (G15).
    """
    verdict = record_update(transaction, found, event)
    if verdict is EventVerdict.DELIVER:
        put_in_inbox(
            transaction,
            found.number,
            found.execution,
            event,
            name="",
            wakes=found.may_begin(transaction.now_ms),
        )
    return verdict
