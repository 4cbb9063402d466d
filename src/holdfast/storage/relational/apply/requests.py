"""Apply requests of clients: the effect of a row and its new state in one transaction (C2, C3)."""

from typing import Final

from holdfast.core.admission import EventVerdict
from holdfast.core.history import EventReceived
from holdfast.storage.members.instances import Start
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Delivered, EndedInstance, HandledRows, Outcome, Rejected, StartedInstance
from holdfast.storage.members.row_handling import HandledRequest, HandleRequest
from holdfast.storage.records import RequestState
from holdfast.storage.relational.apply.instances import apply_start
from holdfast.storage.relational.apply.messages import apply_deliver
from holdfast.storage.relational.transaction import Transaction

HANDLED_BEFORE: Final = "the row was handled before"
_ACCEPTED: Final = frozenset({EventVerdict.DELIVER, EventVerdict.KEEP, EventVerdict.DUPLICATE})


def apply_handle_request(transaction: Transaction, member: HandleRequest) -> Outcome:
    """Apply the action of a NEW request. A refused action changes nothing but the state of its row."""
    if not transaction.exists(transaction.sql.lock_request, member.row):
        return Rejected(reason=HANDLED_BEFORE)
    handled, ended = _handle(transaction, member)
    transaction.update(
        transaction.sql.handle_request,
        handled.state,
        handled.refusal,
        handled.number,
        transaction.now_ms,
        member.row,
    )
    return HandledRows(requests=(handled,), ended=ended)


def _handle(transaction: Transaction, member: HandleRequest) -> tuple[HandledRequest, tuple[EndedInstance, ...]]:
    action = member.action
    if action is None:
        state = RequestState.TRACE if member.refusal is None else RequestState.REFUSED
        return HandledRequest(row=member.row, state=state, refusal=member.refusal), ()
    outcome = apply_start(transaction, action) if isinstance(action, Start) else apply_deliver(transaction, action)
    match outcome:
        case StartedInstance():
            return _accepted(member, outcome.instance.number), outcome.ended
        case Delivered() if outcome.verdict in _ACCEPTED:
            return _accepted(member, outcome.instance.number), outcome.ended
        case Delivered():
            return _refused(member, _why_not_delivered(action, outcome)), ()
        case Rejected():
            return _refused(member, outcome.reason), ()
        case _:
            return _refused(member, f"it had the outcome {outcome!r}"), ()


def _accepted(member: HandleRequest, number: int) -> HandledRequest:
    return HandledRequest(row=member.row, state=RequestState.ACCEPTED, number=number)


def _refused(member: HandleRequest, refusal: str) -> HandledRequest:
    return HandledRequest(row=member.row, state=RequestState.REFUSED, refusal=refusal)


def _why_not_delivered(action: Start | Deliver, outcome: Delivered) -> str:
    event = action.event if isinstance(action, Deliver) else None
    what = f"the event {event.name!r}" if isinstance(event, EventReceived) else "the request to cancel"
    match outcome.verdict:
        case EventVerdict.CLOSED:
            return f"the instance {action.id!r} is {outcome.instance.state}, so {what} was not delivered"
        case EventVerdict.DROP_UNSUBSCRIBED:
            return f"{what} was dropped: the instance {action.id!r} does not wait for it, and its policy drops it"
        case EventVerdict.MAILBOX_FULL:
            return f"the mailbox of {action.id!r} is full, so {what} was not delivered"
        case _:
            return f"{what} was {outcome.verdict.value}"
