"""Who has to hear of a commit: other processes, those who wait for instances that ended in it, senders of events.

Other processes are woken, and look; what there is to see is in the store.
"""

import logging
from collections.abc import Iterator, Sequence

from holdfast.core.gates import EventVerdict, IdPolicy
from holdfast.errors import InstanceClosed, MailboxFull
from holdfast.storage.contract import (
    Applied,
    ClaimAttempts,
    ClaimInstances,
    Delivered,
    EndedInstance,
    Expired,
    Forget,
    HeartbeatAttempt,
    InstanceId,
    Member,
    Outcome,
    Start,
    StartedInstance,
    TakeQuestions,
    TerminatedInstance,
    Turn,
)

logger = logging.getLogger("holdfast")


def ended_with(outcomes: Sequence[Outcome]) -> Iterator[EndedInstance]:
    """Children that ended with something else in a group."""
    for outcome in outcomes:
        if isinstance(outcome, Applied | TerminatedInstance | Delivered | StartedInstance | Expired) and outcome.ended:
            yield from outcome.ended


def is_for_others(member: Member) -> bool:
    """Whether a member may have something for another process."""
    match member:
        case Turn():
            return member.close is not None or member.release or len(member.attempts) > 0 or _reaches_others(member)
        case Start():
            first = member.first
            ends_another = member.policy is IdPolicy.TERMINATE_EXISTING
            if first is None or first.close is not None or len(first.attempts) > 0 or ends_another:
                return True
            return _reaches_others(first)
        case ClaimAttempts() | ClaimInstances() | HeartbeatAttempt() | TakeQuestions() | Forget():
            return False
        case _:
            return True


def _reaches_others(turn: Turn) -> bool:
    """Whether a turn has something for other instances, which other processes may have, or for senders of updates."""
    return turn.family or len(turn.sent) > 0 or len(turn.answers) > 0 or len(turn.kept) > 0


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
