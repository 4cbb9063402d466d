"""Who has to hear of a commit in this process: those who wait for instances that ended in it, and senders of events."""

import logging
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.core.gates import EventVerdict
from holdfast.errors import InstanceClosed, MailboxFull
from holdfast.storage.contract import (
    Applied,
    Delivered,
    EndedInstance,
    Expired,
    InstanceId,
    Outcome,
    StartedInstance,
    TerminatedInstance,
)

logger = logging.getLogger("holdfast")


_MAY_END_OTHERS: Final = (Applied, TerminatedInstance, Delivered, StartedInstance, Expired)


def ended_with(outcomes: Sequence[Outcome]) -> Iterator[EndedInstance]:
    """Children that ended with something else in a group."""
    for outcome in outcomes:
        if isinstance(outcome, _MAY_END_OTHERS) and outcome.ended:
            yield from outcome.ended


def was_delivered(instance_id: InstanceId, told: Delivered, name: str) -> bool:
    """What the sender of an event learns: whether somebody takes it or will; an error if nobody ever can (G6, G7)."""
    match told.verdict:
        case EventVerdict.CLOSED:
            raise InstanceClosed(f"{instance_id!r} is {told.instance.state}: the event {name!r} was not delivered")
        case EventVerdict.MAILBOX_FULL:
            raise MailboxFull(f"the mailbox of {instance_id!r} is full: the event {name!r} was not delivered")
        case EventVerdict.DROP_UNSUBSCRIBED:
            logger.warning("the event %r for %r was dropped: nobody waits for it", name, instance_id)
            return False
        case _:
            return True
