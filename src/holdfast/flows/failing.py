"""Failures of nodes: how they are recorded, and by which names an error edge may catch them (K4)."""

from typing import Final

import msgspec

from holdfast.core import events as ev
from holdfast.core.event import Payload
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import InstanceConflict, WorkflowCancelled, WorkflowTerminated
from holdfast.payloads.failures import Failure, Resolver, failure_of, qualified_name

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Failure).decode

ANYTHING: Final = "Exception"
"""What an activity raised is at least this, also where its type is not known here."""


def failure_payload(error: BaseException) -> Payload:
    """An error as the failure of a node."""
    return Payload(msgspec.Raw(_encode(failure_of(error))))


def error_types(error: BaseException) -> tuple[str, ...]:
    """The names by which an error can be caught: of its type and of those it derives from, short and in full."""
    return _names(type(error))


def types_in(failure: bytes | msgspec.Raw, resolve: Resolver) -> tuple[str, ...]:
    """The same, of a recorded failure: which names it can be caught by does not depend on who reads it."""
    recorded = _decode(failure)
    known = resolve(recorded.type)
    if known is not None:
        return _names(known)
    names = (recorded.type, *recorded.bases)
    return tuple(dict.fromkeys((*names, *(name.rpartition(".")[2] for name in names), ANYTHING)))


def failure_of_child(event: ev.ChildFailed | ev.ChildStopped | ev.ChildRefused) -> Payload:
    """What a flow makes of a child that gave no result. One that failed hands on what it failed with."""
    match event:
        case ev.ChildFailed():
            return event.failure
        case ev.ChildRefused():
            return failure_payload(InstanceConflict(event.reason))
        case ev.ChildStopped():
            said = f"the child was {event.state.lower()}" + (f": {event.reason}" if event.reason else "")
            if event.state == InstanceState.TERMINATED:
                return failure_payload(WorkflowTerminated(said, event.reason or None))
            return failure_payload(WorkflowCancelled(said))


def _names(kind: type[BaseException]) -> tuple[str, ...]:
    bases = [base for base in kind.__mro__ if base is not object]
    return tuple(dict.fromkeys(name for base in bases for name in (base.__name__, qualified_name(base))))
