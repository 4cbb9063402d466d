"""One execution of workflow code: live, or being rebuilt from its history (G8-G12, G14).

The run applies inputs one at a time, lets the code go on until it waits, and collects what it did as commands. It does
no I/O: what it collected becomes durable when its owner commits the turn, and nothing of it counts before.

Replay is the same with the history as the source of inputs. The commands that the code produces are compared with the
recorded ones; the first difference is a `HistoryMismatch` that names both.

The end of code that was asked to end at its deadline, and gave no result.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast.core import history as ev
from holdfast.core.history import HistoryEvent, Payload
from holdfast.core.run import (
    CancelledChild,
    ExecutionEnding,
    ExecutionId,
    ScheduledChild,
    SliceRunner,
    TurnOutput,
    run_unwatched,
)
from holdfast.errors import DeadlineExceeded, ForbiddenInWorkflow, HistoryMismatch, PayloadError
from holdfast.payloads.failures import Failure, Resolver, failure_of, to_exception
from holdfast.payloads.limits import PayloadLimit
from holdfast.payloads.pydantic_models import constraints_ignored
from holdfast.replay.calls import MILLISECONDS, WorkflowCalls, WorkflowCode
from holdfast.replay.children import Children, ParentInfo
from holdfast.replay.continue_as_new import asked_to_continue
from holdfast.replay.guard import Guarded, causes_of
from holdfast.replay.loop.event_loop import WorkflowLoop
from holdfast.replay.loop.loop_swap import swapped_loop
from holdfast.replay.loop.restricted_loops import ReadOnlyLoop


def overdue(reason: str, error: BaseException) -> DeadlineExceeded:
    """The failure of the workflow. What its code stumbled over effects is its cause; that it was cancelled is not."""
    exceeded = DeadlineExceeded(reason)
    if not isinstance(error, asyncio.CancelledError) and asked_to_continue(error) is None:
        exceeded.__cause__ = error
    return exceeded


def mismatch(position: int, *, recorded: HistoryEvent | None, produced: HistoryEvent | None) -> HistoryMismatch:
    """The first step in which code and history differ."""
    return HistoryMismatch(
        f"the code does not match the history at step {position}: "
        f"recorded {_described(recorded)}, but the code produced {_described(produced)}"
    )


def ended_before_it_ran(recorded: Sequence[HistoryEvent]) -> bool:
    """Whether an execution was ended from outside before any code of it ran: then no step of it is recorded."""
    return len(recorded) > 1 and all(isinstance(event, ev.FROM_OUTSIDE) for event in recorded[1:])


def _described(event: HistoryEvent | None) -> str:
    if event is None:
        return "nothing"
    if isinstance(event, ev.INPUTS):
        return "no further step before the next message"
    return event.describe()


_encode: Final = msgspec.json.Encoder().encode
_decode_failure: Final = msgspec.json.Decoder(Failure)


class WorkflowRun(WorkflowCalls):
    """The code of one execution, with its loop. `guarded` gives what finds mistakes in a turn."""

    __slots__ = (
        "_began_at_end",
        "_cancel_reason",
        "_children",
        "_ignores_constraints",
        "_is_overdue",
        "_new_deadline",
        "_resolve",
        "is_end_deferred",
        "version",
    )

    def __init__(
        self,
        code: WorkflowCode,
        identity: ExecutionId,
        resolve: Resolver,
        guarded: Callable[[], Guarded],
        payloads: dict[str, bytes] | None = None,
        *,
        new_deadline: Callable[[], Callable[[], bool]] | None = None,
        watch: SliceRunner | None = None,
        limit: PayloadLimit | None = None,
        watch_teardown: SliceRunner | None = None,
    ) -> None:
        super().__init__(code, identity, payloads, limit or PayloadLimit())
        self._resolve = resolve
        self._guarded = guarded
        self._watch = watch or run_unwatched
        self._loop = WorkflowLoop(self, watch=watch, watch_teardown=watch_teardown)
        self._new_deadline = new_deadline
        self._cancel_reason: str | None = None
        self._is_overdue = False
        self._ignores_constraints = False
        """It began in a release that did not check constraints such as ``Field(gt=0)``: each replay does the same."""
        self._children: Children | None = None
        self._began_at_end = False
        """The newest input was applied after the main function had ended."""
        self.is_end_deferred = False
        """The main function has ended, and messages that were there before are still to be applied (see `apply`)."""
        self.version = ""

    # ------------------------------------------------------------ driven by the owner

    @property
    def is_done(self) -> bool:
        """Whether the code has come to its end and left nothing over."""
        return self._output.outcome is not None

    @property
    def is_ending(self) -> bool:
        """Whether the main function has come to its end, though what it left over may still clean up."""
        return self._main is not None and self._main.done()

    def apply(self, event: ev.Input, has_more: bool = False) -> None:
        """Apply one input and run until the code waits again (G10).

        With `has_more` events and updates follow that reach the code even if its main function ends now: the remaining
        tasks are cancelled by `end`, after them (G14). Before a continue-as-new they are left to the next execution.
        """
        if self.is_end_deferred and isinstance(event, ev.EventReceived | ev.UpdateAccepted):
            event = msgspec.structs.replace(event, at_end=True)
        self._output.events.append(event)
        self._feed(event, has_more)

    def end(self) -> None:
        """Apply the end of the main function, if `apply` has deferred it."""
        if self.is_end_deferred:
            with constraints_ignored(self._ignores_constraints):
                self._run_code(has_more=False)

    def add_payloads(self, payloads: dict[str, bytes]) -> None:
        """Large payloads that messages still to be applied name by reference."""
        self._payloads.update(payloads)

    def waits_for(self, timer: int) -> bool:
        """Whether a timer is still waited for: another message of the same turn may have ended the wait."""
        return self._loop.has_timer(timer)

    def take_output(self) -> TurnOutput:
        """What was done since the last call."""
        output = self._output
        self._output = TurnOutput()
        self._length += len(output.events)
        return output

    def replay(self, history: Iterable[HistoryEvent]) -> None:
        """Rebuild the run from its history, and compare what the code does with what it did (G12)."""
        recorded = list(history)
        self._ignores_constraints = any(type(event) is ev.Started and not event.payload_limit for event in recorded[:1])
        self._side_effects = {
            event.number: event.value for event in recorded if isinstance(event, ev.SideEffectRecorded)
        }
        self.replaying = True
        deferring = _inputs_before_the_end(recorded)
        produced: deque[HistoryEvent] = deque()
        try:
            for position, event in enumerate(recorded):
                if isinstance(event, ev.INPUTS):
                    if produced:
                        raise mismatch(position, recorded=event, produced=produced[0])
                    self._length += 1
                    if type(event) is ev.EventReceived:
                        following = recorded[position + 1] if position + 1 < len(recorded) else None
                        self.is_set_aside = isinstance(following, ev.EventSetAside)
                    self._feed(event, position in deferring)
                    produced.extend(self._output.events)
                    self._length += len(self._output.events)
                    self._output = TurnOutput()
                elif isinstance(event, ev.FROM_OUTSIDE):
                    continue  # the code never learnt of it
                elif not produced or not event.is_same_step(produced[0]):
                    raise mismatch(position, recorded=event, produced=produced[0] if produced else None)
                else:
                    produced.popleft()
            if produced and not ended_before_it_ran(recorded):
                raise mismatch(len(recorded), recorded=None, produced=produced[0])
        finally:
            self.replaying = False

    @property
    def children(self) -> Children:
        """The children of this execution, made when the first one is started."""
        self._loop.check_evicted()
        if self._children is None:
            above = ParentInfo(self.identity.instance_id, self.identity.execution, self.seed, self.depth)
            self._children = Children(self._loop, above, self, self._data, self._resolve)
        return self._children

    @property
    def has_family(self) -> bool:
        """Whether the end of this execution concerns a parent or children."""
        return self.depth > 0 or self._children is not None

    def evict(self) -> list[str]:
        """Tear the coroutines down without any effect."""
        stuck = self._loop.evict()
        if self._children is not None:
            self._children.clear()
            self._children = None  # so that nothing is left to the collector
        return stuck

    def abandon(self) -> None:
        """Make the next `evict` run no code: the coroutines stay suspended until the process ends."""
        self._loop.abandon()

    def _feed(self, event: ev.Input, has_more: bool) -> None:
        if self._ignores_constraints:
            with constraints_ignored(True):
                self._feed_checked(event, has_more)
        else:
            self._feed_checked(event, has_more)

    def _feed_checked(self, event: ev.Input, has_more: bool) -> None:
        self._loop.advance_to(event.time_ms / MILLISECONDS)
        _APPLY[type(event)](self, event)
        self._began_at_end = self.is_end_deferred
        self._run_code(has_more)

    def _run_code(self, has_more: bool) -> None:
        guarded, new_deadline = self._guarded, self._new_deadline
        if self.failed_with:
            self.failed_with = ()
        turn = guarded()
        turn.begin()
        try:
            deadline = None if new_deadline is None else new_deadline()
            self._loop.run_until_idle(deadline=deadline)
            if self._shown is not None:
                self._shown.conditions.settle(deadline)
            if self._main is not None and self._main.done():
                self.is_end_deferred = has_more and not self.winds_up and not _continues(self._main)
                if not self.is_end_deferred:
                    if self._began_at_end:
                        self._loop.note_left_over()  # the handlers of updates that were applied after the main function
                    self._finish(self._main, deadline)
        finally:
            turn.end()
        if turn.findings and not self.replaying:
            self._refuse_swallowed(turn.findings)

    def _refuse_swallowed(self, findings: Sequence[ForbiddenInWorkflow]) -> None:
        """Raise what the guard found and the code caught, unless the code, or an update of it, failed for that reason.

        A replay does not raise: what is recorded may be from a time when such a turn counted.
        """
        for finding in findings:
            if not any(finding is cause for error in self.failed_with for cause in causes_of(error)):
                raise finding

    def _started(self, started: ev.Started) -> None:
        self._take_limit(started)
        self._seed = started.seed
        self.version = started.version
        self.parent = started.parent
        self.depth = started.depth
        if started.kept:
            self.shown.restore(started.kept)
        args, kwargs = self._code.signature.decode_arguments(self._data(started.input))
        self._main = self._loop.create_task(self._loop.run_main(self._code.fn(*args, **kwargs)), name=self._code.name)

    def _take_limit(self, started: ev.Started) -> None:
        """An execution keeps the limit of the worker that took its first turn, so that each replay refuses the same.

        The limit is always recorded: a history without one is of a release before (see `_ignores_constraints`).
        """
        is_recorded = self.replaying and self.needs_turn is None
        if is_recorded:
            self._limit = self._limit.of_execution(started.payload_limit)
        else:
            limited = msgspec.structs.replace(started, payload_limit=self._limit.largest_bytes)
            self._output.events[-1] = limited

    def _activity_completed(self, event: ev.ActivityCompleted) -> None:
        waiting = self._waiting.pop(event.activity, None)
        if waiting is None:
            if self._streams is not None:
                self._streams.completed(event)
        else:
            future, signature = waiting
            result = event.result
            try:
                future.set_result(signature.decode_result(self._data(result) if result.reference else result.data))
            except asyncio.InvalidStateError:
                pass  # a wait that was cancelled takes no answer
            except PayloadError as error:
                if not future.done():
                    future.set_exception(error)

    def _activity_failed(self, event: ev.ActivityFailed) -> None:
        waiting = self._waiting.pop(event.activity, None)
        if waiting is None and self._streams is None:
            return
        error = to_exception(_decode_failure.decode(self._data(event.failure)), self._resolve)
        if waiting is not None and not waiting[0].done():
            waiting[0].set_exception(error)
        elif self._streams is not None:
            self._streams.failed(event, error)

    def _timer_fired(self, event: ev.TimerFired) -> None:
        self._loop.fire_timer(event.timer)

    def _event_received(self, event: ev.EventReceived) -> None:
        self._output.ensure_effects().waits_changed = True
        self.waits.received(event)

    def _cancel_requested(self, event: ev.CancelRequested) -> None:
        """The main task is cancelled, once; what it makes of it is its own."""
        if self._cancel_reason is None:
            self._cancel_reason = event.reason
            self._is_overdue = event.by_deadline
            if self._main is not None and not self._main.done():
                self._main.cancel(event.reason or None)

    def _finish(self, main: "asyncio.Task[Any]", deadline: Callable[[], bool] | None) -> None:
        while self._loop.cancel_left_over(main, deadline=deadline):
            if self._shown is None or not self._shown.conditions.settle(deadline):
                self.winds_up = self._output.ensure_effects().waits_changed = True
                return  # what is left over cleans up and waits for something; its answers come as further inputs
        if main.cancelled():
            error: BaseException | None = asyncio.CancelledError("the workflow cancelled itself")
        else:
            error = main.exception()
        if self._is_overdue and error is not None:
            self._fail(overdue(self._cancel_reason or "", error))
            return
        asked = None if error is None else asked_to_continue(error)
        if self._cancel_reason is not None and (main.cancelled() or asked is not None):
            self._end(ev.ExecutionCancelled(reason=self._cancel_reason))  # also where it would have begun anew
            return
        if asked is not None:
            self._end(ev.ContinuedAsNew(input=Payload(msgspec.Raw(asked.encoded))))
            return
        if error is None:
            try:
                result = main.result()
                data = self._code.signature.encode_result(result)
                self.checked(data, f"the result of {self._code.name}()", result)
            except PayloadError as unserialisable:
                error = unserialisable
            else:
                self._end(ev.ExecutionCompleted(result=Payload(msgspec.Raw(data))))
                return
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failed_with = (*self.failed_with, error)
        self._end(ev.ExecutionFailed(failure=Payload(msgspec.Raw(_encode(failure_of(error))))))

    def _end(self, outcome: ExecutionEnding) -> None:
        if self.winds_up:
            self.winds_up = False
            self._output.ensure_effects().waits_changed = True
        self._output.outcome = outcome
        self._output.events.append(outcome)

    # ------------------------------------------------------------ told by the children

    def child_scheduled(self, command: ev.ChildScheduled, child: ScheduledChild) -> None:
        self._output.events.append(command)
        effects = self._output.ensure_effects()
        effects.children.append(child)

    def child_asked(self, command: ev.ChildCancelRequested, child: CancelledChild) -> None:
        self._output.events.append(command)
        effects = self._output.ensure_effects()
        effects.children_asked.append(child)

    # ------------------------------------------------------------ told by the loop

    def timer_started(self, number: int, due_at: float) -> None:
        """Rounded up, so that a timer is never early."""
        due_at_ms = math.ceil(round(due_at * MILLISECONDS, 3))
        self._output.ensure_effects().timers_started[number] = due_at_ms
        self._output.events.append(ev.TimerStarted(timer=number, due_at_ms=due_at_ms))

    def timer_cancelled(self, number: int) -> None:
        effects = self._output.ensure_effects()
        if effects.timers_started.pop(number, None) is None:
            effects.timers_ended.append(number)
        self._output.events.append(ev.TimerCancelled(timer=number))

    def unhandled(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.log(40, "%s: %r", context.get("message", "an exception nobody took"), error)


def _continues(main: "asyncio.Task[Any]") -> bool:
    """Whether the main function has ended with a continue-as-new."""
    error = None if main.cancelled() else main.exception()
    return error is not None and asked_to_continue(error) is not None


def _inputs_before_the_end(recorded: list[HistoryEvent]) -> set[int]:
    """The positions of the inputs after which the end of the main function was deferred."""
    deferring: set[int] = set()
    for position, event in enumerate(recorded):
        if isinstance(event, ev.EventReceived | ev.UpdateAccepted) and event.at_end:
            before = position - 1
            while not isinstance(recorded[before], ev.INPUTS):
                before -= 1
            deferring.add(before)
    return deferring


def current_run() -> WorkflowRun | None:
    """The run whose code is being executed, or None outside of workflow code."""
    loop = swapped_loop()
    if type(loop) is WorkflowLoop:
        loop.check_evicted()
        host = loop.host
        if isinstance(host, WorkflowRun):
            return host
    elif isinstance(loop, ReadOnlyLoop):
        loop.refuse()
    return None


_APPLY: Final[dict[type[ev.Input], Callable[[WorkflowRun, Any], None]]] = {
    ev.ActivityCompleted: WorkflowRun._activity_completed,  # noqa: SLF001 - the table of its own methods
    ev.ActivityFailed: WorkflowRun._activity_failed,  # noqa: SLF001
    ev.TimerFired: WorkflowRun._timer_fired,  # noqa: SLF001
    ev.Started: WorkflowRun._started,  # noqa: SLF001
    ev.EventReceived: WorkflowRun._event_received,  # noqa: SLF001
    ev.CancelRequested: WorkflowRun._cancel_requested,  # noqa: SLF001
    ev.ActivityYielded: lambda run, event: run.streams.yielded(event),
    ev.ChildStarted: lambda run, event: run.children.apply_reply(event),
    ev.ChildRefused: lambda run, event: run.children.apply_reply(event),
    ev.ChildCompleted: lambda run, event: run.children.apply_reply(event),
    ev.ChildFailed: lambda run, event: run.children.apply_reply(event),
    ev.ChildStopped: lambda run, event: run.children.apply_reply(event),
    ev.UpdateAccepted: lambda run, event: run.updates.begin(event),
}
"""How each input is applied."""
