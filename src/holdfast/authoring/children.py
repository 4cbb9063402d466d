"""Children: other workflows that workflow code starts.

``await pack(order)`` runs a child and waits for its result. ``handle = await hf.start(pack, order)`` starts one and
continues; ``await handle`` waits for the result later.
"""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar, TypeVarTuple, Unpack, overload

from holdfast.authoring.child_options import ChildOptions, checked_child_options, deadline_of, ties_of
from holdfast.authoring.events import Event, Sending, raise_event
from holdfast.authoring.validation import DeadlineOption, checked_name, checked_reason, start_deadline
from holdfast.authoring.workflow import BoundWorkflow, Workflow
from holdfast.authoring.workflow_api import current
from holdfast.errors import NotInWorkflow, UsageError
from holdfast.payloads.encoding import encode
from holdfast.replay.children import ChildCall, StartedChild
from holdfast.replay.run import current_run

Ts = TypeVarTuple("Ts")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class ChildHandle(Generic[R_co]):
    """A child, for the code that started it. ``await handle`` waits for its result."""

    def __init__(self, child: StartedChild) -> None:
        self._child = child

    @property
    def id(self) -> str:
        """The id of its instance."""
        return self._child.id

    def __await__(self) -> Generator[Any, Any, R_co]:
        return self.result().__await__()

    async def result(self) -> R_co:
        """Wait for its result; see the guide for the errors. Cancelling the wait asks an attached child to end."""
        result: R_co = await self._child.result()
        return result

    @overload
    def raise_event(self, event: Event[T], value: T) -> Sending: ...
    @overload
    def raise_event(self, event: str, value: Any = None) -> Sending: ...
    def raise_event(self, event: "str | Event[Any]", value: Any = None) -> Sending:
        """Raise an event to it, with the commit of this turn. ``await`` the result to know that it was taken."""
        return raise_event(self.id, event, value)

    def cancel(self, reason: str | None = None) -> None:
        """Ask it to end, with the commit of this turn: its code may clean up. Nothing happens if it has ended."""
        current("a child's handle")
        self._child.cancel(checked_reason(reason))

    def __repr__(self) -> str:
        return f"<child {self.id}>"


@overload
async def start(
    workflow: Callable[[*Ts], Coroutine[Any, Any, R]], *args: *Ts, **options: Unpack[ChildOptions]
) -> ChildHandle[R]: ...
@overload
async def start(workflow: BoundWorkflow[R], **options: Unpack[ChildOptions]) -> ChildHandle[R]: ...
@overload
async def start(workflow: str, *args: Any, **options: Unpack[ChildOptions]) -> ChildHandle[Any]: ...
async def start(workflow: Any, *args: Any, **options: Unpack[ChildOptions]) -> ChildHandle[Any]:  # type: ignore[misc]
    """Start another workflow as a child of this one, with the commit of this turn.

    Without `id` the id derives from that of the parent, and the call returns at once. With `id` it returns when the
    child is created, or raises `InstanceConflict` if the id is taken; with `policy` "reuse" a closed instance of this
    id is replaced, with "terminate_existing" an open one, too. `parent_close` is applied to a child that is open
    when this execution ends: "terminate" (the default), "cancel" or "abandon". A `detached` child is abandoned by
    default, and cancelling the wait for it does not ask it to end. `deadline` overrides that of the workflow; None:
    there is none.
    """
    run = current_run()
    if run is None:
        raise NotInWorkflow("hf.start starts a child from workflow code; anywhere else `await client.start(...)` does")
    ties = ties_of(checked_child_options("hf.start", options))
    call = _call(workflow, args, deadline_of(options))
    run.context.checked(call.encoded, f"{call.name}(): the payload of the arguments")
    child = run.children.start(call, ties)
    if ties.id:
        await child.confirmed()
    return ChildHandle(child)


def _call(workflow: Any, args: tuple[Any, ...], deadline: DeadlineOption) -> ChildCall:
    match workflow:
        case Workflow():
            signature, limit = workflow.signature, start_deadline(workflow.deadline, deadline)
            return ChildCall(workflow.name, workflow.version, signature.encode_arguments(args), signature, limit)
        case BoundWorkflow():
            if args:
                raise UsageError("the arguments are bound already; give none besides")
            bound = workflow.workflow
            limit = start_deadline(bound.deadline, deadline)
            return ChildCall(bound.name, bound.version, workflow.encoded, bound.signature, limit)
        case str():
            encoded = encode(list(args), what="the arguments")
            return ChildCall(checked_name(workflow, "a workflow"), None, encoded, None, start_deadline(None, deadline))
        case _:
            raise UsageError(f"{workflow!r} is no workflow: mark the function with @hf.workflow, or give its name")
