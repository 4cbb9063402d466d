"""The end of a child tells its parent, in the transaction that ends it, and so once (G4, G5, G11)."""

from typing import Final

import msgspec

from holdfast.core.children import answer_of
from holdfast.core.events import ChildAnswer, Payload, encode_event
from holdfast.core.gates import DeliveryVerdict, MessageKind, deliver
from holdfast.core.lifecycle import InstanceState
from holdfast.storage.contract import InstanceNumber
from holdfast.storage.relational.transaction import Transaction

_payload: Final = msgspec.json.Decoder(Payload)


def answer_parent(transaction: Transaction, number: InstanceNumber, state: InstanceState, outcome: bytes) -> None:
    """An instance has ended. If it is a child, and the execution that started it is the active one, that one is told.

    What answers an execution that is over never reaches the next (G4).
    """
    for parent, addressed_to, child, parent_state, execution, owner in transaction.rows(
        transaction.sql.parent_of, number
    ):
        verdict = deliver(
            MessageKind.CHILD_RESULT,
            state=parent_state,
            loop_is_active=owner is not None,
            addressed_to=addressed_to,
            execution=execution,
        )
        if verdict is not DeliveryVerdict.DROP:
            payload = _payload.decode(outcome)
            for data in (
                transaction.rows(transaction.sql.read_payload, number, payload.reference) if payload.reference else ()
            ):
                transaction.do(transaction.sql.insert_payload, payload.reference, parent, *data)
            answer = answer_of(child, state, payload, time_ms=transaction.now_ms)
            tell_parent(transaction, parent, execution, answer)


def tell_parent(transaction: Transaction, parent: InstanceNumber, execution: int, answer: ChildAnswer) -> None:
    """Into the inbox of the parent, stamped now (G10); somebody takes it in."""
    transaction.change(transaction.sql.insert_inbox, parent, execution, transaction.now_ms, encode_event(answer))
    transaction.do(transaction.sql.wake_instance, parent)
