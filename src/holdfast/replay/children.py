"""Children in workflow code: other workflows that it starts, waits for, and asks to end.

A child is started with the commit of the turn, and its end comes as an input. Whoever stops waiting for an attached
child asks it to end, and goes on at once; the end of the child is still recorded when it comes.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, assert_never

import msgspec

from holdfast.core import history as ev
from holdfast.core.children import MOST_PARENTS, NOT_WAITED_FOR, ParentClose, child_seed, default_child_id
from holdfast.core.deadlines import Deadline
from holdfast.core.lifecycle import InstanceState
from holdfast.core.run import CancelledChild, ScheduledChild
from holdfast.errors import InstanceConflict, NestedTooDeep, WorkflowCancelled, WorkflowFailed, WorkflowTerminated
from holdfast.payloads.encoding import decode
from holdfast.payloads.failures import Failure, Resolver, failed_message, to_exception
from holdfast.payloads.signature import Signature

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.history import Payload
    from holdfast.replay.loop.event_loop import WorkflowLoop


_decode_failure: Final = msgspec.json.Decoder(Failure).decode


class ChildCall(NamedTuple):
    """Which workflow, with which input. By name there is no signature, and results are plain JSON."""

    name: str
    version: str
    encoded: bytes
    signature: Signature | None
    deadline: Deadline | None = None


class ChildTies(NamedTuple):
    """How a child hangs on its parent. `attached`: who stops waiting for it asks it to end."""

    parent_close: ParentClose = ParentClose.TERMINATE
    attached: bool = True
    id: str = ""
    """Chosen by the code; empty: made from the parent's."""


class ParentInfo(NamedTuple):
    """What the children of an execution need to know of it."""

    id: str
    execution: int
    seed: int
    depth: int


class Sink(Protocol):
    """Where the commands of the code go."""

    def child_scheduled(self, command: ev.ChildScheduled, child: ScheduledChild) -> None: ...
    def child_asked(self, command: ev.ChildCancelRequested, child: CancelledChild) -> None: ...


class StartedChild:
    """One child, as its parent's code knows it."""

    __slots__ = ("_children", "_signature", "_waiters", "answer", "id", "is_attached", "is_confirmed", "number")

    def __init__(self, children: "Children", number: int, instance_id: str, call: ChildCall, ties: ChildTies) -> None:
        self._children = children
        self._signature = call.signature
        self._waiters: list[asyncio.Future[Any]] = []
        self.number = number
        self.id = instance_id
        self.is_attached = ties.attached
        self.is_confirmed = False
        self.answer: ev.ChildEnd | None = None

    async def confirmed(self) -> None:
        """Wait until it is known whether the id was free."""
        while not self.is_confirmed and self.answer is None:
            await self._wait()
        if isinstance(self.answer, ev.ChildRefused):
            raise InstanceConflict(self.answer.reason)

    async def result(self) -> Any:
        """Wait for its end. Cancelling the wait asks an attached child to end."""
        self._children.loop.check_evicted()
        while self.answer is None:
            await self._wait()
        match self.answer:
            case ev.ChildCompleted(result=payload):
                data = self._children.data_of(payload)
                return decode(data) if self._signature is None else self._signature.decode_result(data)
            case ev.ChildFailed(failure=payload):
                cause = to_exception(_decode_failure(self._children.data_of(payload)), self._children.resolve)
                raise WorkflowFailed(failed_message(self.id, cause), cause) from cause
            case ev.ChildStopped(state=state, reason=reason):
                said = f": {reason}" if reason else ""
                if state == InstanceState.TERMINATED:
                    raise WorkflowTerminated(f"{self.id} was terminated{said}", reason or None)
                raise WorkflowCancelled(f"{self.id} was cancelled{said}")
            case ev.ChildRefused(reason=reason):
                raise InstanceConflict(reason)
            case _:
                assert_never(self.answer)

    def cancel(self, reason: str) -> None:
        """Ask it to end, with the commit of this turn. Nothing happens if it has ended."""
        self._children.loop.check_evicted()
        if self.answer is None:
            self._children.ask(self.number, reason)

    def apply_reply(self, answer: ev.ChildAnswer) -> None:
        """It was started, refused, or has ended."""
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
        waiter = self._children.loop.create_own_future()
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

    __slots__ = ("_above", "_open", "_sink", "data_of", "loop", "resolve", "started")

    def __init__(
        self,
        loop: "WorkflowLoop",
        above: ParentInfo,
        sink: Sink,
        data_of: "Callable[[Payload], bytes]",
        resolve: Resolver,
    ) -> None:
        self.loop = loop
        self.data_of = data_of
        self.resolve = resolve
        self._above = above
        self._sink = sink
        self._open: dict[int, StartedChild] = {}
        self.started = 0
        """How many the code has started so far."""

    def start(self, call: ChildCall, ties: ChildTies) -> StartedChild:
        """Start a child with the commit of this turn."""
        self.loop.check_evicted()
        above = self._above
        depth = above.depth + 1
        if depth > MOST_PARENTS:
            raise NestedTooDeep(
                f"it has {above.depth} parents above it, the most that are allowed, and cannot start {call.name!r}; "
                "a workflow that repeats itself calls hf.continue_as_new"
            )
        number = self.started
        instance_id = ties.id or default_child_id(above.id, above.execution, number)
        self.started = number + 1
        child = self._open[number] = StartedChild(self, number, instance_id, call, ties)
        command = ev.ChildScheduled(child=number, name=call.name, id=instance_id, named=bool(ties.id))
        scheduled = ScheduledChild(
            child=number,
            id=instance_id,
            named=bool(ties.id),
            workflow=call.name,
            version=call.version,
            input=call.encoded,
            deadline=call.deadline,
            parent_close=ties.parent_close,
            seed=child_seed(above.seed, number),
            depth=depth,
        )
        self._sink.child_scheduled(command, scheduled)
        return child

    async def run(self, call: ChildCall) -> Any:
        """Start a child and wait for its result."""
        return await self.start(call, ChildTies()).result()

    def clear(self) -> None:
        """The run is over."""
        self._open.clear()

    def ask(self, number: int, reason: str) -> None:
        """Ask a child to end."""
        self._sink.child_asked(ev.ChildCancelRequested(child=number, reason=reason), CancelledChild(number, reason))

    def apply_reply(self, answer: ev.ChildAnswer) -> None:
        """Hand an answer to its child."""
        if isinstance(answer, ev.ChildStarted):
            child = self._open.get(answer.child)
        else:
            child = self._open.pop(answer.child, None)
        if child is not None:
            child.apply_reply(answer)
