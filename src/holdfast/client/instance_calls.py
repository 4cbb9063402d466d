"""What a start names: the workflow with its arguments, and what its code says about its end.

Who has to hear of a commit in this process: those who wait for instances that ended in it, and senders of events.
"""

import logging
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from holdfast.authoring.registry import Registry
from holdfast.authoring.validation import checked_name
from holdfast.authoring.workflow import BoundWorkflow, Workflow
from holdfast.core.admission import EventVerdict
from holdfast.core.deadlines import Deadline
from holdfast.errors import InstanceClosed, MailboxFull, UsageError
from holdfast.payloads.encoding import encode
from holdfast.payloads.signature import Signature
from holdfast.storage.members.outcomes import Delivered
from holdfast.storage.records import InstanceId


class WorkflowCall(msgspec.Struct, frozen=True):
    """A workflow with its arguments. Where its code is not known here, nothing is checked."""

    name: str
    version: str
    encoded: bytes
    signature: Signature | None
    deadline: Deadline | None
    flow: Workflow[..., Any] | None = None
    """The flow itself, if it was given and not only named: then the instance stays with this version of it."""


def call_of(registry: Registry, workflow: Any, args: tuple[Any, ...]) -> WorkflowCall:
    """By reference, bound, or by name."""
    match workflow:
        case Workflow():
            known: Workflow[..., Any] = cast("Any", workflow)
            return _of(known, known.signature.encode_arguments(args))
        case BoundWorkflow():
            if args:
                raise UsageError("the arguments are bound already; give none besides")
            bound: Workflow[..., Any] = workflow.workflow
            return _of(bound, workflow.encoded)
        case str():
            if workflow in registry.workflows:
                return msgspec.structs.replace(call_of(registry, registry.workflows[workflow], args), flow=None)
            return WorkflowCall(
                checked_name(workflow, "a workflow"), "", encode(list(args), what="the arguments"), None, None
            )
        case _:
            raise UsageError(f"{workflow!r} is no workflow: mark the function with @hf.workflow, or give its name")


def refuse_keywords(given: Mapping[str, object], workflow: Any, method: str, options: str) -> None:
    """Raise `UsageError` for arguments by keyword: TypeVarTuple, which types a start, has positions only."""
    if given:
        name = getattr(workflow, "__name__", "workflow")
        shown = ", ".join(f"{key}=..." for key in given)
        raise UsageError(
            f"{method} takes {options} by keyword, not {', '.join(given)}; for arguments of the workflow write "
            f"{method}({name}.bind({shown}), ...)"
        )


def _of(workflow: Workflow[..., Any], encoded: bytes) -> WorkflowCall:
    flow = workflow if workflow.is_flow else None
    return WorkflowCall(workflow.name, workflow.version, encoded, workflow.signature, workflow.deadline, flow)


logger = logging.getLogger("holdfast")


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
