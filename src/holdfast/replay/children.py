"""Children in workflow code: other workflows that it starts, awaits, and asks to end.

The commit of the turn starts a child, and its end arrives as an input. Cancelling the wait for an attached child asks
the child to end and does not wait for that; the end of the child is recorded when it arrives.
"""

import asyncio
from typing import Any, NamedTuple, assert_never

from holdfast.core import history as ev
from holdfast.core.admission import IdPolicy
from holdfast.core.children import NOT_WAITED_FOR, ParentClose
from holdfast.core.deadlines import Deadline
from holdfast.core.lifecycle import InstanceState
from holdfast.core.run import CancelledChild, ParentInfo, schedule_child
from holdfast.errors import InstanceConflict, WorkflowCancelled, WorkflowFailed, WorkflowTerminated
from holdfast.payloads.encoding import decode
from holdfast.payloads.failures import failed_message
from holdfast.payloads.signature import Signature
from holdfast.replay.context import RunContext


class ChildCall(NamedTuple):
    """A workflow and its input. A workflow that is called by name has no signature, and its result is plain JSON."""

    name: str
    version: str | None
    """None for a workflow that is called by name: the version is chosen by its first turn (R6)."""
    encoded: bytes
    signature: Signature | None
    deadline: Deadline | None = None


class ChildTies(NamedTuple):
    """How a child depends on its parent. `attached`: cancelling the wait for it asks it to end."""

    parent_close: ParentClose = ParentClose.TERMINATE
    attached: bool = True
    id: str = ""
    """Chosen by the code; empty: derived from the id of the parent."""
    policy: IdPolicy = IdPolicy.IDEMPOTENT
    """For a chosen id that is taken (G3)."""


class StartedChild:
    """One child, in the code of its parent."""

    __slots__ = ("_context", "_signature", "_waiters", "answer", "id", "is_attached", "is_confirmed", "number")

    def __init__(self, context: RunContext, number: int, instance_id: str, call: ChildCall, ties: ChildTies) -> None:
        self._context = context
        self._signature = call.signature
        self._waiters: list[asyncio.Future[Any]] = []
        self.number = number
        self.id = instance_id
        self.is_attached = ties.attached
        self.is_confirmed = False
        self.answer: ev.ChildEnd | None = None

    async def confirmed(self) -> None:
        """Wait until the store has created it, or has refused its id."""
        while not self.is_confirmed and self.answer is None:
            await self._wait()
        if isinstance(self.answer, ev.ChildRefused):
            raise InstanceConflict(self.answer.reason)

    async def result(self) -> Any:
        """Wait for its result. Cancelling the wait asks an attached child to end."""
        self._context.loop.check_evicted()
        while self.answer is None:
            await self._wait()
        match self.answer:
            case ev.ChildCompleted(result=payload):
                data = self._context.data_of(payload)
                return decode(data) if self._signature is None else self._signature.decode_result(data)
            case ev.ChildFailed(failure=payload):
                cause = self._context.exception_of(payload)
                raise WorkflowFailed(failed_message(self.id, cause), cause) from cause
            case ev.ChildStopped(state=state, reason=reason):
                because = f": {reason}" if reason else ""
                if state == InstanceState.TERMINATED:
                    raise WorkflowTerminated(f"{self.id} was terminated{because}", reason or None)
                raise WorkflowCancelled(f"{self.id} was cancelled{because}")
            case ev.ChildRefused(reason=reason):
                raise InstanceConflict(reason)
            case _:
                assert_never(self.answer)

    def cancel(self, reason: str) -> None:
        """Ask it to end, with the commit of this turn. Nothing happens if it has ended."""
        self._context.loop.check_evicted()
        if self.answer is None:
            output = self._context.output
            output.events.append(ev.ChildCancelRequested(child=self.number, reason=reason))
            output.ensure_effects().children_asked.append(CancelledChild(self.number, reason))

    def apply_reply(self, answer: ev.ChildAnswer) -> None:
        """Apply its start, its refusal or its end, and wake the waiting tasks."""
        if isinstance(answer, ev.ChildStarted):
            self.is_confirmed = True
        else:
            self.answer = answer
        waiters = self._waiters
        self._waiters = []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _wait(self) -> None:
        waiter = self._context.loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            if self.is_attached:
                self.cancel(NOT_WAITED_FOR)
            raise


class Children:
    """The children of one run."""

    __slots__ = ("_context", "_next_number", "_open", "_parent")

    def __init__(self, context: RunContext, parent: ParentInfo) -> None:
        self._context = context
        self._parent = parent
        self._next_number = 0
        self._open: dict[int, StartedChild] = {}

    def start(self, call: ChildCall, ties: ChildTies) -> StartedChild:
        """Start a child with the commit of this turn."""
        context = self._context
        context.loop.check_evicted()
        number = self._next_number
        scheduled = schedule_child(
            self._parent,
            number,
            workflow=call.name,
            version=call.version,
            encoded=call.encoded,
            deadline=call.deadline,
            parent_close=ties.parent_close,
            chosen_id=ties.id,
            policy=ties.policy,
        )
        self._next_number = number + 1
        child = self._open[number] = StartedChild(context, number, scheduled.id, call, ties)
        command = ev.ChildScheduled(child=number, name=call.name, id=scheduled.id, named=scheduled.named)
        context.output.events.append(command)
        context.output.ensure_effects().children.append(scheduled)
        return child

    async def run(self, call: ChildCall, ties: ChildTies | None = None) -> Any:
        """Start a child and wait for its result."""
        return await self.start(call, ties or ChildTies()).result()

    def apply_reply(self, answer: ev.ChildAnswer) -> None:
        """Apply the start, the refusal or the end of a child."""
        if isinstance(answer, ev.ChildStarted):
            child = self._open.get(answer.child)
        else:
            child = self._open.pop(answer.child, None)
        if child is not None:
            child.apply_reply(answer)
